"""The rows that a table gets, and its errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from fastkcl.masking import without_sent
from fastkcl.stdio import reports

if TYPE_CHECKING:
    from fastkcl import Position

__all__ = [
    "RECOVERY",
    "Files",
    "KeepsPositions",
    "MadeFiles",
    "Rows",
    "Shard",
    "SinkError",
    "WriteCancelledError",
    "in_one_line",
    "parse_json",
    "parse_own_json",
    "parse_sealed",
    "place",
    "sealed",
    "without_frames",
]

_SEAL = "sha256"

RECOVERY = "the remedy is in docs/recovery.md"
"""The end of an error about a table's damage."""


class SinkError(Exception):
    """A table is not as its own rules say, or cannot be written. `str()` says what, where and what to do."""


class WriteCancelledError(Exception):
    """Rows are no longer wanted: another worker has the shard's lease."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Whose positions a table keeps. Two streams can have shards of one name, so both are needed."""

    stream: str
    shard_id: str


class Rows(Protocol):
    """A contiguous run of a shard's records, not empty."""

    @property
    def num_rows(self) -> int:
        """Records, at least one."""

    @property
    def last_position(self) -> Position:
        """Of the last record."""

    def after(self, position: Position) -> Self | None:
        """The records after a position, None if there are none."""

    def check_wanted(self) -> None:
        """To be called right before the atomic step.

        Raises:
            WriteCancelledError: the rows are not wanted any more, so the step must not be taken.
        """


class Files(Protocol):
    """Rows on their way into Parquet files."""

    def columns(self) -> list[Any]:
        """Their columns, each as the JSON of a Delta table's schema has it, which is Spark's."""

    def write(self, folder: Path) -> None:
        """Write the rows into a folder, which is not there yet."""


@runtime_checkable
class MadeFiles(Files, Protocol):
    """Rows that another writer than pyarrow makes files of."""

    def with_columns(self, values: Mapping[str, str]) -> Files:
        """The same rows with more columns, each of one text."""


@runtime_checkable
class KeepsPositions(Protocol):
    """A sink whose table keeps positions. With it, a checkpoint after the table's position means a loss."""

    def give_up(self, upto: Position) -> None:
        """Note that the shard's records up to a position have been given up: they are in no table, and need not be.

        Raises:
            OSError: it cannot be written.
        """

    def given_up(self) -> Position | None:
        """Up to where records after the table's position have been given up.

        None if none have, or if the table has lost commits since.
        """

    def gone_on(self) -> bool:
        """Have the note of records given up follow the table: what it has by now is not excused if it is lost.

        Returns:
            Whether the note excuses records still, so that this is to be called before the next checkpoint.

        Raises:
            OSError: it cannot be read or written.
        """


def parse_json(text: bytes | str) -> Any:  # noqa: ANN401 - whatever a file says
    """The JSON of a file that anybody can have written.

    Raises:
        ValueError: it is none, nested too deeply, or has a number that is none (NaN).
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_own_json(text: bytes | str) -> Any:  # noqa: ANN401 - whatever a file says
    """The JSON of a file that a writer of ours makes, and that others can have damaged.

    Raises:
        ValueError: it is none, nested too deeply, names a key twice, or has a number that is none (NaN).
    """
    try:
        return json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def sealed(value: Mapping[str, Any]) -> bytes:
    """A JSON object with a checksum of its members, as a member of its own: one digit that changes is seen."""
    return json.dumps({**value, _SEAL: _digest(value)}).encode()


def parse_sealed(text: bytes | str) -> tuple[dict[str, Any], bool]:
    """The members of an object that `sealed` has made, or of one of an earlier version, which made no checksum.

    Returns:
        The members, and whether there is a checksum.

    Raises:
        ValueError: it is no object of `parse_own_json`, or its checksum is another one's.
    """
    value = parse_own_json(text)
    if not isinstance(value, dict):
        raise ValueError("no object")
    if _SEAL not in value:
        return value, False
    found = value.pop(_SEAL)
    if found != _digest(value):
        raise ValueError(f"it is not what its {_SEAL} was made of")
    return value, True


def _digest(value: Mapping[str, Any]) -> str:
    """Of the members, whatever their order and the spaces between them."""
    try:
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it names a key twice")
    return found


def _no_number(name: str) -> Any:  # noqa: ANN401 - it returns nothing
    raise ValueError(f"{name} is no number of it")


def place(position: Position) -> str:
    """A position for people: ``sequence number/sub-sequence number``, or the first alone in the legacy dialect."""
    sub = position.sub_sequence_number
    return position.sequence_number if sub is None else f"{position.sequence_number}/{sub}"


def without_frames(error: BaseException | str) -> str:
    """The message of an error, without a secret that a server repeats; of one out of a JVM, without its stack."""
    try:
        text = str(error)
    except Exception as failure:  # an exception of py4j asks the JVM for its text, which may have died of it
        text = f"{type(error).__name__}, whose text cannot be had: {reports.describe(failure)}"
    return without_sent(re.sub(r"(?<!\s)\s+(at \S+\(|JVM stacktrace:).*", "", text, flags=re.DOTALL))


def in_one_line(error: BaseException) -> str:
    """``SomeError: its message``, for the log: a daemon copies it line by line. No secret that a server repeats."""
    return " ".join(without_frames(reports.describe(error)).split())
