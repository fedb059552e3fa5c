"""`decode_get_records` of CBOR: as botocore reads it, as the same answer in JSON, and errors with their places."""

import base64
import json
from typing import Any

import cbor2
import local_aws_helpers
import pytest
from answer_helpers import as_botocore, by_botocore
from fastkcl import DecodeError, _core
from fastkcl.local_aws import LocalAws
from hypothesis import given
from hypothesis import strategies as st

AMZ = "application/x-amz-cbor-1.1"
SMITHY = "application/cbor"
MILLIS = 1_748_736_000_123
CHILD = {
    "ShardId": "shardId-000000000002",
    "ParentShards": ["shardId-000000000000"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
}


def record(**others: object) -> dict[str, Any]:
    return {"SequenceNumber": "1", "Data": b"hello", "PartitionKey": "k\u00e9", **others}


def encoded(records: list[dict[str, Any]], indefinite: bool = False, **others: object) -> bytes:
    return cbor2.dumps({**others, "Records": records}, indefinite_containers=indefinite)


@pytest.mark.parametrize("indefinite", [False, True])
@pytest.mark.parametrize("time", [1748736000, 1748736000.123, 0, -1.5, 2.0**37, 1.5])
def test_smithy_answers_are_what_botocore_reads(time: float, indefinite: bool) -> None:
    body = encoded(
        [record(ApproximateArrivalTimestamp=cbor2.CBORTag(1, time), New=[1, {"a": 2.5}]), record(EncryptionType="KMS")],
        indefinite,
        NextShardIterator="next",
        MillisBehindLatest=5,
        ChildShards=[CHILD],
        New={"x": [b"1", None, True]},
    )
    answer = _core.decode_get_records(body, SMITHY)
    assert as_botocore(answer) == by_botocore(body, "smithy-rpc-v2-cbor")
    assert cbor2.loads(body[slice(*answer.records_span)]) == cbor2.loads(body)["Records"]


@pytest.mark.parametrize("time", [MILLIS, cbor2.CBORTag(1, MILLIS), float(MILLIS), cbor2.CBORTag(1, float(MILLIS))])
def test_the_java_sdks_write_milliseconds(time: object) -> None:
    (found,) = _core.decode_get_records(encoded([record(ApproximateArrivalTimestamp=time)]), AMZ).batch
    assert found.timestamp_millis == MILLIS


def test_null_missing_and_twice() -> None:
    pairs = [("Data", b"1"), ("Data", None), ("PartitionKey", "a"), ("PartitionKey", "b"), ("SequenceNumber", "1")]
    pairs += [("EncryptionType", "KMS"), ("EncryptionType", None), ("ApproximateArrivalTimestamp", None)]
    twice = bytes([0xA0 + len(pairs)]) + b"".join(cbor2.dumps(part) for pair in pairs for part in pair)
    body = b"\xa4" + cbor2.dumps("Records") + b"\x81\xf6" + cbor2.dumps("Records") + b"\x81" + twice
    body = body.replace(b"\x81\xf6", b"\x80", 1) + cbor2.dumps("MillisBehindLatest") + b"\xf6"
    body += cbor2.dumps("ChildShards") + b"\xf7"
    answer = _core.decode_get_records(body, AMZ)
    (found,) = answer.batch
    assert (found.data, found.partition_key, found.encryption_type, found.timestamp_millis) == (None, "b", None, None)
    assert (answer.millis_behind_latest, answer.child_shards) == (None, ())


def test_strings_in_pieces() -> None:
    pieces = b"\x5f\x42AB\x40\x41C\xff"
    text = b"\x7f\x61a\x62\xc3\xa9\xff"
    body = b"\xa1\x67Records\x81\xa3\x64Data" + pieces + b"\x6cPartitionKey" + text + b"\x6eSequenceNumber\x611"
    (found,) = _core.decode_get_records(body, AMZ).batch
    assert (found.data, found.partition_key) == (b"ABC", "a\u00e9")


def test_answers_of_local_aws_as_the_java_sdks_ask_for_them(aws: LocalAws) -> None:
    kinesis, stream = local_aws_helpers.client(aws), local_aws_helpers.make_stream(aws)
    kinesis.put_records(StreamName=stream, Records=[{"Data": b"%d" % n, "PartitionKey": "k"} for n in range(50)])
    bodies = []
    for content_type, write in (
        (AMZ, cbor2.dumps),
        (local_aws_helpers.JSON, lambda value: json.dumps(value).encode()),
    ):
        request = write({"ShardIterator": local_aws_helpers.iterator(kinesis, stream)})
        headers = local_aws_helpers.headers("GetRecords", content_type)
        status, answered, body = local_aws_helpers.post(aws.url, request, headers)
        assert status == 200
        bodies.append(_core.decode_get_records(body, answered["Content-Type"]))
    by_cbor, by_json = (as_botocore(answer) for answer in bodies)
    assert [record["Data"] for record in by_cbor["Records"]] == [b"%d" % n for n in range(50)]
    assert by_cbor["Records"] == by_json["Records"]


SOUND = encoded(
    [record(ApproximateArrivalTimestamp=cbor2.CBORTag(1, MILLIS))], MillisBehindLatest=5, ChildShards=[CHILD]
)


def test_every_prefix_is_refused() -> None:
    for end in range(len(SOUND)):
        with pytest.raises(DecodeError) as caught:
            _core.decode_get_records(SOUND[:end], AMZ)
        assert (caught.value.kind, caught.value.offset) == ("cbor", end)


def one(name: bytes, value: bytes) -> bytes:
    """An answer with one record of one member."""
    return b"\xa1\x67Records\x81\xa1" + bytes([0x60 + len(name)]) + name + value


ERRORS: dict[str, tuple[bytes, str, str | None, int | None, int]] = {
    "json": (b'{"Records":[]}', "not_an_object", None, None, 0),
    "array": (b"\x80", "not_an_object", None, None, 0),
    "reserved": (b"\x1c", "cbor", None, None, 0),
    "more": (b"\xa1\x67Records\x80\x00", "cbor", None, None, 10),
    "no_records": (b"\xa0", "missing_field", "Records", None, 1),
    "records_map": (b"\xa1\x67Records\xa0", "wrong_type", "Records", None, 9),
    "record_null": (b"\xa1\x67Records\x81\xf6", "wrong_type", "Records", 0, 10),
    "name_number": (b"\xa1\x01\x02", "cbor", None, None, 1),
    "name_utf8": (b"\xa1\x61\xff\x02", "utf8", None, None, 2),
    "name_break": (b"\xbf\x61a\xff", "cbor", None, None, 3),
    "missing": (one(b"Data", b"\x40"), "missing_field", "PartitionKey", 0, 17),
    "data_text": (one(b"Data", b"\x60"), "wrong_type", "Data", 0, 16),
    "data_pieces": (one(b"Data", b"\x5f\x61a\xff"), "cbor", None, None, 17),
    "key_bytes": (one(b"PartitionKey", b"\x40"), "wrong_type", "PartitionKey", 0, 24),
    "key_null": (one(b"PartitionKey", b"\xf6"), "wrong_type", "PartitionKey", 0, 24),
    "key_utf8": (one(b"PartitionKey", b"\x62a\xff"), "utf8", None, None, 26),
    "unknown_name": (one(b"ApproximateArrivalTimestamp"[:23], b"\x00"), "missing_field", "Data", 0, 36),
    "millis": (b"\xa1\x72MillisBehindLatest\xf9\x3c\x00", "wrong_type", "MillisBehindLatest", None, 20),
    "millis_range": (b"\xa1\x72MillisBehindLatest\x1b" + b"\xff" * 8, "out_of_range", "MillisBehindLatest", None, 20),
    "deep": (b"\xa1\x61x" + b"\x81" * 128, "depth", None, None, 130),
    "deep_tags": (b"\xa1\x61x" + b"\xc0" * 128, "depth", None, None, 130),
    "unknown_break": (b"\xa1\x61x\xff", "cbor", None, None, 3),
    "endless_integer": (b"\xa1\x61x\x1f", "cbor", None, None, 3),
    "huge_length": (b"\xa1\x61x\x5b" + b"\xff" * 8, "cbor", None, None, 12),
    "huge_array": (b"\xa1\x67Records\x9b" + b"\xff" * 8, "cbor", None, None, 18),
}


@pytest.mark.parametrize(("body", "kind", "field", "index", "offset"), ERRORS.values(), ids=ERRORS)
def test_errors_name_their_place(body: bytes, kind: str, field: str | None, index: int | None, offset: int) -> None:
    with pytest.raises(DecodeError) as caught:
        _core.decode_get_records(body, AMZ)
    error = caught.value
    assert (error.kind, error.field, error.record, error.offset) == (kind, field, index, offset), error


@pytest.mark.parametrize(
    ("content_type", "time", "kind"),
    [
        (SMITHY, 1748736000, "wrong_type"),
        (SMITHY, cbor2.CBORTag(1, "text"), "wrong_type"),
        (SMITHY, cbor2.CBORTag(0, 1), "wrong_type"),
        (SMITHY, cbor2.CBORTag(1, 1e300), "out_of_range"),
        (SMITHY, cbor2.CBORTag(1, float("nan")), "out_of_range"),
        (AMZ, 2**63, "out_of_range"),
        (AMZ, "2025-06-01", "wrong_type"),
    ],
)
def test_times_that_are_none(content_type: str, time: object, kind: str) -> None:
    with pytest.raises(DecodeError) as caught:
        _core.decode_get_records(encoded([record(ApproximateArrivalTimestamp=time)]), content_type)
    assert (caught.value.kind, caught.value.field, caught.value.record) == (kind, "ApproximateArrivalTimestamp", 0)


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "SequenceNumber": st.integers(0, 2**128).map(str),
            "Data": st.binary(max_size=300),
            "PartitionKey": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
        },
        optional={"millis": st.integers(0, 2**42), "EncryptionType": st.sampled_from(["NONE", "KMS"]), "Other": VALUES},
    ),
    max_size=5,
)


@given(RECORDS, st.booleans(), st.booleans())
def test_one_answer_in_three_encodings(records: list[dict[str, Any]], indefinite: bool, with_millis: bool) -> None:
    others = {"MillisBehindLatest": 7} if with_millis else {}

    def body(time: Any, data: Any) -> list[dict[str, Any]]:
        renamed = []
        for each in records:
            row = {name: value for name, value in each.items() if name not in ("millis", "Other")}
            row["Data"] = data(row["Data"])
            if "millis" in each:
                row["ApproximateArrivalTimestamp"] = time(each["millis"])
            renamed.append(row)
        return renamed

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    in_json = {"Records": body(lambda millis: millis / 1000, text), **others}
    expected = as_botocore(_core.decode_get_records(json.dumps(in_json).encode()))
    unknown = {"Other": [each.get("Other") for each in records]}
    amz = encoded(body(lambda millis: cbor2.CBORTag(1, millis), bytes), indefinite, **others, **unknown)
    assert as_botocore(_core.decode_get_records(amz, AMZ)) == expected
    smithy = encoded(body(lambda millis: cbor2.CBORTag(1, millis / 1000), bytes), indefinite, **others)
    assert (
        as_botocore(_core.decode_get_records(smithy, SMITHY)) == expected == by_botocore(smithy, "smithy-rpc-v2-cbor")
    )


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for prefix in (b"", b"\xa1\x67Records\x81", b"\xa1\x67Records\x81\xa1\x64Data"):
        for content_type in (AMZ, SMITHY):
            offset: int | None = 0
            try:
                _core.decode_get_records(prefix + body, content_type)
            except DecodeError as error:
                offset = error.offset
            assert offset is not None
            assert 0 <= offset <= len(prefix + body)
