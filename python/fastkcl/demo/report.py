"""The results of the demo: each shard, its faults, and the time and CPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["CountryRow", "DemoReport", "DemoShard", "Event", "Lake", "LakeReader", "ShardWork", "Step"]

_MEGABYTE: Final = 1e6


@dataclass(slots=True)
class DemoShard:
    """The fate of a shard's records."""

    shard_id: str
    sent: int
    again: int
    """Records delivered once more, as no checkpoint had covered them when a child died."""
    stored: int
    """Rows in the table."""
    lost: int
    """Records sent of which there is no row."""
    doubled: int
    """Rows beyond the first of a record."""
    same_content: bool
    """Whether the checksum over all columns is that of the sent records."""
    checkpoints: int

    @property
    def ok(self) -> bool:
        """Whether every record is there once, unchanged."""
        return self.lost == 0 and self.doubled == 0 and self.same_content


@dataclass(slots=True)
class Event:
    """Something that was done on purpose while the children worked."""

    seconds: float
    """Since the children were started."""
    what: str


@dataclass(slots=True)
class ShardWork:
    """The metrics of a shard's children; of one that was killed, its last line before."""

    shard_id: str
    processes: int
    writes: int
    write_failures: int
    written_bytes: int
    """Of the Arrow columns."""
    dropped: int
    """Records that came again and were in the table already."""
    seconds: float
    """From the beginning of each process' dialogue to its end."""
    write_seconds: float
    """In writes, those that failed and the wait for another Spark included."""
    processing_seconds: float
    """In which the daemon waited for more than decoding: for room in the buffer, at the end for the last write."""


@dataclass(slots=True)
class Step:
    """A step of the way and its cost."""

    name: str
    seconds: float
    bytes: int | None = None
    """The bytes that went through; None where that makes no sense."""

    @property
    def megabytes_per_second(self) -> float | None:
        """In units of 10**6 bytes."""
        return self.bytes / self.seconds / _MEGABYTE if self.bytes and self.seconds > 0 else None


@dataclass(slots=True)
class CountryRow:
    """A row of the aggregate over the payloads."""

    country: str
    events: int
    purchases: int
    revenue: float


@dataclass(slots=True)
class LakeReader:
    """What a reader finds in the table on S3."""

    name: str
    rows: int
    distinct: int
    """Different (shard, sequence number, sub-sequence number)."""
    revenue: float


@dataclass(slots=True)
class Lake:
    """The table on S3 that the children wrote themselves."""

    url: str
    sent: int
    readers: list[LakeReader]
    problems: list[str] = field(default_factory=list)
    """The children's breaches of the protocol."""
    output: list[str] = field(default_factory=list)
    """The last lines that the children wrote."""

    @property
    def ok(self) -> bool:
        """Whether each reader finds each record once."""
        return not self.problems and all(each.rows == each.distinct == self.sent for each in self.readers)


@dataclass(slots=True)
class DemoReport:
    """The results of the demo."""

    shards: list[DemoShard]
    events: list[Event]
    work: list[ShardWork]
    steps: list[Step]
    countries: list[CountryRow]
    total_seconds: float
    java: str
    table: Path | None
    """Where the table was left; None if it has been removed."""
    lake: Lake | None = None
    """The table on S3; None without the extras that it needs."""
    problems: list[str] = field(default_factory=list)
    """The children's breaches of the protocol."""
    output: list[str] = field(default_factory=list)
    """The last lines that children and JVM wrote, if something is wrong."""

    @property
    def ok(self) -> bool:
        """Whether nothing is missing, doubled or changed, and every child kept the protocol."""
        lake = self.lake is None or self.lake.ok
        return lake and not self.problems and all(shard.ok for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON knows."""
        rates = [asdict(step) | {"megabytes_per_second": step.megabytes_per_second} for step in self.steps]
        table = None if self.table is None else str(self.table)
        return {"ok": self.ok, **asdict(self), "steps": rates, "table": table}
