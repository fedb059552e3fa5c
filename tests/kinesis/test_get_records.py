"""`decode_get_records`: JSON answers as botocore reads them; errors with their places; where a body ends."""

import base64
import json
from typing import Any

import answer_helpers
import pyarrow as pa
import pytest
from answer_helpers import as_botocore, by_botocore
from fastkcl import DecodeError, _core
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.failures import NotKinesisError, check_records
from hypothesis import example, given
from hypothesis import strategies as st

CHILD = {
    "ShardId": "shardId-000000000002",
    "ParentShards": ["shardId-000000000000", "shardId-000000000001"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
}


def record(number: int = 1, data: bytes = b"hello", **others: object) -> dict[str, Any]:
    return {
        "SequenceNumber": str(number),
        "ApproximateArrivalTimestamp": 1748736000.123,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "key",
        **others,
    }


def body_of(*records: dict[str, Any], **others: object) -> bytes:
    return json.dumps({"Records": records, **others}).encode()


def test_an_answer_as_the_service_writes_it() -> None:
    body = (
        b'{"MillisBehindLatest":2100,"NextShardIterator":"AAAAAAAAAAHsW8zCWf9164uy8Epue6WS3w6wmj4a4USt+CNvMd6uXQ==",'
        b'"Records":[{"Data":"XzxkYXRhPl8w","PartitionKey":"partitionKey","ApproximateArrivalTimestamp":1.441215410867E9,'
        b'"SequenceNumber":"21269319989652663814458848515492872193"}]}'
    )
    answer = _core.decode_get_records(body, shard_id="shardId-000000000000")
    assert answer.batch.shard_id == "shardId-000000000000"
    assert answer.millis_behind_latest == answer.batch.millis_behind_latest == 2100
    assert answer.batch[0].data == b"_<data>_0"
    assert answer.batch[0].timestamp_millis == 1_441_215_410_867
    assert body[slice(*answer.records_span)].startswith(b'[{"Data"')
    assert json.loads(body[slice(*answer.records_span)]) == json.loads(body)["Records"]
    assert as_botocore(answer) == by_botocore(body)


def test_a_row_s_values_in_one_call_are_those_of_its_record() -> None:
    inner = _core.Aggregate()
    inner.add("a", b"1", explicit_hash_key="7")
    inner.add("b", b"2")
    records = [record(1, inner.encode(), EncryptionType="KMS"), record(2, Data=None), {**record(3), "Data": ""}]
    batch = _core.deaggregate(_core.decode_get_records(body_of(*records)).batch).batch
    assert [_core.record_metadata(batch, row) for row in range(-4, 4)] == 2 * [
        (
            each.partition_key,
            each.explicit_hash_key,
            each.sequence_number,
            each.sub_sequence_number,
            each.approximate_arrival_timestamp,
            each.encryption_type,
        )
        for each in batch
    ]
    assert _core.record_metadata(batch, 0)[1] == "7"
    for row in (-5, 4):
        with pytest.raises(IndexError, match=f"record {row} of a batch of 4"):
            _core.record_metadata(batch, row)


def test_a_row_s_time_beyond_datetime_in_one_call() -> None:
    batch = _core.decode_get_records(body_of(record(ApproximateArrivalTimestamp=2e12))).batch
    with pytest.raises(OverflowError, match="use timestamp_millis"):
        _core.record_metadata(batch, 0)


def test_payloads_ahead() -> None:
    payloads = [b"a" * 3, b"b" * 3, b"", b"c" * 100, b"d"]
    batch = _core.decode_get_records(body_of(*(record(n, data) for n, data in enumerate(payloads)))).batch
    for first in range(7):
        for most in range(120):
            ahead = _core.payloads_from(batch, first, most)[::-1]
            assert ahead == payloads[first : first + len(ahead)]
            assert bool(ahead) == (first < len(payloads))
            whole = len(ahead) == len(payloads[first:])
            assert sum(map(len, ahead)) <= most or len(ahead) == 1
            assert whole or sum(map(len, payloads[first : first + len(ahead) + 1])) > most
    null = _core.decode_get_records(body_of(record(Data=None))).batch
    assert _core.payloads_from(null, 0, 10) == [b""]


def test_columns_of_an_answer() -> None:
    batch = _core.decode_get_records(body_of(record(1, EncryptionType="KMS"), record(2))).batch
    table = pa.record_batch(batch)
    assert table.schema.names == [
        "data",
        "partitionKey",
        "sequenceNumber",
        "subSequenceNumber",
        "approximateArrivalTimestamp",
        "encryptionType",
    ]
    table.validate(full=True)
    assert table["encryptionType"].to_pylist() == ["KMS", None]
    assert table["subSequenceNumber"].to_pylist() == [None, None]
    message = _core.decode_line(b'{"action":"processRecords","records":[]}')
    assert isinstance(message, _core.ProcessRecords)
    canonical = pa.record_batch(batch.canonical())
    assert canonical.schema == pa.record_batch(message.batch).schema
    assert canonical.equals(table.select(canonical.schema.names))
    assert pa.record_batch(batch.slice(1))["encryptionType"].to_pylist() == [None]


TEXTS = {
    "no_records": body_of(),
    "end_of_shard": body_of(NextShardIterator=None, ChildShards=[CHILD, {**CHILD, "ParentShards": []}]),
    "iterator": body_of(record(), NextShardIterator="a/b+c\u00e9\U0001f600", MillisBehindLatest=0),
    "unknown_members": body_of(record(New={"a": [1, None]}), New=[{"x": "\ud800"}], ChildShards=[{**CHILD, "New": 1}]),
    "null_and_missing": body_of(
        record(ApproximateArrivalTimestamp=None, EncryptionType=None, Data=None),
        {"SequenceNumber": "2", "Data": "", "PartitionKey": ""},
        MillisBehindLatest=None,
        ChildShards=None,
    ),
    "encryption": body_of(*(record(n, EncryptionType=("NONE", "KMS", "\u00e9")[n % 3]) for n in range(10))),
    "pretty": json.dumps({"Records": [record(n) for n in range(3)]}, indent=1).replace("\n", "\r\n").encode(),
    "escaped_names": body_of(record()).replace(b'"Data"', b'"D\\u0061ta"').replace(b'"Records"', b'"\\u0052ecords"'),
    "escaped_base64": body_of(record(data=b"\xff\xff\xff")).replace(b"////", b"\\/\\/\\/\\/"),
    "duplicates": (
        b'{"Records":[{"Data":"QQ==","PartitionKey":"a","SequenceNumber":"1","EncryptionType":"KMS"}],"Records":'
        b'[{"Data":"QQ==","Data":"Qg==","PartitionKey":"a","PartitionKey":"b","SequenceNumber":"1","SequenceNumber":"2",'
        b'"EncryptionType":"KMS","EncryptionType":"NONE"}],"NextShardIterator":"a","NextShardIterator":"b"}'
    ),
    "large_data": body_of(record(1, bytes(range(256)) * 3000), record(2), record(3, b"x" * 700_000), record(4)),
    "many": body_of(*(record(n, b"%d" % n * (n % 50)) for n in range(3000)), NextShardIterator="next"),
}


@pytest.mark.parametrize("body", TEXTS.values(), ids=TEXTS)
def test_answers_are_what_botocore_reads(body: bytes) -> None:
    answer = _core.decode_get_records(body)
    assert as_botocore(answer) == by_botocore(body)
    span = json.loads(body[slice(*answer.records_span)])
    assert span == json.loads(body)["Records"]


@pytest.mark.parametrize(
    "time",
    [
        "1748736000.123",
        "1.748736000123E9",
        "1.748736000123e+9",
        "1748736000",
        "1748736000.1234565",
        "1748736000.123456789",
        "17487360001234567890e-10",
        "0.0000005",
        "0",
        "-0.5",
        "-86400",
        "1e3",
        "253402300799.999",
        "99999999999",
        "1.5E-7",
    ],
)
def test_times_are_what_botocore_reads(time: str) -> None:
    body = body_of(record()).replace(b"1748736000.123", time.encode())
    assert as_botocore(_core.decode_get_records(body)) == by_botocore(body)


def spaced(text: str, space: str) -> str:
    return text.replace(",", f",{space}").replace(":", f"{space}:").replace("]", f"{space}]")


@pytest.mark.parametrize("space", ["", " ", "\r\n\t "])
def test_the_end_of_the_body_may_fall_anywhere(space: str) -> None:
    """The last bytes of a body are parsed in a copy: every length after every position."""
    head = '{"a":12345,"Records":[' + spaced('{"Data":"QUJD","PartitionKey":"key","SequenceNumber":"11"}', space)
    middle = "," + spaced('{"ApproximateArrivalTimestamp":12345678.125,"Data":"QUI=",', space)
    tail = '"PartitionKey":"a\\u00e9","SequenceNumber":"22"}]' + spaced(',"MillisBehindLatest":123456', space) + "}"
    text = head + middle + tail
    expected = by_botocore(text.encode())
    for length in range(130):
        for filler in (
            text + " " * length,
            text[:-1] + f',"x":"{"y" * length}"}}',
            '{"x":' + "7" * (length + 1) + "," + text[1:],
        ):
            assert as_botocore(_core.decode_get_records(filler.encode())) == expected, filler


def test_every_prefix_of_an_answer_is_refused() -> None:
    body = body_of(record(1), record(2, EncryptionType="KMS"), MillisBehindLatest=12, ChildShards=[CHILD])
    for end in range(len(body)):
        with pytest.raises(DecodeError) as caught:
            _core.decode_get_records(body[:end])
        assert (caught.value.kind, caught.value.offset) == ("json", end)
        assert "the answer ended inside a value" in str(caught.value)


ERRORS: dict[str, tuple[bytes, str, str | None, int | None, int]] = {
    "empty": (b"", "json", None, None, 0),
    "html": (b"<html>", "json", None, None, 0),
    "array": (b"[]", "not_an_object", None, None, 0),
    "no_records": (b'{"MillisBehindLatest":1}', "missing_field", "Records", None, 23),
    "records_null": (b'{"Records":null}', "wrong_type", "Records", None, 11),
    "record_null": (b'{"Records":[null]}', "wrong_type", "Records", 0, 12),
    "no_data": (b'{"Records":[{"PartitionKey":"k","SequenceNumber":"1"}]}', "missing_field", "Data", 0, 52),
    "no_key": (b'{"Records":[{"Data":"","SequenceNumber":"1"}]}', "missing_field", "PartitionKey", 0, 43),
    "no_sequence": (b'{"Records":[{"Data":"","PartitionKey":"1"}]}', "missing_field", "SequenceNumber", 0, 41),
    "data_number": (b'{"Records":[{"Data":1}]}', "wrong_type", "Data", 0, 20),
    "base64": (b'{"Records":[{"Data":"QUJ!"}]}', "base64", "Data", 0, 24),
    "time_text": (
        b'{"Records":[{"ApproximateArrivalTimestamp":"2025-06-01"}]}',
        "wrong_type",
        "ApproximateArrivalTimestamp",
        0,
        43,
    ),
    "time_range": (
        b'{"Records":[{"ApproximateArrivalTimestamp":1e30}]}',
        "out_of_range",
        "ApproximateArrivalTimestamp",
        0,
        43,
    ),
    "encryption": (b'{"Records":[{"EncryptionType":1}]}', "wrong_type", "EncryptionType", 0, 30),
    "iterator": (b'{"NextShardIterator":1}', "wrong_type", "NextShardIterator", None, 21),
    "iterator_half_pair": (b'{"NextShardIterator":"\\ud800"}', "lone_surrogate", "NextShardIterator", None, 22),
    "millis": (b'{"MillisBehindLatest":1.5}', "wrong_type", "MillisBehindLatest", None, 22),
    "child_shards": (b'{"ChildShards":{}}', "wrong_type", "ChildShards", None, 15),
    "child_shard": (b'{"ChildShards":[{"ShardId":null}]}', "wrong_type", "ShardId", None, 27),
    "child_shard_range": (
        b'{"ChildShards":[{"HashKeyRange":{"StartingHashKey":"-1"}}]}',
        "out_of_range",
        "StartingHashKey",
        None,
        51,
    ),
    "child_shard_missing": (b'{"ChildShards":[{"ShardId":"a"}]}', "missing_field", "ParentShards", None, 30),
    "utf8": (b'{"Records":[],"x":"\xff"}', "utf8", None, None, 19),
    "line_feed": (b'{"Records":[{"Data":"QUJD\nQUJD"}]}', "json", None, None, 25),
    "more": (b'{"Records":[]}{}', "json", None, None, 14),
    "deep": (b'{"x":' + b"[" * 128, "depth", None, None, 132),
}


@pytest.mark.parametrize(("body", "kind", "field", "index", "offset"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("filler", [b"", b'"first":"%s",' % (b"y" * 1000)], ids=["short", "long"])
def test_errors_name_their_place(
    body: bytes, kind: str, field: str | None, index: int | None, offset: int, filler: bytes
) -> None:
    if filler and body.startswith(b'{"'):
        body, offset = b"{" + filler + body[1:], offset + len(filler)
    with pytest.raises(DecodeError) as caught:
        _core.decode_get_records(body)
    error = caught.value
    assert (error.kind, error.field, error.record, error.offset) == (kind, field, index, offset), error
    assert error.context in body


def test_an_error_in_a_later_record() -> None:
    body = body_of(*(record(n) for n in range(2000)), {**record(2000), "Data": "QQ="})
    with pytest.raises(DecodeError) as caught:
        _core.decode_get_records(body)
    assert (caught.value.kind, caught.value.record, caught.value.reason) == ("base64", 2000, "truncated")
    assert body[: caught.value.offset].endswith(b'"QQ=')


def test_after_an_error_the_next_answer_is_as_if_nothing_had_been() -> None:
    for _ in range(3):
        with pytest.raises(DecodeError):
            _core.decode_get_records(body_of(record(), record(), {}))
        assert len(_core.decode_get_records(body_of(record(7))).batch) == 1


@pytest.mark.parametrize("content_type", ["application/x-amz-json-1.1", "APPLICATION/JSON; charset=utf-8"])
def test_content_types(content_type: str) -> None:
    assert len(_core.decode_get_records(bytearray(body_of(record())), content_type).batch) == 1


@pytest.mark.parametrize("content_type", ["", "text/html", "application/xml"])
def test_other_content_types_are_refused(content_type: str) -> None:
    with pytest.raises(ValueError, match="application/x-amz-json-1.1"):
        _core.decode_get_records(body_of(), content_type)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "SequenceNumber": st.integers(0, 2**128).map(str),
            "Data": st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode()),
            "PartitionKey": TEXT,
        },
        optional={
            "ApproximateArrivalTimestamp": st.floats(0, 4e9) | st.integers(0, 2**32),
            "EncryptionType": st.sampled_from(["NONE", "KMS"]) | st.none(),
            "Other": st.recursive(st.none() | TEXT | st.integers(), lambda inner: st.lists(inner, max_size=2)),
        },
    )
    .flatmap(lambda members: st.permutations(sorted(members.items())))
    .map(dict),
    max_size=5,
)


@given(
    RECORDS,
    st.fixed_dictionaries(
        {},
        optional={
            "NextShardIterator": TEXT | st.none(),
            "MillisBehindLatest": st.integers(0, 2**62),
            "ChildShards": st.lists(st.just(CHILD), max_size=2),
            "Other": st.floats(allow_nan=False, allow_infinity=False),
        },
    ),
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", " : "), (" ,\n", ":\r\n\t")]),
    st.booleans(),
    st.integers(0, 100),
)
@example([], {}, False, (",", ":"), False, 0)
def test_generated_answers_are_what_botocore_reads(
    records: list[dict[str, Any]],
    others: dict[str, Any],
    first: bool,
    separators: tuple[str, str],
    ascii_only: bool,
    padding: int,
) -> None:
    answer = {"Records": records, **others} if first else {**others, "Records": records}
    body = json.dumps(answer, separators=separators, ensure_ascii=ascii_only).encode() + b" " * padding
    expected = by_botocore(body)
    if not expected.get("ChildShards"):
        expected.pop("ChildShards", None)
    assert as_botocore(_core.decode_get_records(body)) == expected


def test_helper_reads_the_shape_of_kinesis() -> None:
    assert set(answer_helpers.output_shape().members) >= {"Records", "NextShardIterator", "ChildShards"}


@pytest.mark.parametrize("numbers", [["abc"], ["1", ""], ["+5"], ["-5", "6"], ["1", "9" * 130], ["\u0664"]])
def test_numbers_that_are_none_of_kinesis_s(numbers: list[str]) -> None:
    """Of the first and the last record; between them, their order fails."""
    records = [{"Data": "", "PartitionKey": "k", "SequenceNumber": number} for number in numbers]
    with pytest.raises(NotKinesisError, match="the endpoint is not Kinesis, or a proxy has answered"):
        check_records(_core.decode_get_records(json.dumps({"Records": records}).encode()).batch)
    with pytest.raises(NotKinesisError, match="the sequence number 'x'"):
        _ = Place("x").order
