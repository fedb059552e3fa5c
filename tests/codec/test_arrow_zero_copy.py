"""Arrow libraries import a batch without copying it: the payloads' buffer is at the same address for all of them."""

import hashlib

import arro3.core
import codec_helpers
import duckdb
import nanoarrow
import polars
import pyarrow as pa
import pytest
from fastkcl import _core

RECORDS = 500
PAYLOAD_BYTES = 700
COLUMNS = ["data", "partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp"]


@pytest.fixture
def batch() -> _core.RecordBatch:
    return codec_helpers.batch_of(codec_helpers.batch_line(RECORDS, PAYLOAD_BYTES))


def addresses(array: pa.Array) -> list[int | None]:
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


@pytest.fixture
def data_address(batch: _core.RecordBatch) -> int:
    """Where the codec put the payloads, by nanoarrow's plain look at the C structures."""
    return nanoarrow.c_array(batch).child(0).buffers[2]


def test_two_exports_are_the_same_memory(batch: _core.RecordBatch) -> None:
    first, second = pa.record_batch(batch), pa.record_batch(batch)
    for name in COLUMNS:
        assert addresses(first.column(name)) == addresses(second.column(name)), name


def test_pyarrow_copies_nothing(batch: _core.RecordBatch, data_address: int) -> None:
    arrow = pa.record_batch(batch)
    assert arrow.column("data").buffers()[2].address == data_address
    raw = nanoarrow.c_array(batch)
    for index, name in enumerate(COLUMNS):
        raw_addresses = [address or None for address in raw.child(index).buffers]
        assert addresses(arrow.column(name)) == raw_addresses, name


def test_nanoarrow_copies_nothing(batch: _core.RecordBatch) -> None:
    arrow = pa.record_batch(batch)
    imported = nanoarrow.c_array(batch)
    assert imported.length == RECORDS
    assert imported.child(0).buffers[2] == arrow.column("data").buffers()[2].address
    assert imported.child(0).view().buffer(2).size_bytes == RECORDS * PAYLOAD_BYTES


def test_arro3_copies_nothing(batch: _core.RecordBatch, data_address: int) -> None:
    imported = arro3.core.RecordBatch.from_arrow(batch)
    assert imported.num_rows == RECORDS
    assert nanoarrow.c_array(imported).child(0).buffers[2] == data_address


def test_polars_takes_the_payload_buffer_as_it_is(batch: _core.RecordBatch, data_address: int) -> None:
    """Polars' binary type has views: it makes those (16 bytes a row) and keeps the payloads where they are."""
    frame = polars.DataFrame(batch)
    assert frame.columns == COLUMNS
    exported = pa.table(frame).column("data").chunk(0)
    assert exported.type == pa.binary_view()
    assert exported.buffers()[2].address == data_address
    assert frame["data"].to_list() == [record.data for record in batch]


def test_duckdb_gives_equal_results(batch: _core.RecordBatch) -> None:
    """Straight from the capsule, and through pyarrow. DuckDB takes that of a stream; of an array since 2.0."""
    connection = duckdb.connect()
    arrays = not duckdb.__version__.startswith("1.")
    connection.register("direct", batch if arrays else pa.RecordBatchReader.from_stream(pa.table(batch)))
    connection.register("through_pyarrow", pa.table(batch))
    rows = "string_agg(hex(data), '' order by cast(sequenceNumber as integer))"
    query = f"select count(*), sum(octet_length(data)), md5({rows}) from "
    joined = "".join(record.data.hex().upper() for record in batch if record.data is not None)
    expected = [(RECORDS, RECORDS * PAYLOAD_BYTES, hashlib.md5(joined.encode()).hexdigest())]
    assert connection.sql(query + "direct").fetchall() == expected
    assert connection.sql(query + "through_pyarrow").fetchall() == expected
    connection.close()


def test_slice_copies_nothing(batch: _core.RecordBatch, data_address: int) -> None:
    part = pa.record_batch(batch.slice(100, 50))
    assert part.num_rows == 50
    assert part.equals(pa.record_batch(batch).slice(100, 50))
    buffer = part.column("data").buffers()[2]
    assert data_address <= buffer.address < data_address + RECORDS * PAYLOAD_BYTES
