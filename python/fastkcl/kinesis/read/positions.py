"""The positions that may be committed: those whose records the program has finished.

A program finishes a record by asking for the next one. So a position takes two steps until it is committed. If the
program dies between them, the records are delivered again:

    hand_out ──▶ deferred ── acknowledge: the program asks for more ──▶ pending ── committed ──▶ gone

Rules: no I/O and no clock. Positions of a shard only grow; the last one wins. A position that was written is removed
only if there is no newer one. A position that could not be written stays pending. The positions of a lost shard are
dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from fastkcl.kinesis.checkpoints.base import Place

__all__ = ["Handed", "Positions"]


class Handed(NamedTuple):
    """Up to where a shard was handed out.

    Attributes:
        place: the last record of it.
        rows: records that were handed out of the shard, this one included.
    """

    place: Place
    rows: int


class Positions:
    """The positions of all shards of a consumer."""

    def __init__(self) -> None:
        self._deferred: dict[str, Handed] = {}
        self._pending: dict[str, Handed] = {}
        self._highest: dict[str, tuple[float, float]] = {}
        self._latest: dict[str, Handed] = {}

    def hand_out(self, shard_id: str, handed: Handed) -> None:
        """The program has everything of the shard up to there. A position that is not above the last is ignored."""
        order = handed.place.order
        if order > self._highest.get(shard_id, (-1, -1)):
            self._highest[shard_id] = order
            self._deferred[shard_id] = self._latest[shard_id] = handed

    def latest(self, shard_id: str) -> Handed | None:
        """Up to where a shard was handed out last; None if nothing was."""
        return self._latest.get(shard_id)

    def acknowledge(self) -> None:
        """The program asks for more: it is done with all that was handed out."""
        self._pending.update(self._deferred)
        self._deferred.clear()

    @property
    def pending(self) -> dict[str, Handed]:
        """Positions to commit, by shard. A copy: more may come while it is written."""
        return dict(self._pending)

    def committed(self, shard_id: str, handed: Handed) -> None:
        """The position was written. If there is a newer one by now, that one stays to be written."""
        if self._pending.get(shard_id) is handed:
            del self._pending[shard_id]

    def drop(self, shard_id: str) -> None:
        """The shard is no longer ours, or is read again from its position."""
        for positions in (self._deferred, self._pending, self._latest):
            positions.pop(shard_id, None)
        self._highest.pop(shard_id, None)
