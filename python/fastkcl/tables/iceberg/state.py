"""A shard's position in an Iceberg table, and the next step of an append. No I/O.

    table property    fastkcl.position.clicks/shardId-000000000000 = 4959….0 3051729675574597004
                                                                     position  snapshot that reached it

It changes in the commit that adds the snapshot. It survives expiry, and the commits of others leave it alone.

    seen                                               done
    ─────────────────────────────────────────────────  ──────────────────────────────────────────────
    the position is at or after the last row           done: it does not matter whose commit it was
    nothing staged, or it follows another position     stage
    staged for columns that have other ids now         stage again
    staged longer ago than a day                       stage again
    none of these                                      commit on the very metadata that was compared
    the commit is refused: somebody else's came first  pause, load, compare
    any other error                                    nobody knows: the caller opens again, and looks

A rollback leaves properties as they are. So a position counts only while its snapshot is an ancestor of the branch
``main``, or is expired.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from fastkcl import Position
from fastkcl.tables.base import RECOVERY, Shard, SinkError
from fastkcl.tables.folders import START, parse_position, position_text, shard_folders

__all__ = ["GIVEN_UP", "MOST_AGE", "MOST_CONFLICTS", "POSITION", "Append", "Do", "Seen", "pause", "position_value"]

POSITION: Final = "fastkcl.position."
"""What the names of the properties begin with."""
GIVEN_UP: Final = "fastkcl.given-up."
"""What the names of the properties begin with that note records given up."""
MOST_AGE: Final = 23 * 3600.0
"""Seconds: a clean-up of orphans may take what is staged for longer than a day."""
MOST_CONFLICTS: Final = 100
_SNAPSHOT: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_MOST_PAUSE: Final = 5.0  # seconds

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Seen:
    """A table's metadata, as far as appends go."""

    table: str
    """For people."""
    uuid: str
    properties: Mapping[str, str]
    main: int | None
    """Snapshot of the branch; None before the first."""
    parents: Mapping[int, int | None]
    """Of each snapshot that is not expired."""

    def position(self, shard: Shard) -> Position | None:
        """Up to where the table has a shard's records; None if it has none.

        Raises:
            SinkError: the table was rolled back before it, or the property is damaged.
        """
        name = f"{POSITION}{shard_folders(shard)}"
        text = self.properties.get(name)
        if text is None:
            return None
        place, _, number = text.partition(" ")
        try:
            position = parse_position(place)
            if position is None:
                raise ValueError(f"{START}: no position")
            if not _SNAPSHOT.fullmatch(number):
                raise ValueError(f"{number[:40]!r}: no snapshot id")
            snapshot = int(number)
        except (ValueError, TypeError) as error:
            raise SinkError(
                f"{self.table}: its property {name} is damaged ({error}): set it to '<position> <snapshot id>' as a"
                " copy of the metadata has it"
            ) from error
        if self.main not in self.parents:
            raise SinkError(
                f"{self.table}: has the position {place} of {shard.stream}, {shard.shard_id}, and the snapshot of main"
                f" ({self.main}) is missing in its metadata: restore the metadata file from a copy; {RECOVERY}"
            )
        if snapshot in self.parents and not self._is_ancestor(snapshot):
            raise SinkError(
                f"{self.table}: it was rolled back: the position {place} of {shard.stream}, {shard.shard_id} was"
                f" reached by snapshot {snapshot}, which is no ancestor of main any more. Records after that are gone,"
                f" and are not delivered again. To go on, set the property {name} to '<position of the last row that is"
                f" left> {self.main}', or return to the snapshot"
            )
        return position

    def _is_ancestor(self, snapshot: int) -> bool:
        at = self.main
        for _ in range(len(self.parents) + 1):
            if at == snapshot:
                return True
            if at is None:
                return False
            at = self.parents.get(at)
        return False  # a circle, in a damaged table


def position_value(position: Position, snapshot: int) -> str:
    """The property's value."""
    return f"{position_text(position)} {snapshot}"


class Do(enum.Enum):
    """What an append does next."""

    DONE = "done"
    STAGE = "stage"
    COMMIT = "commit"
    GIVE_UP = "give up"


@dataclass(slots=True)
class Append(Generic[F]):
    """One append, from the rows' arrival to their commit.

    `F` is whatever the ids of the files' columns are told by.
    """

    upto: Position
    """Of the last row."""
    conflicts: int = 0
    """Commits that met others."""
    _staged: tuple[Position | None, F, float] | None = field(default=None, init=False)

    def do(self, position: Position | None, columns: F, now: float) -> Do:
        """The next step, on the metadata that was seen last.

        Args:
            position: the shard's.
            columns: as a file that is staged now would have them.
            now: seconds of a clock that never goes back.
        """
        if position is not None and position >= self.upto:
            return Do.DONE
        if self.conflicts >= MOST_CONFLICTS:
            return Do.GIVE_UP
        if self._staged is None:
            return Do.STAGE
        after, ids, at = self._staged
        fits = after == position and ids == columns and now - at < MOST_AGE
        return Do.COMMIT if fits else Do.STAGE

    def staged(self, after: Position | None, columns: F, at: float) -> None:
        """Files are there, for rows that follow a position."""
        self._staged = (after, columns, at)

    def lost(self) -> None:
        """The files are not there any more."""
        self._staged = None

    def refused(self) -> None:
        """Somebody else's commit came first."""
        self.conflicts += 1


def pause(conflicts: int, commit: float, chance: float) -> float:
    """Seconds until the next try: about one commit's time at first, doubled with each, 5 at the most.

    Args:
        conflicts: so far, at least one.
        commit: seconds that a commit takes.
        chance: from 0 to 1.
    """
    doubled: float = commit * 2.0 ** min(conflicts, 16)
    return chance * min(_MOST_PAUSE, doubled)
