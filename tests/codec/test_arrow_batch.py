"""RecordBatch: the canonical schema, row access, slices, positions, and the rules of the PyCapsule interface."""

import datetime

import codec_helpers
import nanoarrow
import pyarrow as pa
import pytest
import reference
from fastkcl import _core

ROWS = [
    ('"aGVsbG8="', "k", "10", "null", "1700000000123"),
    ("null", "é😀", "9", "7", "null"),
    ('""', "", "11", "0", "-1"),
    ('"QQ=="', "x" * 300, "1" * 129, "null", "0"),
]
LINE = (
    '{"action":"processRecords","records":['
    + ",".join(
        f'{{"data":{data},"partitionKey":"{key}","sequenceNumber":"{number}",'
        f'"approximateArrivalTimestamp":{time},"subSequenceNumber":{sub},"action":"record"}}'
        for data, key, number, sub, time in ROWS
    )
    + '],"millisBehindLatest":42}'
).encode()
EMPTY = b'{"action":"processRecords","records":[],"millisBehindLatest":null}'


@pytest.fixture
def batch() -> _core.RecordBatch:
    return codec_helpers.batch_of(LINE)


def test_schema_is_the_canonical_one(batch: _core.RecordBatch) -> None:
    assert pa.schema(batch).equals(reference.SCHEMA, check_metadata=True)
    assert pa.record_batch(codec_helpers.batch_of(EMPTY)).schema.equals(reference.SCHEMA, check_metadata=True)
    named = [(field.name, str(field.type)) for field in pa.schema(batch)]
    assert list(_core.CANONICAL_COLUMNS.items()) == named


def test_columns_equal_reference(batch: _core.RecordBatch) -> None:
    arrow = pa.record_batch(batch)
    arrow.validate(full=True)
    assert arrow.equals(reference.record_batch(reference.read_daemon_line(LINE)["records"]))


def test_rows(batch: _core.RecordBatch) -> None:
    assert len(batch) == batch.num_rows == 4
    records = list(batch)
    assert [record.data for record in records] == [b"hello", None, b"", b"A"]
    assert [record.partition_key for record in records] == ["k", "é😀", "", "x" * 300]
    assert [record.sequence_number for record in records] == ["10", "9", "11", "1" * 129]
    assert [record.sub_sequence_number for record in records] == [None, 7, 0, None]
    assert [record.timestamp_millis for record in records] == [1700000000123, None, -1, 0]
    utc = datetime.UTC
    assert [record.approximate_arrival_timestamp for record in records] == [
        datetime.datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=utc),
        None,
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=utc),
        datetime.datetime(1970, 1, 1, tzinfo=utc),
    ]
    assert batch[-1].data == b"A"
    for index in (4, -5):
        with pytest.raises(IndexError):
            batch[index]


def test_times_beyond_datetime_overflow_but_keep_their_milliseconds() -> None:
    latest = (2**63 - 1) // 1000
    line = LINE.replace(b"1700000000123", str(latest).encode())
    record = codec_helpers.batch_of(line)[0]
    assert record.timestamp_millis == latest
    with pytest.raises(OverflowError):
        _ = record.approximate_arrival_timestamp


def test_attributes(batch: _core.RecordBatch) -> None:
    assert batch.millis_behind_latest == 42
    assert batch.shard_id is None
    assert batch.first_position == _core.Position("10")
    assert batch.last_position == _core.Position("1" * 129)
    assert 0 < batch.nbytes <= batch.capacity_bytes


def test_shard_id_comes_from_initialize() -> None:
    decoder = _core.Decoder()
    decoder.feed(LINE + b'\n{"action":"initialize","shardId":"shardId-000000000007"}\n' + LINE + b"\n")
    before, _, after = decoder
    assert isinstance(before, _core.ProcessRecords)
    assert isinstance(after, _core.ProcessRecords)
    assert (before.batch.shard_id, after.batch.shard_id) == (None, "shardId-000000000007")


def test_empty_batch() -> None:
    batch = codec_helpers.batch_of(EMPTY)
    assert len(batch) == 0
    assert list(batch) == []
    assert batch.first_position is None
    assert batch.last_position is None
    assert batch.millis_behind_latest is None
    assert pa.record_batch(batch).num_rows == 0


def test_no_batch_has_more_bytes_than_it_holds() -> None:
    """Empty ones neither, which have one offset a column, nor slices, nor those that aggregates are taken out of."""
    answer = b'{"Records":[{"Data":"QQ==","PartitionKey":"k","SequenceNumber":"1"}]}'
    batches = [
        codec_helpers.batch_of(EMPTY),
        codec_helpers.batch_of(LINE),
        _core.decode_get_records(b'{"Records":[]}', "application/x-amz-json-1.1").batch,
        _core.decode_get_records(answer, "application/x-amz-json-1.1").batch,
    ]
    batches += [_core.deaggregate(batch).batch for batch in batches]
    batches += [batch.slice(0, 0) for batch in batches] + [batch.canonical() for batch in batches]
    for batch in batches:
        assert 0 < batch.nbytes <= batch.capacity_bytes, batch
    for empty in (_core.message_batch([]), _core.stitch_batch([])):
        assert 0 < empty.nbytes <= empty.capacity_bytes


def test_position_of_a_batch_needs_a_decimal_number() -> None:
    batch = codec_helpers.batch_of(LINE.replace(b'"sequenceNumber":"10"', b'"sequenceNumber":"abc"'))
    assert batch[0].sequence_number == "abc"
    with pytest.raises(ValueError, match="abc"):
        _ = batch.first_position


@pytest.mark.parametrize(("offset", "length"), [(0, 4), (0, 0), (1, 2), (3, 1), (4, 0), (2, None), (4, None)])
def test_slice(batch: _core.RecordBatch, offset: int, length: int | None) -> None:
    part = batch.slice(offset, length)
    assert pa.record_batch(part).equals(pa.record_batch(batch).slice(offset, length))
    assert [record.sequence_number for record in part] == [row[2] for row in ROWS][offset:][:length]
    assert (part.shard_id, part.millis_behind_latest) == (batch.shard_id, batch.millis_behind_latest)
    if len(part):
        assert part.first_position == _core.Position(part[0].sequence_number, part[0].sub_sequence_number)
        assert part.slice(1).num_rows == len(part) - 1


@pytest.mark.parametrize(("offset", "length"), [(5, None), (5, 0), (0, 5), (3, 2), (2**62, 2**62)])
def test_slice_outside_the_batch(batch: _core.RecordBatch, offset: int, length: int | None) -> None:
    with pytest.raises(IndexError):
        batch.slice(offset, length)


def test_slice_of_a_slice(batch: _core.RecordBatch) -> None:
    assert pa.record_batch(batch.slice(1).slice(1, 2)).equals(pa.record_batch(batch).slice(2, 2))


def test_capsules_are_named_and_single_use(batch: _core.RecordBatch) -> None:
    """Arrow PyCapsule interface: names arrow_schema and arrow_array; a consumer moves the structure out."""
    schema, array = batch.__arrow_c_array__()
    assert '"arrow_schema"' in repr(schema)
    assert '"arrow_array"' in repr(array)
    assert pa.RecordBatch._import_from_c_capsule(schema, array).num_rows == 4
    with pytest.raises(pa.ArrowInvalid):
        pa.RecordBatch._import_from_c_capsule(schema, array)


def test_capsules_that_nobody_imports_are_released(batch: _core.RecordBatch) -> None:
    for _ in range(1000):
        batch.__arrow_c_schema__()
        batch.__arrow_c_array__()
    assert pa.record_batch(batch).num_rows == 4


def test_requested_schema_is_honoured_or_left_to_the_consumer(batch: _core.RecordBatch) -> None:
    """A producer may answer with its own types when it cannot convert; asking for what there is must work."""
    own = pa.record_batch(batch, schema=reference.SCHEMA)
    assert own.schema == reference.SCHEMA
    large = pa.schema([pa.field("data", pa.large_binary()), *list(reference.SCHEMA)[1:]])
    _, array = batch.__arrow_c_array__(large.__arrow_c_schema__())
    assert nanoarrow.c_array(array, batch.__arrow_c_schema__()).length == 4


def test_import_outlives_the_batch() -> None:
    batch = codec_helpers.batch_of(LINE)
    arrow = pa.record_batch(batch)
    record = batch[3]
    wanted = reference.record_batch(reference.read_daemon_line(LINE)["records"])
    del batch
    for seed in range(50):  # whatever is released now would be overwritten
        codec_helpers.batch_of(codec_helpers.batch_line(10, 500, seed=seed))
    assert arrow.equals(wanted)
    assert (record.data, record.partition_key) == (b"A", "x" * 300)


def test_batches_are_frozen(batch: _core.RecordBatch) -> None:
    for value in (batch, batch[0], _core.Position("1"), _core.decode_line(LINE)):
        with pytest.raises((AttributeError, TypeError)):
            value.extra = 1
    with pytest.raises(AttributeError):
        batch.millis_behind_latest = 1


def test_exported_memory_is_read_only(batch: _core.RecordBatch) -> None:
    """A consumer cannot change what another one sees."""
    assert not pa.record_batch(batch).column("data").buffers()[2].is_mutable
