"""A note beside a table: which of a shard's records were given up (dead letter, `on_error="skip"`).

    table/_given_up/clicks/shardId-000000000000       {"after": ["4958…", 0], "upto": ["4959…", 0], "sha256": "…"}

A checkpoint after the table's position means lost records, unless they were given up: those after the position that
the table had then, up to another one. So a table that is before that position has lost commits, and the note excuses
nothing. It is not a part of the commits, and no record is dropped because of it.

Records that were given up may come again, if no checkpoint was made after them, and be stored then. So the note follows
the table (`after_more`, before the checkpoint of what it has): what the table has had is not excused any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fastkcl import Position
from fastkcl.tables.base import RECOVERY, SinkError, parse_sealed, place, sealed
from fastkcl.tables.folders import position_of
from fastkcl.tables.store import Store

__all__ = ["NOTES", "GivenUp", "after_more", "given_up", "keep_in", "noted", "text_of", "upto_of"]

NOTES: Final = "_given_up"
"""Folder of a table."""
_MOST_BYTES: Final = 1 << 20


class GivenUp(NamedTuple):
    """A note's content."""

    after: Position | None
    """The last position that the table is known to have had; None if it had none, or if the note does not say it."""
    upto: Position
    """Of the last record that was given up."""

    def fault(self, position: Position | None) -> str | None:
        """What a table at this position has lost."""
        if self.after is None or (position is not None and position >= self.after):
            return None
        has = "none of them" if position is None else f"those up to {place(position)}"
        return (
            f"records up to {place(self.upto)} were given up, the table has had those up to {place(self.after)} then or"
            f" later, and it has {has}: commits are lost; {RECOVERY}"
        )

    @property
    def is_live(self) -> bool:
        """Whether it excuses any record."""
        return self.after is None or self.after < self.upto

    def followed(self, position: Position | None) -> GivenUp:
        """The note when the table has gone on to a position."""
        if position is None or not self.is_live or self.fault(position):
            return self
        return self._replace(after=position)

    def with_more(self, upto: Position, position: Position | None) -> GivenUp:
        """The note when more records were given up, with the table at a position; of a loss before it says nothing."""
        return GivenUp(position, upto if self.fault(position) else max(self.upto, upto))


def upto_of(found: GivenUp | None, position: Position | None) -> Position | None:
    """Up to where the records after a table's position have been given up; None if none have."""
    return None if found is None or found.fault(position) else found.upto


def after_more(before: GivenUp | None, upto: Position | None, position: Position | None) -> GivenUp | None:
    """A shard's note as it has to be now; None for none.

    Args:
        before: the note that is there.
        upto: of records that have been given up now; None for none.
        position: of the table.
    """
    if upto is None:
        return None if before is None else before.followed(position)
    return GivenUp(position, upto) if before is None else before.with_more(upto, position)


def keep_in(store: Store, key: str, before: GivenUp | None, upto: Position | None, position: Position | None) -> bool:
    """Have a note that is a file of a table say what `after_more` says.

    It is synced if it says so already: its writer may have failed, or died, before it was there for good.

    Returns:
        Whether it excuses records, so that it has to follow the next commit.

    Raises:
        OSError: it cannot be written.
    """
    now = after_more(before, upto, position)
    if now is None:
        return False
    try:
        if now == before:
            store.settle(key)
    except FileNotFoundError:  # it was noted elsewhere, by an early version
        before = None
    if now != before:
        store.replace(key, text_of(now))
    return now.is_live


def given_up(store: Store, key: str, remedy: str = "remove it") -> GivenUp | None:
    """A note that is a file of a table; None without one.

    Args:
        store: the table's.
        key: of the note.
        remedy: of a damaged one.

    Raises:
        SinkError: it is damaged, or no file.
        OSError: it cannot be read.
    """
    try:
        text = store.read(key, _MOST_BYTES)
    except SinkError as error:
        raise SinkError(f"{store.url}/{key}: no note of records given up ({error}): {remedy}") from None
    return None if text is None else noted(text, f"{store.url}/{key}", remedy)


def text_of(note: GivenUp) -> bytes:
    """A note's content."""
    return sealed({"after": note.after and _as_list(note.after), "upto": _as_list(note.upto)})


def _as_list(position: Position) -> list[str | int | None]:
    return [position.sequence_number, position.sub_sequence_number]


def noted(text: bytes, where: str, remedy: str = "remove it") -> GivenUp:
    """What a note says.

    Raises:
        SinkError: it is damaged.
    """
    try:
        content = parse_sealed(text)[0]
        after = content.get("after")
        return GivenUp(None if after is None else position_of(after), position_of(content["upto"]))
    except (ValueError, KeyError, TypeError) as error:
        raise SinkError(f"{where}: a damaged note ({error!r}): {remedy}") from error
