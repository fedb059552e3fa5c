"""Asking the host to store a position.

A checkpoint is allowed while process_batch, shard_ended or shutdown_requested runs, in the thread that the method was
called in. Under a daemon it is a round trip: a line goes out, the daemon writes its lease table, a reply comes back.
"""

from __future__ import annotations

import time
from _thread import get_ident

from fastkcl._core import Position, Record
from fastkcl.checks import check_not_negative, check_whole_number
from fastkcl.processing.counters import UNCOUNTED
from fastkcl.processing.errors import CheckpointError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastkcl.processing.counters import Counters
    from fastkcl.processing.host import Host


class Checkpointer:
    """Handed to the methods of a processor. The host makes one for a shard, in the thread that calls the processor."""

    __slots__ = ("_counters", "_host", "_thread")

    def __init__(self, host: Host, counters: Counters = UNCOUNTED) -> None:
        self._host = host
        self._counters = counters
        self._thread = get_ident()

    def checkpoint(
        self,
        at: Record | Position | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        retries: int = 0,
        backoff: float = 1.0,
    ) -> None:
        """Store a position, so that everything up to it is never delivered again.

        Args:
            at: a record or a position (both numbers of it), a sequence number, or None for the end of everything
                delivered, the batch at hand included. A bare sequence number of an aggregated record stands for its
                first user record.
            sub_sequence_number: with a sequence number: the user record inside an aggregate.
            retries: how often to try again where the daemon's error is retryable.
            backoff: seconds before the first retry, doubled before each further one. A throttled reply can itself take
                50 s, and the lease may be gone by then: keep both small.

        Raises:
            CheckpointError: the daemon refused; the dialogue goes on.
            ValueError: `sub_sequence_number` without a sequence number or beside a record or position; one above 0 in
                the legacy dialect, which has no word for it; one of more than 64 bits; `retries` or `backoff` below 0
                or no number (NaN). Nothing was sent.
            TypeError: an argument of another type. Nothing was sent.
            LocalProtocolError: not allowed at this point, or in this thread. The run ends.
            RemoteProtocolError: the daemon broke the protocol, or has gone. The run ends.
        """
        check_whole_number("retries", retries)
        check_not_negative(retries=retries, backoff=backoff)
        sequence_number: str | None
        if isinstance(at, (Record, Position)):
            if sub_sequence_number is not None:
                raise ValueError(f"a {type(at).__name__} has its own sub-sequence number; give one or the other")
            sequence_number, sub_sequence_number = at.sequence_number, at.sub_sequence_number
        elif at is None or isinstance(at, str):
            sequence_number = at
        else:
            raise TypeError(f"at must be a Record, a Position, a sequence number or None, not {type(at).__name__}")
        if get_ident() != self._thread:
            self._host.not_allowed("a checkpoint from a thread other than the processor's")
        for attempt in range(retries + 1):
            begun = time.monotonic()
            name = self._host.checkpoint(sequence_number, sub_sequence_number)
            self._counters.checkpointed(begun, name)
            if name is None:
                return
            error = CheckpointError(name)
            if not error.retryable or attempt == retries:
                raise error
            self._host.back_off(backoff, attempt)
