"""Tables that a worker writes itself, on both kinds of storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
from fastkcl import Position, _core
from fastkcl.local_aws import LocalAws
from fastkcl.tables import ParquetTable, S3Storage, Shard
from fastkcl.tables.folders import unspelled
from fastkcl.tables.rows import ShardRows
from fastkcl.tables.store import Store
from local_aws_helpers import new_name
from sink_helpers import STEPS, Kind, Record

DAY = 86_400_000
NOON = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
"""Milliseconds."""


class Place:
    """Somewhere for a table.

    Args:
        url: of the table.
        storage: how S3 is reached; None for a folder.
    """

    def __init__(self, url: str, storage: S3Storage | None = None) -> None:
        self.url = url
        self.storage = storage

    def table(self, **options: Any) -> ParquetTable:
        """A writer's own, as each process has one."""
        return ParquetTable(self.url, storage=self.storage, **options)

    @property
    def store(self) -> Store:
        return self.table()._store

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which another process reaches it."""
        if self.storage is None:
            return {"TABLE_URL": self.url}
        assert self.storage.endpoint is not None
        assert self.storage.access_key is not None
        return {
            "TABLE_URL": self.url,
            "FASTKCL_S3_ENDPOINT": self.storage.endpoint,
            "AWS_ACCESS_KEY_ID": self.storage.access_key,
            "AWS_SECRET_ACCESS_KEY": self.storage.access_key,
            "AWS_REGION": "us-east-1",
        }

    def files(self) -> list[str]:
        """Data files, from the table on, in the order of the chain of each shard."""
        return sorted(path.removeprefix(self._root()).lstrip("/") for path in self._paths())

    def read(self) -> pa.Table:
        """What a reader sees."""
        if not self._paths():
            return pa.table({})
        partitioning = pa.dataset.partitioning(
            pa.schema([("stream", pa.string()), ("shard", pa.string()), ("date", pa.string())]), flavor="hive"
        )
        return pa.dataset.dataset(
            self._root(), filesystem=self._system(), format="parquet", partitioning=partitioning
        ).to_table()

    def numbers(self) -> list[int]:
        """Sequence numbers, in order."""
        table = self.read()
        return sorted(map(int, table["sequenceNumber"].to_pylist())) if table.num_columns else []

    def records(self) -> Counter[Record]:
        """As `sink_helpers.records_of` has them."""
        table = self.read()
        if not table.num_columns:
            return Counter()
        names = ("stream", "shard", "sequenceNumber", "subSequenceNumber", "data")
        columns = [table[name].to_pylist() for name in names]
        columns[:2] = [list(map(unspelled, column)) for column in columns[:2]]
        return Counter(zip(*columns, strict=True))

    def days(self) -> dict[str, list[int]]:
        """Numbers of each day's folder that has some."""
        found: dict[str, list[int]] = {}
        table = self.read()
        for day, number in zip(table["date"].to_pylist(), table["sequenceNumber"].to_pylist(), strict=True):
            found.setdefault(day, []).append(int(number))
        return {day: sorted(numbers) for day, numbers in sorted(found.items())}

    def _root(self) -> str:
        return self.url.removeprefix("s3://")

    def _system(self) -> Any:
        if self.storage is None:
            return pa.fs.LocalFileSystem()
        return pa.fs.S3FileSystem(
            endpoint_override=self.storage.endpoint,
            access_key=self.storage.access_key,
            secret_key=self.storage.secret_key,
            region="us-east-1",
        )

    def _paths(self) -> list[str]:
        selector = pa.fs.FileSelector(self._root(), recursive=True, allow_not_found=True)
        return [each.path for each in self._system().get_file_info(selector) if each.path.endswith(".parquet")]


def posix_place(folder: Path) -> Place:
    return Place(str(folder / "table"))


def s3_place(aws: LocalAws) -> Place:
    """In a new bucket."""
    bucket = new_name("lake")
    aws.client("s3").create_bucket(Bucket=bucket)
    url = aws.url
    return Place(f"s3://{bucket}/team/clicks", S3Storage(endpoint=url, access_key="local", secret_key="local"))


def arrived(
    numbers: Sequence[int], times: Sequence[int | None] | int = NOON, *, legacy: bool = False, subs: Sequence[int] = ()
) -> ShardRows:
    """Rows of a batch with these sequence numbers, which arrived then (milliseconds)."""
    return ShardRows([arrived_batch(numbers, times, subs=subs)], legacy=legacy)


def arrived_batch(
    numbers: Sequence[int],
    times: Sequence[int | None] | int = NOON,
    *,
    data: Sequence[bytes] | None = None,
    subs: Sequence[int] = (),
) -> _core.RecordBatch:
    """A batch with these sequence numbers, which arrived then (milliseconds)."""
    each = [times] * len(numbers) if isinstance(times, int) else list(times)
    line = _core.encode_process_records(
        list(data) if data is not None else [str(number).encode() for number in numbers],
        ["key"] * len(numbers),
        [str(number) for number in numbers],
        list(subs) or [0] * len(numbers),
        each,
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


class TableSink:
    """A ParquetTable, called as sinks are.

    Args:
        folder: of the table.
    """

    def __init__(self, folder: Path) -> None:
        self.table = ParquetTable(folder)

    @property
    def _id(self) -> str | None:
        return self.table._id

    def open(self, shard: Shard) -> Position | None:
        return self.table.open(shard)

    def write(self, rows: ShardRows, _: object) -> Position:
        return self.table.append(rows, as_they_are)


TABLE = Kind(
    TableSink,
    STEPS,
    rows=lambda first, last: arrived(
        range(first, last + 1), [NOON + number // 4 * DAY for number in range(first, last + 1)]
    ),
    records=lambda folder: posix_place(folder.parent).records(),
    inspect=None,
)
"""Four records a day, so that runs cross into another one."""


def as_they_are(rows: ShardRows) -> pa.Table:
    """The table that is written without a transformation."""
    return rows.table()
