"""The result of every source: shards, each with records and a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from fastkcl._core import Position
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.columns import RecordSequence


class SourceError(ValueError):
    """The input of a replay cannot be used; the message names the place."""


@dataclass(frozen=True, slots=True)
class Deliver:
    """A processRecords request with records `start` up to `stop` of the shard.

    Attributes:
        line: the captured bytes, LF included; None to encode it.
        millis_behind_latest: None to work it out.
        errors: errors for the checkpoints asked for in it, by rank; None where there is none.
    """

    start: int
    stop: int
    line: bytes | None = None
    millis_behind_latest: int | None = None
    errors: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request without records. `errors` as in `Deliver`."""

    request: Literal["leaseLost", "shardEnded", "shutdownRequested"]
    errors: tuple[str | None, ...] = ()


Step: TypeAlias = Deliver | Ask


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard to be played.

    Attributes:
        shard_id: e.g. ``shardId-000000000000``.
        label: its name in reports: the shard id, or the captured file's name.
        records: all of its records.
        steps: the script; None for "all records in batches, and an end as the options say".
        batch_records: records of one batch where the script is None.
        start: the lease's first position.
        dialect: of a captured script, None if any will do.
        stream: of the shard; None for that of the options.
    """

    shard_id: str
    label: str
    records: RecordSequence
    steps: tuple[Step, ...] | None = None
    batch_records: int = 1000
    start: Position = Position.TRIM_HORIZON
    dialect: ReplayDialect | None = None
    stream: str | None = None


class Source(Protocol):
    """Something that has shards to play."""

    @property
    def description(self) -> str:
        """For people, e.g. ``profile clickstream``."""
        ...

    def shards(self) -> Sequence[Shard]:
        """Open it.

        Raises:
            SourceError: it cannot be used.
        """
        ...
