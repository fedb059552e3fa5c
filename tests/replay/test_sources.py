"""Profiles, sources and plans: the records that will be sent, before any child runs."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl import Position, _core
from fastkcl.replay import ReplayOptions, SourceError, from_captures, from_dead_letters, from_records, generate
from fastkcl.replay.columns import Columns, RecordSequence, RepeatedRecords, StoredRecords, first_after
from fastkcl.replay.plan import make_plans
from fastkcl.replay.profiles import PROFILES, line
from fastkcl.replay.sources import Ask, Deliver
from fastkcl.replay.sources.rows import COLUMN_NAMES
from fastkcl.shard import sequence_numbers
from paths import DATA
from replay_helpers import dead_letter, sent

CAPTURES = sorted(
    path
    for folder in ("kcl-multilang", "kcl-legacy-captures")
    for path in (DATA / folder).iterdir()
    if ".in.jsonl" in path.name
)


def rises(records: RecordSequence) -> bool:
    orders = [records.place(index) for index in range(len(records))]
    return all(before < after for before, after in zip(orders, orders[1:], strict=False))


# Profiles.

SIZES = {  # mean bytes of a payload, least and most
    "iot": (80, 95),
    "clickstream": (450, 550),
    "logs": (11_500, 13_500),
    "blob": (1_000_000, 1_048_576),
    "keys": (90, 115),
    "tiny": (3, 5),
}


@pytest.mark.parametrize("name", PROFILES)
def test_profile_is_what_performance_figures_name(name: str) -> None:
    profile = PROFILES[name]
    payloads = profile.payloads(profile.records, seed=3)
    keys = profile.partition_keys(profile.records, seed=3)
    least, most = SIZES[name]
    assert least <= sum(map(len, payloads)) / len(payloads) <= most
    assert all(1 <= len(key) <= 256 for key in keys)
    assert payloads[:5] == profile.payloads(5, seed=3)
    assert keys[:5] == profile.partition_keys(5, seed=3)
    assert payloads[:5] != profile.payloads(5, seed=4)


@pytest.mark.parametrize("name", ["iot", "clickstream", "keys"])
def test_json_profiles_are_json(name: str) -> None:
    for payload in PROFILES[name].payloads(200, seed=1):
        assert isinstance(json.loads(payload), dict)


def test_logs_are_subscription_messages() -> None:
    (payload,) = PROFILES["logs"].payloads(1)
    assert json.loads(gzip.decompress(payload))["messageType"] == "DATA_MESSAGE"


def test_keys_need_everything_a_daemon_escapes_and_what_it_writes_raw() -> None:
    keys = PROFILES["keys"].partition_keys(2000)
    text = "".join(keys)
    assert max(map(len, keys)) == 256
    for character in '"\\/\n\t\x00\x1f\x7f\u2028\ufeff\U0010ffffä客😀':
        assert character in text


@pytest.mark.parametrize("dialect", ["legacy", "transitional", "modern"])
@pytest.mark.parametrize("name", PROFILES)
def test_line_decodes_to_the_payloads(name: str, dialect: str) -> None:
    count = min(PROFILES[name].records, 300)
    message = _core.decode_line(line(name, seed=2, records=count, dialect=dialect, first_sequence=5))  # type: ignore[arg-type]
    assert isinstance(message, _core.ProcessRecords)
    assert [record.data for record in message.batch] == PROFILES[name].payloads(count, 2)
    assert [record.partition_key for record in message.batch] == PROFILES[name].partition_keys(count, 2)
    assert message.batch.first_position < message.batch.last_position  # type: ignore[operator]


def test_lines_of_one_shard_follow_each_other() -> None:
    first, second = (_core.decode_line(line("tiny", records=4, first_sequence=start)) for start in (0, 4))
    assert isinstance(first, _core.ProcessRecords)
    assert isinstance(second, _core.ProcessRecords)
    assert first.batch.last_position < second.batch.first_position  # type: ignore[operator]


# Sequence numbers.


def test_sequence_numbers_have_the_layout_of_captured_ones() -> None:
    """Shard 1 of the split capture: its own numbers from its own facts."""
    shard = from_captures(DATA / "kcl-multilang" / "split.shard1.in.jsonl").shards()[0]
    captured = shard.records.columns(0, 1).sequence_numbers[0]
    digits = f"{int(captured):x}"
    made = sequence_numbers(0, 1, shard=1, created=int(digits[1:10], 16), arrival=int(digits[29:38], 16))
    assert len(made[0]) == 56
    assert made == [captured]


# Columns.


def test_generated_records_are_the_same_in_any_slice() -> None:
    (shard,) = generate("tiny", records=25_000).shards()
    every = shard.records.columns(0, 25_000)
    part = shard.records.columns(9_990, 20_010)
    assert part.data == every.data[9_990:20_010]
    assert part.partition_keys == every.partition_keys[9_990:20_010]
    assert part.sequence_numbers == every.sequence_numbers[9_990:20_010]
    assert part.timestamps_millis == every.timestamps_millis[9_990:20_010]
    assert shard.records.place(9_990) == Position(part.sequence_numbers[0])


def test_shards_and_seeds_differ() -> None:
    first, second = generate("iot", shards=2, records=5).shards()
    (other,) = generate("iot", records=5, seed=1).shards()
    data = [tuple(shard.records.columns(0, 5).data) for shard in (first, second, other)]
    assert len(set(data)) == 3
    assert first.shard_id != second.shard_id
    assert first.records.place(4) < second.records.place(0)


def aggregated() -> StoredRecords:
    return StoredRecords(
        Columns([b"a", b"b", b"c", None], ["k"] * 4, ["7", "8", "8", "11"], [0, 0, 1, 0], [1, None, 3, 4])
    )


@pytest.mark.parametrize(
    ("checkpoint", "index"),
    [
        (Position.TRIM_HORIZON, 0),
        (Position("7"), 1),
        (Position("8"), 2),
        (Position("8", 1), 3),
        (Position("9"), 3),
        (Position.SHARD_END, 4),
    ],
)
def test_first_record_after_a_checkpoint(checkpoint: Position, index: int) -> None:
    assert first_after(aggregated(), checkpoint) == index


def test_repeated_records_go_on_rising() -> None:
    records = RepeatedRecords(aggregated(), 3)
    assert len(records) == 12
    assert rises(records)
    every = records.columns(0, 12)
    assert list(every.data) == [b"a", b"b", b"c", None] * 3
    assert records.columns(3, 9).sequence_numbers == every.sequence_numbers[3:9]


def test_records_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="record 1: sequence number 7/0 is not above 8/0"):
        StoredRecords(Columns([b""] * 2, ["k"] * 2, ["8", "7"], [0, 0], [0, 0]))


# Captures.


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name.partition(".in")[0])
def test_a_capture_is_a_script_of_its_own_bytes(path: Path) -> None:
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines(keepends=True)
    (shard,) = from_captures(path).shards()
    assert shard.steps is not None
    delivered = [step.line for step in shard.steps if isinstance(step, Deliver)]
    assert delivered == [line for line in lines if b'"processRecords"' in line[:30]]
    asked = [step for step in shard.steps if isinstance(step, Ask)]
    ends = (b'{"action":"shutdown', b'{"action":"leaseLost', b'{"action":"shardEnded')
    assert len(asked) == sum(line.startswith(ends) for line in lines)
    assert rises(shard.records)
    old = path.name.startswith("v1.15.3") or path.parent.name == "kcl-multilang"
    assert shard.dialect != "legacy" if old else shard.dialect == "legacy"


def test_errors_of_the_world_come_again_and_errors_of_the_asker_do_not() -> None:
    (shard,) = from_captures(DATA / "kcl-multilang" / "lease-lost-mid-batch.shard0.1.in.jsonl").shards()
    assert shard.steps is not None
    assert shard.steps[0].errors == ("ShutdownException", "ShutdownException")
    (shard,) = from_captures(DATA / "kcl-multilang" / "checkpoint-errors.shard0.in.jsonl").shards()
    assert shard.steps is not None
    assert all(step.errors == () for step in shard.steps)


def test_legacy_aggregates_get_the_sub_numbers_that_their_lines_do_not_show() -> None:
    (shard,) = from_captures(DATA / "kcl-legacy-captures" / "aggregated.shard0.in.jsonl").shards()
    columns = shard.records.columns(0, len(shard.records))
    assert max(columns.sub_sequence_numbers) == 39
    assert sorted(set(columns.sequence_numbers), key=int) == list(dict.fromkeys(columns.sequence_numbers))


INITIALIZE = '{"action":"initialize","shardId":"s","sequenceNumber":"TRIM_HORIZON","subSequenceNumber":0}\n'


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no initialize message"),
        ('{"action":"leaseLost"}\n', ":1: leaseLost before initialize"),
        ('{"action":"checkpoint","checkpoint":null,"error":null}\n', ":1: a checkpoint reply before initialize"),
        (INITIALIZE * 2, ":2: a second initialize"),
        (INITIALIZE + '{"action":"status","responseFor":"x"}\n', ":2: unknown_action"),
        (INITIALIZE + "\n" + '{"action":"processRecords","records":[{}]}\n', ":3: missing_field: .*record 0"),
        (INITIALIZE.replace("TRIM_HORIZON", "x"), "'x' is no place to start at"),
    ],
)
def test_a_bad_capture_is_named_with_its_line(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "bad.in.jsonl"
    path.write_text(text)
    with pytest.raises(SourceError, match=error) as caught:
        from_captures(path).shards()
    assert str(path) in str(caught.value)


def test_captures_of_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no captures"):
        from_captures(tmp_path)
    with pytest.raises(SourceError, match="no such file"):
        from_captures(tmp_path / "x.in.jsonl")
    names = [shard.label for shard in from_captures(DATA / "kcl-multilang").shards()]
    assert "big.shard0" in names
    assert len(names) == 17


# Files of records.

ROWS = [
    {"data": "aGVsbG8=", "partitionKey": "a", "sequenceNumber": "7", "subSequenceNumber": 0},
    {"data": None, "partitionKey": "ä", "sequenceNumber": "8", "approximateArrivalTimestamp": 5},
    {"data": "", "partitionKey": "c", "sequenceNumber": "8", "subSequenceNumber": None, "shardId": "x"},
]


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines(tmp_path: Path, packed: bool) -> None:
    text = "".join(json.dumps(row) + "\n\n" for row in ROWS).encode()
    path = tmp_path / ("records.jsonl.gz" if packed else "records.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    (shard,) = from_records(path).shards()
    columns = shard.records.columns(0, 3)
    assert list(columns.data) == [b"hello", None, b""]
    assert list(columns.partition_keys) == ["a", "ä", "c"]
    assert [str(shard.records.place(index)) for index in range(3)] == ["7/0", "8/0", "8/1"]
    assert list(columns.timestamps_millis) == [None, 5, None]


def test_files_hold_every_canonical_column() -> None:
    assert set(COLUMN_NAMES) == set(_core.CANONICAL_COLUMNS)


def test_parquet_in_the_canonical_schema(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    table = pa.table(
        {
            "data": pa.array([b"hello", None]),
            "partitionKey": ["a", "b"],
            "approximateArrivalTimestamp": pa.array([1_700_000_000_123_000, None], pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(table, path)
    first, second = from_records(path, shards=2).shards()
    assert first.records.columns(0, 1).timestamps_millis == [1_700_000_000_123]
    assert second.records.columns(0, 1).data == [None]
    assert len(first.records.place(0).sequence_number) == 56


def row(**fields: object) -> str:
    return json.dumps({"data": None, "partitionKey": "k", **fields}) + "\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (row(subSequenceNumber=2**63), r":1: subSequenceNumber 9223372036854775808: 0 to 2\*\*63 - 1 expected"),
        (row(subSequenceNumber=-1), ":1: subSequenceNumber -1"),
        (row(approximateArrivalTimestamp=2**62), ":1: approximateArrivalTimestamp 4611686018427387904: milliseconds"),
        (row(approximateArrivalTimestamp=-(10**400)), ":1: approximateArrivalTimestamp -1000"),
        (row() + row(partitionKey="\ud800"), r":2: partitionKey '\\ud800': half of a surrogate pair"),
        (row() + row(data="\ud800"), ":2: base64"),
        (row() + "[" * 200_000 + "\n", ":2: nested too deep"),
        ('{"data":' + "9" * 5000 + "}", ":1: "),
        (
            row(sequenceNumber="7", subSequenceNumber=2**63 - 1) + row(sequenceNumber="7"),
            "record 1: sub-sequence number 9223372036854775808 is too large",
        ),
        ("", "no record in it"),
        ("x\n", ":1: "),
        ("[]\n", ":1: a JSON object expected"),
        ('{"data":null,"partitionKey":"k"}\n{"partitionKey":"k"}\n', ":2: no data"),
        ('{"data":null}\n', ":1: no partitionKey"),
        ('{"data":"?","partitionKey":"k"}\n', ":1: base64"),
        ('{"data":null,"partitionKey":1}\n', ":1: partitionKey: text expected, not int"),
        ('{"data":null,"partitionKey":"k","subSequenceNumber":true}\n', ":1: subSequenceNumber: an integer"),
        ('{"data":null,"partitionKey":"k","sequenceNumber":"x"}\n', ":1: sequenceNumber 'x': decimal digits"),
        ('{"data":null,"partitionKey":"k","size":1}\n', ":1: unknown key 'size'"),
        (
            '{"data":null,"partitionKey":"k","sequenceNumber":"1"}\n{"data":null,"partitionKey":"k"}\n',
            "give all or none",
        ),
        ('{"data":null,"partitionKey":"k","sequenceNumber":"2"}\n' * 2, None),
        (
            '{"data":null,"partitionKey":"k","sequenceNumber":"2"}\n{"data":null,"partitionKey":"k","sequenceNumber":"1"}\n',
            "record 1: sequence number 1/0 is not above 2/0",
        ),
    ],
)
def test_a_bad_record_is_named_with_its_line(tmp_path: Path, text: str, error: str | None) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    if error is None:  # equal numbers are an aggregate
        assert len(from_records(path).shards()[0].records) == 2
        return
    with pytest.raises(SourceError, match=error):
        from_records(path).shards()


PACKED = gzip.compress(b"\n" * 100, mtime=0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (PACKED[:-9], "Compressed file ended before"),
        (PACKED[:10] + b"\xff" * 20, "Error -3 while decompressing"),
        (b"no gzip at all", "Not a gzipped file"),
        (PACKED[:-8] + b"\0" * 8, "CRC check failed"),
    ],
    ids=["cut", "broken inside", "not packed", "wrong checksum"],
)
def test_a_broken_gzip_file_is_named(tmp_path: Path, data: bytes, error: str) -> None:
    path = tmp_path / "x.in.jsonl.gz"
    path.write_bytes(data)
    for source in (from_captures(path), from_records(path)):
        with pytest.raises(SourceError, match=rf"x\.in\.jsonl\.gz: {error}"):
            source.shards()


def test_every_shard_has_records(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(row() * 10)
    assert [len(shard.records) for shard in from_records(path, shards=7).shards()] == [1, 1, 2, 1, 2, 1, 2]
    with pytest.raises(SourceError, match="10 records are too few for 11 shards"):
        from_records(path, shards=11).shards()


def test_a_bad_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "records.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(SourceError, match=r"records\.parquet: "):
        from_records(path).shards()
    pq.write_table(pa.table({"data": [b""]}), path)
    with pytest.raises(SourceError, match="no column partitionKey"):
        from_records(path).shards()
    pq.write_table(pa.table({"data": [b""], "partitionKey": ["k"], "sequenceNumber": ["x"]}), path)
    with pytest.raises(SourceError, match="record 0: sequenceNumber 'x'"):
        from_records(path).shards()
    pq.write_table(pa.table({"data": [b""], "partitionKey": ["k"], "approximateArrivalTimestamp": [2**62]}), path)
    with pytest.raises(SourceError, match="record 0: approximateArrivalTimestamp"):
        from_records(path).shards()


# Dead letters.


def letter_records(folder: Path, **options: str) -> dict[tuple[str | None, str], list[tuple[str, int, str]]]:
    """Of each stream and shard: sequence number, sub-sequence number, payload."""
    found = {}
    for shard in from_dead_letters(folder, **options).shards():
        every = shard.records.columns(0, len(shard.records))
        payloads = [(data or b"").decode() for data in every.data]
        found[shard.stream, shard.shard_id] = list(
            zip(every.sequence_numbers, every.sub_sequence_numbers, payloads, strict=True)
        )
        assert set(every.timestamps_millis) == {1_700_000_000_123}
        assert set(every.partition_keys) == {"k"}
    return found


def test_dead_letters_of_a_shard_in_the_order_of_positions(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(100, 0, "c"), (100, 1, "d")], [(101, 0, "e")])
    dead_letter(tmp_path, [(9, 0, "a"), (10, 0, "b")])
    dead_letter(tmp_path, [(7, 0, "other")], shard=1)
    assert letter_records(tmp_path) == {
        ("clicks", "shardId-000000000000"): [
            ("9", 0, "a"),
            ("10", 0, "b"),
            ("100", 0, "c"),
            ("100", 1, "d"),
            ("101", 0, "e"),
        ],
        ("clicks", "shardId-000000000001"): [("7", 0, "other")],
    }
    source = from_dead_letters(tmp_path)
    assert source.description == "3 dead letters"
    assert [(shard.label, shard.batch_records, shard.dialect, shard.steps) for shard in source.shards()] == [
        ("shardId-000000000000", 2, None, None),
        ("shardId-000000000001", 1, None, None),
    ]


def test_records_that_failed_again_come_once(tmp_path: Path) -> None:
    for batch in ([(1, 0, "a"), (2, 0, "b")], [(1, 0, "a"), (2, 0, "b")], [(2, 0, "b"), (3, 0, "c")]):
        dead_letter(tmp_path, batch)
    assert len(list(tmp_path.iterdir())) == 3
    assert letter_records(tmp_path) == {
        ("clicks", "shardId-000000000000"): [("1", 0, "a"), ("2", 0, "b"), ("3", 0, "c")]
    }


@pytest.mark.parametrize(
    ("letters", "payloads"),
    [
        ([["1a", "2b", "2c", "3d"]], "abcd"),
        ([["1a", "2b", "2c", "3d"]] * 3, "abcd"),  # the same again
        ([["1a", "2b"], ["2b", "3c"]], "abbc"),  # perhaps an aggregate of two equal records, cut between them
        ([["1a", "2b"], ["2c", "3d"]], "abcd"),
        ([["2b", "3c"], ["1a", "2b", "3c"]], "abc"),
        (
            [["1a", "2b", "3c"], ["2b", "2c", "3c"]],
            "abbcc",
        ),  # a batch ended in 2 and began anew: rather twice than never
    ],
)
def test_legacy_aggregates_of_several_letters(tmp_path: Path, letters: list[list[str]], payloads: str) -> None:
    for letter in letters:
        dead_letter(tmp_path, [(int(text[0]), None, text[1]) for text in letter])
    ((_, records),) = letter_records(tmp_path).items()
    assert "".join(payload for _, _, payload in records) == payloads
    (shard,) = from_dead_letters(tmp_path).shards()
    assert shard.dialect == "legacy"
    assert rises(shard.records)


def test_dead_letters_of_several_streams_keep_them(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(1, 0, "a")], stream="clicks")
    dead_letter(tmp_path, [(1, 0, "b")], stream="orders/eu")
    plans = make_plans(from_dead_letters(tmp_path), ReplayOptions(stream="x"))
    assert [(plan.stream, plan.label) for plan in plans] == [
        ("clicks", "clicks shardId-000000000000"),
        ("orders/eu", "orders/eu shardId-000000000000"),
    ]
    with pytest.raises(SourceError, match="several streams cannot be merged"):
        make_plans(from_dead_letters(tmp_path), ReplayOptions(merge_at=1))


def test_dead_letters_that_do_not_say_their_stream(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(1, 0, "a")], stream=None)
    with pytest.raises(SourceError, match=r"shardId-000000000000-1-0\.arrow: it does not name its stream"):
        from_dead_letters(tmp_path).shards()
    assert list(letter_records(tmp_path, stream="orders")) == [("orders", "shardId-000000000000")]
    dead_letter(tmp_path, [(1, 0, "a")], stream="clicks")
    with pytest.raises(SourceError, match=r"clicks-.*\.arrow: it is of the stream 'clicks', not 'orders'"):
        from_dead_letters(tmp_path, stream="orders").shards()


def test_one_dead_letter(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(1, 0, "a")])
    dead_letter(tmp_path, [(2, 0, "b")])
    (shard,) = from_dead_letters(tmp_path / "clicks-shardId-000000000000-2-0.arrow").shards()
    assert shard.records.columns(0, len(shard.records)).data == [b"b"]


CANONICAL = {"data": [b""], "partitionKey": ["k"], "sequenceNumber": ["1"], "subSequenceNumber": [0]}
OF_A_SHARD = {"fastkcl.shard_id": "s", "fastkcl.stream": "x"}


def changed(**columns: object) -> dict[str, object]:
    return {name: value for name, value in {**CANONICAL, **columns}.items() if value is not None}


@pytest.mark.parametrize(
    ("columns", "metadata", "error"),
    [
        (CANONICAL, {}, "no dead letter of fastkcl: its metadata name no shard"),
        (CANONICAL, {**OF_A_SHARD, "fastkcl.shard_id": "a\0b"}, "cannot be put into a child's environment"),
        (changed(sequenceNumber=None), OF_A_SHARD, "record 0: sequenceNumber is null"),
        (changed(sequenceNumber=["x"]), OF_A_SHARD, "record 0: sequenceNumber 'x': decimal digits"),
        (changed(data=None), OF_A_SHARD, "no column data"),
        (pa.table([[b""], [b""], ["k"]], ["data", "data", "partitionKey"]), OF_A_SHARD, "several columns data"),
        (changed(partitionKey=pa.array([None], pa.string())), OF_A_SHARD, "record 0: partitionKey is null"),
    ],
)
def test_a_bad_dead_letter_is_named(tmp_path: Path, columns: Any, metadata: dict[str, str], error: str) -> None:
    dead_letter(tmp_path, [(1, 0, "a")])
    table = pa.table(columns).replace_schema_metadata(metadata)
    with pa.ipc.new_file(tmp_path / "bad.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(SourceError, match=f"bad.arrow: {error}" if "environment" not in error else error):
        from_dead_letters(tmp_path).shards()


def test_a_dead_letter_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(1, 0, "a"), (2, 0, "b")])
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for data in (
        b"",
        b"x" * 100,
        whole[:-20],
        whole[: len(whole) // 2],
        whole.replace(b"\x01\0\0\0\x02\0\0\0", b"\xff" * 8),
    ):
        assert data != whole
        path.write_bytes(data)
        with pytest.raises(SourceError, match=r"2-0\.arrow: |1-0\.arrow: ") as caught:
            from_dead_letters(tmp_path).shards()
        assert "\n" not in str(caught.value)
    path.unlink()
    path.mkdir()
    with pytest.raises(SourceError, match=r"1-0\.arrow: no regular file"):
        from_dead_letters(tmp_path).shards()


def test_no_dead_letters(tmp_path: Path) -> None:
    (tmp_path / ".hidden.arrow").touch()
    with pytest.raises(SourceError, match=r"no dead letters \(\*\.arrow\) in this folder"):
        from_dead_letters(tmp_path)
    with pytest.raises(SourceError, match="no such file"):
        from_dead_letters(tmp_path / "x")
    _core.write_ipc_file(str(tmp_path / "empty.arrow"), [], OF_A_SHARD)
    with pytest.raises(SourceError, match="no record in its dead letters"):
        from_dead_letters(tmp_path).shards()


def test_letters_with_and_without_sub_numbers_are_not_mixed(tmp_path: Path) -> None:
    dead_letter(tmp_path, [(1, None, "a")])
    dead_letter(tmp_path, [(2, 0, "b")])
    with pytest.raises(SourceError, match=r"-1-0\.arrow: it has no sub-sequence numbers \(KCL 1\.x\)"):
        from_dead_letters(tmp_path).shards()
    dead_letter(tmp_path, [(3, None, "c")], shard=1)  # each shard for itself
    (tmp_path / "clicks-shardId-000000000000-1-0.arrow").unlink()
    assert [shard.dialect for shard in from_dead_letters(tmp_path).shards()] == [None, "legacy"]


# Plans.


def deliveries(plan: object) -> list[tuple[int, int]]:
    return [(step.start, step.stop) for step in plan.steps if isinstance(step, Deliver)]  # type: ignore[attr-defined]


def asks(plan: object) -> list[str]:
    return [step.request for step in plan.steps if isinstance(step, Ask)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("end", "dialect", "requests"),
    [
        (None, "modern", ["shardEnded"]),
        ("shard-end", "legacy", ["shardEnded"]),
        ("shutdown", "modern", ["shutdownRequested", "leaseLost"]),
        ("shutdown", "transitional", ["shutdownRequested", "leaseLost"]),
        ("shutdown", "legacy", []),
        ("lease-lost", "modern", ["leaseLost"]),
        ("eof", "modern", []),
    ],
)
def test_ends(end: str | None, dialect: str, requests: list[str]) -> None:
    (plan,) = make_plans(generate("tiny", records=25, batch_records=10), ReplayOptions(end=end, dialect=dialect))  # type: ignore[arg-type]
    assert deliveries(plan) == [(0, 10), (10, 20), (20, 25)]
    assert asks(plan) == requests


def test_the_distance_to_the_end_falls_to_zero() -> None:
    (plan,) = make_plans(generate("tiny", records=25, batch_records=10), ReplayOptions())
    assert [step.millis_behind_latest for step in plan.steps if isinstance(step, Deliver)] == [400, 200, 0]


def test_empty_batches_and_repeats() -> None:
    source = generate("tiny", records=4, batch_records=2)
    (plan,) = make_plans(source, ReplayOptions(repeat=2, empty_batches=1))
    assert deliveries(plan) == [(0, 2), (2, 2), (2, 4), (4, 4), (4, 6), (6, 6), (6, 8), (8, 8)]
    assert rises(plan.records)


def test_a_split_sends_keys_to_the_half_of_their_hash() -> None:
    source = generate("tiny", shards=2, records=50, batch_records=10)
    plans = make_plans(source, ReplayOptions(split_at=2))
    assert [plan.shard_id[-2:] for plan in plans] == ["00", "01", "02", "03", "04", "05"]
    assert [plan.parents for plan in plans] == [(), (), (0,), (0,), (1,), (1,)]
    assert deliveries(plans[0]) == [(0, 10), (10, 20)]
    assert asks(plans[0]) == ["shardEnded"]
    lower, upper = (plan.records.columns(0, len(plan.records)) for plan in plans[2:4])
    assert not set(lower.partition_keys) & set(upper.partition_keys)
    rest = sent(source)[20:50]
    assert sorted([*lower.partition_keys, *upper.partition_keys]) == sorted(row[2] for row in rest)
    for plan in plans[2:]:
        assert rises(plan.records)
        assert plan.records.place(0) > source.shards()[0].records.place(49)


def test_only_chosen_shards_are_split() -> None:
    source = generate("tiny", shards=3, records=50, batch_records=10)
    plans = make_plans(source, ReplayOptions(split_at=2, split_shards=(1,)))
    assert [plan.parents for plan in plans] == [(), (), (), (1,), (1,)]
    assert [plan.records_planned for plan in plans[:3]] == [50, 20, 50]
    assert sum(plan.records_planned for plan in plans) == 150


def test_a_merge_takes_the_rest_of_both() -> None:
    source = generate("tiny", shards=3, records=30, batch_records=10)
    plans = make_plans(source, ReplayOptions(merge_at=1))
    assert [plan.parents for plan in plans] == [(), (), (), (0, 1)]
    assert asks(plans[2]) == ["shardEnded"]
    assert deliveries(plans[2]) == [(0, 10), (10, 20), (20, 30)]
    merged = plans[3].records.columns(0, 40)
    rows = sent(source)
    assert sorted(merged.partition_keys) == sorted(row[2] for row in rows[10:30] + rows[40:60])
    assert rises(plans[3].records)


@pytest.mark.parametrize("aggregate", [1, 2, 7, 60])
def test_user_records_of_an_aggregate_share_a_sequence_number(aggregate: int) -> None:
    """Whatever slice is asked for, and payloads and keys are those without aggregates."""
    records = generate("tiny", records=50, aggregate=aggregate).shards()[0].records
    plain = generate("tiny", records=50).shards()[0].records.columns(0, 50)
    whole = records.columns(0, 50)
    assert (whole.data, whole.partition_keys) == (plain.data, plain.partition_keys)
    assert list(whole.sub_sequence_numbers) == [index % aggregate for index in range(50)]
    firsts = [plain.sequence_numbers[index // aggregate] for index in range(50)]
    assert whole.sequence_numbers == firsts
    assert whole.timestamps_millis == [plain.timestamps_millis[index // aggregate] for index in range(50)]
    assert rises(records)
    for start, stop in ((0, 1), (3, 3), (5, 23), (49, 50)):
        part = records.columns(start, stop)
        assert part.sequence_numbers == whole.sequence_numbers[start:stop]
        assert part.sub_sequence_numbers == whole.sub_sequence_numbers[start:stop]
        assert part.timestamps_millis == whole.timestamps_millis[start:stop]
        assert len(part.data) == stop - start


@pytest.mark.parametrize("settings", [{"split_at": 2}, {"merge_at": 2}, {"repeat": 3}], ids=str)
def test_an_aggregate_stays_one_in_child_shards_and_repeats(settings: dict[str, int]) -> None:
    source = generate("tiny", shards=2, records=60, batch_records=10, aggregate=5)
    plans = make_plans(source, ReplayOptions(**settings))  # type: ignore[arg-type]
    before = [row[3] for row in sent(source)]
    aggregates = {tuple(before[start : start + 5]) for start in range(0, 120, 5)}
    for plan in plans:
        columns = plan.records.columns(0, len(plan.records))
        assert rises(plan.records)
        assert list(columns.sub_sequence_numbers) == [index % 5 for index in range(len(columns))]
        assert len(set(columns.sequence_numbers)) == len(columns) // 5
        found = [(data or b"").hex() for data in columns.data]
        assert {tuple(found[start : start + 5]) for start in range(0, len(found), 5)} <= aggregates


def test_plans_that_cannot_be() -> None:
    source = generate("tiny", records=30, batch_records=10)
    with pytest.raises(SourceError, match="has 3 batches: nothing is left for a split after batch 3"):
        make_plans(source, ReplayOptions(split_at=3))
    with pytest.raises(SourceError, match="at least two shards"):
        make_plans(source, ReplayOptions(merge_at=1))
    with pytest.raises(ValueError, match="exclude each other"):
        ReplayOptions(split_at=1, merge_at=1)
    for index in (-1, 1):
        with pytest.raises(SourceError, match=f"there is no shard {index} to split; the last one is 0"):
            make_plans(source, ReplayOptions(split_at=1, split_shards=(index,)))
    with pytest.raises(ValueError, match="needs split_at"):
        ReplayOptions(split_shards=(0,))
    infinite, nan = float("inf"), float("nan")
    for name, *values in (
        ("repeat", 0, 10**20),
        ("write_size", 0, 10**20),
        ("empty_batches", -1, 10**20),
        ("rate", 0.0, 1e-300, infinite, nan),
        ("restarts", -1),
        ("answer_timeout", 0.0, 1e300, infinite, nan),
        ("exit_grace", 0.0, 1e7, infinite, nan),
        ("stream", ""),
    ):
        for value in values:
            with pytest.raises(ValueError, match=name):
                ReplayOptions(**{name: value})  # type: ignore[arg-type]


def test_a_capture_in_another_dialect_is_encoded_anew() -> None:
    path = DATA / "kcl-legacy-captures" / "split.shard0.in.jsonl"
    (own,) = make_plans(from_captures(path), ReplayOptions())
    (other,) = make_plans(from_captures(path), ReplayOptions(dialect="modern"))
    assert own.dialect == "legacy"
    assert all(step.line is not None for step in own.steps if isinstance(step, Deliver))
    assert all(step.line is None for step in other.steps if isinstance(step, Deliver))


def test_generate_refuses_what_it_cannot_make() -> None:
    with pytest.raises(ValueError, match="no profile 'x'; there are: iot"):
        generate("x", records=1)
    with pytest.raises(ValueError, match="aggregate must be at least 1"):
        generate("tiny", records=1, aggregate=0)
    with pytest.raises(ValueError, match="at least 1"):
        generate("iot", records=1, shards=0)
    with pytest.raises(ValueError, match="at most"):
        generate("iot", records=10**20)


def test_base64_of_the_encoder_is_the_standard_one() -> None:
    payloads = PROFILES["tiny"].payloads(100)
    message = json.loads(line("tiny", records=100))
    assert [record["data"] for record in message["records"]] == [base64.b64encode(data).decode() for data in payloads]
