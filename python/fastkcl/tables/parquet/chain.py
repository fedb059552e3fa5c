"""The chain of a shard's files in a ParquetTable: which file can follow a state, and the content of its footer. No I/O.

    state (position P, day D)  ──▶  the one file that can follow it:  date=D/after-P.parquet
                                                     │ its footer: upto L, next day D'
                                                     ▼
                               state (L, D')   ──▶  date=D'/after-L.parquet  ──▶ …

The file is created exclusively, so of two writers that continue from one state one succeeds. Its name depends on the
state alone, never on the rows that a writer happens to have: two writers at the start of a shard can have different
first rows, of different days.

    seen                                   done
    ─────────────────────────────────────  ──────────────────────────────────────────────────────────────
    the first row's day is after D         a turn: an empty file, up to P; its next day is the row's
    a later row's day is after D           the rows before it; the file's next day is the row's
    none of these                          all rows; the next day is D

So days never go back. A row that arrives late lies in the newer day, and one without an arrival time in the day that it
meets. A shard begins in the state (none, 1970-01-01). Without days (``partition="none"``) nothing turns.

Rules: names sort as positions do, whatever the number of their digits (``056`` digits, then the digits).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

from fastkcl import Position
from fastkcl.tables.base import Shard, parse_sealed, sealed
from fastkcl.tables.folders import position_of

__all__ = [
    "BEGINNING",
    "FIRST_DAY",
    "Footer",
    "State",
    "Step",
    "name_after",
    "parse_day",
    "position_in",
    "step",
]

FIRST_DAY: Final = date(1970, 1, 1)

_NAME = re.compile(r"after-(000|[0-9]{3}\.[0-9]+\.(?:zz|[0-9]{2}\.[0-9]+))\.parquet", re.ASCII)
_LEGACY: Final = "zz"  # a whole sequence number: after all of its sub-sequence numbers


@dataclass(frozen=True, slots=True)
class State:
    """Where a shard's chain is."""

    position: Position | None
    """Of the last record in the table; None before the first."""
    day: date | None
    """Of the file that comes next; None in a table without days."""

    @property
    def key(self) -> str:
        """The one file that can follow, from the shard's folder on."""
        name = name_after(self.position)
        return name if self.day is None else f"date={self.day.isoformat()}/{name}"


BEGINNING: Final = State(None, FIRST_DAY)


@dataclass(frozen=True, slots=True)
class Step:
    """What the next file has."""

    rows: int
    """Of the rows at hand, from the first on. 0 for a turn, to another day."""
    day: date | None
    """Of the file after it."""


def step(state: State, num_rows: int, newer: tuple[int, date] | None) -> Step:
    """The next step.

    Args:
        state: where the chain is.
        num_rows: rows at hand, all of them after the state's position.
        newer: the first row whose day is after the state's, and that day; None if there is none.
    """
    if state.day is None or newer is None:
        return Step(num_rows, state.day)
    row, day = newer
    assert row < num_rows
    assert day > state.day
    return Step(row, day)


def name_after(position: Position | None) -> str:
    """The name of the file that continues from a position.

    Raises:
        ValueError: the sequence number has no digits, or more than 999.
    """
    if position is None:
        return "after-000.parquet"
    number = position.sequence_number.lstrip("0") or "0"
    if not number.isdecimal() or not number.isascii() or len(number) > 999:
        raise ValueError(f"sequence number {position.sequence_number}: must be of at most 999 decimal digits")
    sub = position.sub_sequence_number
    last = _LEGACY if sub is None else f"{len(str(sub)):02}.{sub}"
    return f"after-{len(number):03}.{number}.{last}.parquet"


def position_in(name: str) -> Position | None:
    """The position that a file's name continues from.

    Raises:
        ValueError: it is not a name of `name_after`.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"{name}: no file of this table")
    if found[1] == "000":
        return None
    _, number, *sub = found[1].split(".")
    position = position_of([number, None if sub == [_LEGACY] else int(sub[1])])
    if name_after(position) != name:
        raise ValueError(f"{name}: no file of this table")
    return position


@dataclass(frozen=True, slots=True)
class Footer:
    """A file's description of itself, in Parquet's own metadata, under the key ``fastkcl``."""

    table: str
    """The table's id."""
    shard: Shard
    after: Position | None
    """Position that it continues from."""
    upto: Position | None
    """Position of its last record, before any transformation; `after` for a turn."""
    rows: int
    """Records that it stands for, before any transformation."""
    next_day: date | None
    """Day of the file after it."""
    writer: str
    """Random: a writer whose answer was lost knows its own file by it."""
    has_checksum: bool = field(default=True, compare=False)
    """Those of earlier versions have none."""

    @property
    def state(self) -> State:
        """Where the chain is after it."""
        return State(self.upto, self.next_day)

    def text(self) -> bytes:
        """As JSON, with a checksum."""
        return sealed(
            {
                "table": self.table,
                "stream": self.shard.stream,
                "shard": self.shard.shard_id,
                "after": _numbers(self.after),
                "upto": _numbers(self.upto),
                "rows": self.rows,
                "next": None if self.next_day is None else self.next_day.isoformat(),
                "writer": self.writer,
            }
        )

    @classmethod
    def parse(cls, text: bytes) -> Footer:
        """What `text` has written.

        Raises:
            ValueError: it has not.
        """
        value, has_checksum = parse_sealed(text)
        try:
            footer = cls(
                table=_text(value["table"]),
                shard=Shard(_text(value["stream"]), _text(value["shard"])),
                after=None if value["after"] is None else position_of(value["after"]),
                upto=None if value["upto"] is None else position_of(value["upto"]),
                rows=_count(value["rows"]),
                next_day=None if value["next"] is None else parse_day(_text(value["next"])),
                writer=_text(value["writer"]),
                has_checksum=has_checksum,
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{error!r}") from error
        if footer.upto is None or footer.upto == footer.after:
            if footer.upto != footer.after or footer.rows:
                raise ValueError("its records end where they begin")
        elif footer.rows < 1 or (footer.after is not None and footer.upto < footer.after):
            raise ValueError("its records end before they begin")
        return footer


def _numbers(position: Position | None) -> list[Any] | None:
    return None if position is None else [position.sequence_number, position.sub_sequence_number]


def parse_day(text: str) -> date:
    """The day that `date.isoformat` has written.

    Raises:
        ValueError: it has not.
    """
    day = date.fromisoformat(text)
    if day.isoformat() != text:
        raise ValueError(f"{text}: no day")
    return day


def _count(value: Any) -> int:  # noqa: ANN401 - of JSON
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise TypeError(f"{value!r} is no number of rows")
    return value


def _text(value: Any) -> str:  # noqa: ANN401 - of JSON
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
