"""From Python objects to the canonical columns: the last step of every peer, and of the child that plays one."""

from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    {
        "data": pa.binary(),
        "partitionKey": pa.string(),
        "sequenceNumber": pa.string(),
        "subSequenceNumber": pa.int64(),
        "approximateArrivalTimestamp": pa.timestamp("us", tz="UTC"),
    }
)
"""The canonical columns, written again, so that results are compared with another list than ours."""
_MILLIS = pa.timestamp("ms", tz="UTC")


def to_arrow(data: Any, keys: Any, sequence_numbers: Any, sub_sequence_numbers: Any, millis: Any) -> pa.RecordBatch:
    """One array a column; times go through ms so that nothing is multiplied in Python."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(data, pa.binary()),
            pa.array(keys, pa.string()),
            pa.array(sequence_numbers, pa.string()),
            pa.array(sub_sequence_numbers, pa.int64()),
            pa.array(millis, _MILLIS).cast(SCHEMA.field("approximateArrivalTimestamp").type),
        ],
        schema=SCHEMA,
    )


def kclpy_records_to_arrow(records: Any) -> pa.RecordBatch:
    """Makes columns as a user of amazon_kclpy does: reads each record's properties."""
    return to_arrow(
        [record.binary_data for record in records],
        [record.partition_key for record in records],
        [record.sequence_number for record in records],
        [record.sub_sequence_number for record in records],
        [record.timestamp_millis for record in records],
    )
