"""KPL aggregates: the cases both ways, aws-kinesis-agg on generated ones, dropped records, and counters."""

import base64
import hashlib
import json
import subprocess
import sys
import time
import warnings
from typing import Any

import case_files
import pyarrow as pa
import pytest
from fastkcl import _core
from hypothesis import given
from hypothesis import strategies as st
from paths import PROGRAMS

MAGIC = bytes.fromhex("f3899ac2")
FULL_RANGE = (0, 2**128 - 1)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aws_kinesis_agg.aggregator import AggRecord
    from aws_kinesis_agg.deaggregator import deaggregate_records


def sealed(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message).digest()


def batch_of(*data: bytes | None, encryption: str | None = None, keys: str = "outer") -> _core.RecordBatch:
    records = [
        {
            "Data": None if value is None else base64.b64encode(value).decode(),
            "PartitionKey": keys,
            "SequenceNumber": str(100 + row),
            "ApproximateArrivalTimestamp": 1000 + row,
            "EncryptionType": encryption,
        }
        for row, value in enumerate(data)
    ]
    body = json.dumps({"Records": records, "MillisBehindLatest": 5}).encode()
    return _core.decode_get_records(body, shard_id="shard").batch


def user(record: _core.Record) -> dict[str, Any]:
    assert record.data is not None
    return {
        "partition_key": record.partition_key,
        "explicit_hash_key": record.explicit_hash_key,
        "data_hex": record.data.hex(),
        "sub_sequence_number": record.sub_sequence_number,
        "aggregated": record.aggregated,
    }


@pytest.mark.parametrize(
    "case",
    [case for kind in ("aggregated", "plain", "hash_range") for case in case_files.load("kpl", kind)],
    ids=lambda case: case["name"],
)
def test_case(case: dict[str, Any]) -> None:
    data = base64.b64decode(case["data_b64"])
    low, high = case.get("hash_range", FULL_RANGE)
    # Between others, which must not notice.
    batch = batch_of(b"before", data, b"after", keys=case["partition_key"])
    result = _core.deaggregate(batch, (int(low), int(high)))
    pa.record_batch(result.batch).validate(full=True)
    before, *users, after = result.batch
    assert [user(record) for record in users] == case["records"]
    assert {record.sequence_number for record in users} <= {"101"}
    assert {record.timestamp_millis for record in users} <= {1_001_000}
    assert [(record.data, record.sequence_number, record.sub_sequence_number) for record in (before, after)] == [
        (b"before", "100", 0),
        (b"after", "102", 0),
    ]
    is_plain = case["kind"] == "plain"
    is_dropped = case["kind"] == "hash_range" and not case["records"]
    assert (result.aggregates, result.dropped_aggregates) == (int(not is_plain and not is_dropped), int(is_dropped))
    begins_as_aggregate = data.startswith(MAGIC) and len(data) > 20
    assert sum(result.fallbacks.values()) == int(is_plain and begins_as_aggregate)


@pytest.mark.parametrize("case", case_files.load("kpl", "encode"), ids=lambda case: case["name"])
def test_encode_case(case: dict[str, Any]) -> None:
    aggregate = _core.Aggregate()
    for number, one in enumerate(case["users"]):
        data = bytes.fromhex(one["data_hex"])
        size = aggregate.size_with(one["partition_key"], len(data), one["explicit_hash_key"])
        aggregate.add(one["partition_key"], data, one["explicit_hash_key"])
        assert (aggregate.size, len(aggregate)) == (size, number + 1)
    assert aggregate.encode() == base64.b64decode(case["data_b64"])
    assert (aggregate.partition_key, aggregate.explicit_hash_key) == (case["partition_key"], case["explicit_hash_key"])
    assert aggregate.size == len(aggregate.encode()) + len(case["partition_key"].encode())


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(value)) + value


RECORD = field(3, b"\x08\x00" + field(3, b"x"))
WITH_HASH_KEY = field(3, b"\x08\x00\x10\x00" + field(3, b"x"))

FALLBACKS = {
    "digest": (MAGIC + b"x" * 17, "digest"),
    "protobuf": (sealed(b"\x07"), "protobuf"),
    "open_group": (sealed(b"\x1b\x08"), "protobuf"),
    "wrong_group_end": (sealed(field(1, b"a") + b"\x9b\x01\xa4\x01"), "protobuf"),
    "deep_groups": (sealed(b"\x2b" * 101 + b"\x2c" * 101), "protobuf"),
    "bad_record": (sealed(field(1, b"a") + field(3, b"\x1a\x05")), "protobuf"),
    "no_data": (sealed(field(1, b"a") + field(3, b"\x08\x00")), "missing_field"),
    "tag_without_key": (sealed(field(1, b"a") + field(3, RECORD[2:] + field(4, field(2, b"v")))), "missing_field"),
    "key_no_utf8": (sealed(field(1, b"\xff") + RECORD), "utf8"),
    "no_table": (sealed(RECORD), "index"),
    "no_hash_key_table": (sealed(field(1, b"a") + WITH_HASH_KEY), "index"),
    "large_index": (sealed(field(1, b"a") + field(3, b"\x08" + b"\xff" * 9 + b"\x01" + field(3, b"x"))), "index"),
    "hash_key_text": (sealed(field(1, b"a") + field(2, b"1x") + WITH_HASH_KEY), "explicit_hash_key"),
    "hash_key_empty": (sealed(field(1, b"a") + field(2, b"") + WITH_HASH_KEY), "explicit_hash_key"),
    "hash_key_sign": (sealed(field(1, b"a") + field(2, b"-") + WITH_HASH_KEY), "explicit_hash_key"),
}


@pytest.mark.parametrize(("data", "reason"), FALLBACKS.values(), ids=FALLBACKS)
def test_fallbacks_are_counted_by_reason(data: bytes, reason: str) -> None:
    result = _core.deaggregate(batch_of(data, b"plain", data))
    assert [(record.data, record.aggregated) for record in result.batch] == [
        (data, False),
        (b"plain", False),
        (data, False),
    ]
    assert (result.fallbacks, result.aggregates) == ({reason: 2}, 0)


@pytest.mark.parametrize(
    ("key", "kept"), [(b"007", True), (b"+7", True), (b"-0", False), (b"-7", False), (b"9" * 40, False)]
)
def test_explicit_hash_keys_are_decimal_integers(key: bytes, kept: bool) -> None:
    """A sound one that is no hash key, or is none of the shard's, drops the aggregate."""
    result = _core.deaggregate(batch_of(sealed(field(1, b"a") + field(2, key) + WITH_HASH_KEY)), (7, 7))
    assert [record.explicit_hash_key for record in result.batch] == ([key.decode()] if kept else [])
    assert (result.dropped_aggregates, result.dropped_records, result.fallbacks) == (int(not kept), int(not kept), {})


def test_columns() -> None:
    aggregate = _core.Aggregate()
    aggregate.add("a", b"1", "5")
    aggregate.add("b", b"2")
    result = _core.deaggregate(batch_of(b"x", aggregate.encode(), None, encryption="KMS"))
    table = pa.record_batch(result.batch)
    table.validate(full=True)
    assert table.drop_columns(["approximateArrivalTimestamp"]).to_pydict() == {
        "data": [b"x", b"1", b"2", None],
        "partitionKey": ["outer", "a", "b", "outer"],
        "sequenceNumber": ["100", "101", "101", "102"],
        "subSequenceNumber": [0, 0, 1, 0],
        "encryptionType": ["KMS"] * 4,
        "explicitHashKey": [None, "5", None, None],
        "aggregated": [False, True, True, False],
    }
    assert (result.batch.shard_id, result.batch.millis_behind_latest) == ("shard", 5)
    assert result.batch.capacity_bytes >= result.batch.nbytes


def test_a_batch_without_aggregates_keeps_its_buffers() -> None:
    batch = batch_of(b"a" * 1000, None, b"")
    before, after = pa.record_batch(batch), pa.record_batch(_core.deaggregate(batch).batch)
    assert after["data"].buffers()[2].address == before["data"].buffers()[2].address
    assert after.schema.names == [*before.schema.names, "explicitHashKey", "aggregated"]
    assert after["subSequenceNumber"].to_pylist() == [0, 0, 0]
    assert after["explicitHashKey"].null_count == 3
    assert after["aggregated"].to_pylist() == [False] * 3


def test_user_data_is_not_opened_again() -> None:
    inner, outer = _core.Aggregate(), _core.Aggregate()
    inner.add("a", b"deep")
    outer.add("b", inner.encode())
    result = _core.deaggregate(batch_of(outer.encode()))
    assert [record.data for record in result.batch] == [inner.encode()]
    again = _core.deaggregate(result.batch)
    assert pa.record_batch(again.batch).equals(pa.record_batch(result.batch))
    assert again.aggregates == 0


def test_slices_and_batches_of_a_daemon() -> None:
    aggregate = _core.Aggregate()
    aggregate.add("a", b"1")
    batch = batch_of(aggregate.encode(), b"x", aggregate.encode(), b"y")
    assert [record.data for record in _core.deaggregate(batch.slice(1, 2)).batch] == [b"x", b"1"]
    message = _core.decode_line(
        b'{"action":"processRecords","records":['
        b'{"data":"QQ==","partitionKey":"k","sequenceNumber":"1","subSequenceNumber":7}]}'
    )
    assert isinstance(message, _core.ProcessRecords)
    (record,) = _core.deaggregate(message.batch).batch
    assert (record.sub_sequence_number, record.encryption_type, record.aggregated) == (7, None, False)


def aggregate_of(users: int, key: bytes) -> bytes:
    """An aggregate with one key, and user records of 6 bytes that all name it."""
    return sealed(field(1, key) + field(3, b"\x08\x00\x1a\x00") * users)


@pytest.mark.parametrize(
    ("table", "is_one"),
    [
        (field(1, b"k" * 256), True),
        (field(1, ("\U0001f600" * 256).encode()), True),
        (field(1, b"k" * 257), False),
        (field(1, b"k") + field(1, b"k" * 257), False),  # also where no user record names it
        (field(1, ("\u00e9" * 257).encode()), False),
        (field(1, b"k") + field(2, b"0" * 256), True),
        (field(1, b"k") + field(2, b"0" * 257), False),
    ],
)
def test_keys_have_256_characters_at_most(table: bytes, is_one: bool) -> None:
    data = sealed(table + field(3, b"\x08\x00\x1a\x00"))
    result = _core.deaggregate(batch_of(data))
    assert (result.aggregates, result.fallbacks) == ((1, {}) if is_one else (0, {"key_length": 1}))
    assert is_one or result.batch[0].data == data


def test_a_batch_has_max_batch_bytes_at_most() -> None:
    data = aggregate_of(1000, b"k" * 256)
    batch = batch_of(b"plain", data, data, encryption="NONE")
    of_each = 36 + len("101") + len("NONE")
    bits, last_offsets = 5 * 251, 5 * 4
    size = 2000 * (of_each + 256) + of_each + len("outer") + len(b"plain") + bits + last_offsets
    result = _core.deaggregate(batch, max_batch_bytes=size)
    assert len(result.batch) == 2001
    assert size - bits <= result.batch.nbytes <= size
    for less in (size - 1, size // 2, 1):
        with pytest.raises(OverflowError, match=f"take fewer at once .max_batch_bytes: {less}"):
            _core.deaggregate(batch, max_batch_bytes=less)
    assert len(_core.deaggregate(batch.slice(1, 1), max_batch_bytes=size // 2 + 100).batch) == 1000
    assert len(_core.deaggregate(batch, (1, 1), max_batch_bytes=100).batch) == 1  # what is dropped takes nothing


@pytest.mark.parametrize("encryption", [None, "NONE"])
@pytest.mark.parametrize("users", [1, 3, 8, 9, 200])
def test_no_batch_is_larger_than_what_just_fits(users: int, encryption: Any) -> None:
    batch = batch_of(b"plain", aggregate_of(users, b"k"), b"x", encryption=encryption)
    for most in range(1, 200 * 100):
        try:
            made = _core.deaggregate(batch, max_batch_bytes=most).batch
        except OverflowError:
            continue
        assert made.nbytes <= most < made.nbytes + 40 + users
        return
    pytest.fail("it never fits")


def test_a_hash_range_that_ends_before_it_begins() -> None:
    """It would drop each aggregate."""
    with pytest.raises(ValueError, match=r"hash_range must be \(lowest, highest\) key, not \(2, 1\)"):
        _core.deaggregate(batch_of(aggregate_of(1, b"k")), (2, 1))


@pytest.mark.parametrize("most", [0, 2**31, -1])
def test_max_batch_bytes_in_its_range(most: int) -> None:
    with pytest.raises((ValueError, OverflowError)):
        _core.deaggregate(batch_of(b"x"), max_batch_bytes=most)


@pytest.mark.parametrize(
    ("users", "key", "aggregates", "outcome"),
    [
        (13_000, 65_536, 54, "54 plain"),  # 4.3 MB that were 10 GB and more: keys of 64 kB
        (170_000, 256, 1, "170000 users"),  # any aggregate of 1 MiB fits
        (170_000, 256, 10, "OverflowError"),  # an answer of 10 MiB
    ],
)
def test_a_bomb_does_not_go_off(users: int, key: int, aggregates: int, outcome: str) -> None:
    """What a process of its own has needed for it at the most."""
    command = [sys.executable, str(PROGRAMS / "kpl_bomb.py"), str(users), str(key), str(aggregates)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    found, kibibytes = child.stdout.splitlines()
    assert found == outcome
    assert int(kibibytes) < 400 << 10  # max_batch_bytes, and what reads an aggregate


@pytest.mark.parametrize(("digit", "reason"), [(b"1", "key_length"), (b"0", "key_length"), (b"x", "explicit_hash_key")])
def test_a_hash_key_that_many_user_records_name_is_looked_at_once(digit: bytes, reason: str) -> None:
    """A key of half an aggregate, named by the other half: 2 * 10^10 steps, were it looked at for each."""
    message = field(1, b"k") + field(2, digit * 499_999 + b"1") + field(3, b"\x08\x00\x10\x00\x1a\x00") * 40_000
    batch = batch_of(sealed(message))
    begun = time.thread_time()
    result = _core.deaggregate(batch)
    assert time.thread_time() - begun < 3
    assert result.fallbacks == {reason: 1}
    assert result.batch[0].data == sealed(message)


def test_records_that_lack_a_field_take_no_memory() -> None:
    """Two bytes say that there is a user record; four million of them are not kept until the end."""
    command = [sys.executable, str(PROGRAMS / "kpl_bomb.py"), str(4 << 20), "1", "1", "1a00"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == 0, child.stderr
    found, kibibytes = child.stdout.splitlines()
    assert found == "1 plain"
    assert int(kibibytes) < 40 << 10  # the batch, of 8 MiB, and its copy


@pytest.mark.parametrize("key", ["", "k" * 257, "\u00e9" * 257])
def test_partition_keys_that_the_service_refuses(key: str) -> None:
    aggregate = _core.Aggregate()
    with pytest.raises(ValueError, match="from 1 to 256 characters"):
        aggregate.add(key, b"")
    assert (len(aggregate), aggregate.partition_key, aggregate.size) == (0, None, 20)


@pytest.mark.parametrize("key", ["", "x", "-1", "+1", " 1", str(2**128)])
def test_explicit_hash_keys_that_the_service_refuses(key: str) -> None:
    aggregate = _core.Aggregate()
    with pytest.raises(ValueError, match="decimal number"):
        aggregate.add("k", b"", key)
    aggregate.add("k" * 256, b"", str(2**128 - 1))
    assert len(aggregate) == 1


KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
USERS = st.lists(
    st.tuples(KEYS, st.binary(max_size=300), st.none() | st.integers(0, 2**128 - 1).map(str)), min_size=1, max_size=40
)


@given(USERS)
def test_generated_aggregates_are_those_of_aws_kinesis_agg(users: list[tuple[str, bytes, str | None]]) -> None:
    theirs, ours = AggRecord(), _core.Aggregate()
    for key, data, hash_key in users:
        assert theirs.add_user_record(key, data, hash_key)
        ours.add(key, data, hash_key)
    partition_key, hash_key, data = theirs.get_contents()
    assert ours.encode() == data
    assert (ours.partition_key, ours.explicit_hash_key) == (partition_key, hash_key or None)
    assert ours.size == len(data) + len(partition_key.encode())
    result = _core.deaggregate(batch_of(data))
    assert [(record.partition_key, record.data, record.explicit_hash_key) for record in result.batch] == users
    assert [record.sub_sequence_number for record in result.batch] == list(range(len(users)))
    taken_apart = deaggregate_records(
        [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "sequenceNumber": "1",
                    "partitionKey": "outer",
                    "approximateArrivalTimestamp": 1.0,
                    "data": base64.b64encode(data).decode(),
                },
                "eventSource": "aws:kinesis",
                "eventVersion": "1.0",
                "eventID": "1",
                "eventName": "aws:kinesis:record",
                "invokeIdentityArn": "",
                "awsRegion": "",
                "eventSourceARN": "",
            }
        ]
    )
    assert [(one["kinesis"]["partitionKey"], base64.b64decode(one["kinesis"]["data"])) for one in taken_apart] == [
        (record.partition_key, record.data) for record in result.batch
    ]


def hash_of(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode()).digest(), "big")


@given(USERS, st.data())
def test_an_aggregate_is_dropped_if_one_record_is_outside(
    users: list[tuple[str, bytes, str | None]], draw: Any
) -> None:
    aggregate = _core.Aggregate()
    for one in users:
        aggregate.add(*one)
    owned = sorted(int(hash_key) if hash_key is not None else hash_of(key) for key, _, hash_key in users)
    low, high = draw.draw(st.sampled_from([(owned[0], owned[-1]), (owned[0] + 1, owned[-1]), (0, owned[-1] - 1)]))
    low = min(low, 2**128 - 1)
    high = max(high, low)
    result = _core.deaggregate(batch_of(aggregate.encode()), (low, high))
    kept = all(low <= key <= high for key in owned)
    assert len(result.batch) == (len(users) if kept else 0)
    assert (result.dropped_aggregates, result.dropped_records) == ((0, 0) if kept else (1, len(users)))


@given(st.binary(max_size=60))
def test_any_message_is_delivered_dropped_or_plain(message: bytes) -> None:
    result = _core.deaggregate(batch_of(sealed(message) if message else MAGIC))
    assert result.aggregates + result.dropped_aggregates + sum(result.fallbacks.values()) == int(bool(message))
