"""Checks that the demo's table has each sent record, once and unchanged.

The records are counted twice, by separate code: Python counts those of the replayer, Spark those of the table.

    records     rows, and distinct (sequence number, sub-sequence number), of each shard
    content     the sum of a CRC-32 over each record: key, position, time, and every field of the payload
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastkcl.demo.report import CountryRow, DemoShard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fastkcl.replay.columns import Columns

__all__ = ["Delivered", "SentShard", "compare", "countries", "sent_shard"]

# The prices have two decimals. In hundredths, rounded by the same arithmetic on both sides, they are integers: Python
# and Java do not write every floating point number with the same digits.
_FIELDS: Final = (
    *("event_id", "type", "ts", "user_id", "session_id", "country", "page.path", "page.referrer", "page.load_ms"),
    *("device.agent", "device.width", "device.height", "item.sku", "item.price", "item.quantity"),
    *("experiment", "consent"),
)
_COUNT: Final = """
SELECT shard,
       count(*) AS stored,
       count(DISTINCT sequenceNumber, subSequenceNumber) AS distinct_records,
       sum(crc32(cast(concat_ws('/', sequenceNumber, subSequenceNumber, partitionKey,
                                unix_millis(approximateArrivalTimestamp), {fields}) AS binary))) AS checksum
FROM stored
GROUP BY shard
""".format(
    fields=", ".join("cast(item.price * 100 + 0.5 AS bigint)" if field == "item.price" else field for field in _FIELDS)
)
_COUNTRIES: Final = """
SELECT country,
       count(*) AS events,
       count_if(type = 'purchase') AS purchases,
       sum(if(type = 'purchase', item.price * item.quantity, 0)) AS revenue
FROM stored
GROUP BY country
ORDER BY events DESC, country
"""


@dataclass(frozen=True, slots=True)
class SentShard:
    """The expected content of a shard's part of the table."""

    records: int
    checksum: int
    """Sum of the records' CRC-32, as `_COUNT` does it."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The deliveries of a shard to its children, beside its records."""

    again: int
    """Records that came once more."""
    checkpoints: int


def sent_shard(columns: Columns) -> SentShard:
    """Count and check records whose payloads are the demo's events."""
    rows = zip(
        columns.sequence_numbers,
        columns.sub_sequence_numbers,
        columns.partition_keys,
        columns.timestamps_millis,
        columns.data,
        strict=True,
    )
    checksum = 0
    for *head, data in rows:
        event = json.loads(data or b"")
        fields = (_text(field, event) for field in _FIELDS)
        checksum += zlib.crc32("/".join([*map(str, head), *fields]).encode())
    return SentShard(len(columns), checksum)


def _text(field: str, event: dict[str, Any]) -> str:
    value: Any = event
    for name in field.split("."):
        value = value[name]
    if field == "item.price":
        value = int(value * 100 + 0.5)
    return str(value).lower() if isinstance(value, bool) else str(value)


def compare(
    spark: SparkSession, table: Path, sent: Mapping[str, SentShard], delivered: Mapping[str, Delivered]
) -> list[DemoShard]:
    """Compare each shard's rows with the sent records.

    Args:
        spark: a session of the machine that has the table.
        table: its folder; the view ``stored`` is made of it.
        sent: by shard id.
        delivered: by shard id.
    """
    rows: dict[str, Any] = {}
    if any(table.rglob("*.parquet")):
        # The option is Spark's own for tables: a path is a path, not a pattern, whatever characters it has.
        frame = spark.read.option("__globPaths__", "false").parquet(str(table.absolute()))
        frame.createOrReplaceTempView("stored")
        rows = {row["shard"]: row for row in spark.sql(_COUNT).collect()}
    found = []
    for shard_id, expected in sent.items():
        row, way = rows.get(shard_id), delivered[shard_id]
        stored = row["stored"] if row else 0
        distinct = row["distinct_records"] if row else 0
        found.append(
            DemoShard(
                shard_id=shard_id,
                sent=expected.records,
                again=way.again,
                stored=stored,
                lost=expected.records - distinct,
                doubled=stored - distinct,
                same_content=(row["checksum"] if row else 0) == expected.checksum,
                checkpoints=way.checkpoints,
            )
        )
    return found


def countries(spark: SparkSession) -> list[CountryRow]:
    """An aggregate over typed columns of the view that `compare` has made."""
    return [CountryRow(*row) for row in spark.sql(_COUNTRIES).collect()]
