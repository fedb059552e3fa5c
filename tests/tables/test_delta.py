"""DeltaSink: each record exactly once, whoever dies or wakes up, and whenever."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from fastkcl import Position, tables
from fastkcl.spark.schema import SCHEMA
from fastkcl.spark.sinks import DeltaSink, Shard, SinkError
from fastkcl.spark.sinks.rows import ShardRows
from fastkcl.tables import storage
from fastkcl.tables.delta import sink as delta_module
from fastkcl.tables.delta.actions import application_id, beginning, transactions
from fastkcl.tables.delta.log import newest_checkpoint
from fastkcl.tables.delta.sink import position, shards
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import LEAST_AGE
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)
from sink_helpers import (
    DELTA,
    NO_FILES,
    SHARD,
    FakeFrame,
    FakeSession,
    FakeWriter,
    Mortals,
    batch,
    delta_rows,
    race,
    rows,
)
from waiting import PATIENCE

SESSION: Any = FakeSession()
OTHER = Shard("clicks", "shardId-000000000001")


def opened(folder: Path, shard: Shard = SHARD, **options: Any) -> tuple[DeltaSink, Position | None]:
    sink = DeltaSink(folder, **options)
    return sink, sink.open(shard)


def stored(folder: Path, shard: Shard = SHARD) -> list[int]:
    """The sequence numbers that a reader of the table sees of a shard, in order."""
    if not DeltaTable.is_deltatable(str(folder)):
        return []
    of = (pc.field("stream") == shard.stream) & (pc.field("shard") == shard.shard_id)
    return sorted(map(int, delta_rows(folder).filter(of)["sequenceNumber"].to_pylist()))


def log_of(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "_delta_log").iterdir() if path.suffix == ".json")


def test_a_life(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink, place = opened(table)
    assert place is None
    assert sink.write(rows(1, 10), SESSION) == Position("10", 0)
    assert sink.write(rows(11, 12), SESSION) == Position("12", 0)
    read = delta_rows(table)
    assert stored(table) == list(range(1, 13))
    assert read.schema.names == [*SCHEMA.names, "stream", "shard"]
    assert read.schema.field("approximateArrivalTimestamp").type == pa.timestamp("us", "UTC")
    assert set(read["stream"].to_pylist()) == {"clicks"}
    assert set(read["shard"].to_pylist()) == {SHARD.shard_id}
    assert opened(table)[1] == Position("12", 0)
    handle = DeltaTable(table)
    assert shards(handle) == [SHARD]
    assert handle.count() == 12  # by the statistics in the log
    about = [commit["fastkcl"] for commit in handle.history() if "fastkcl" in commit]
    assert [(each["after"], each["upto"], each["rows"]) for each in about] == [
        ("10.0", "12.0", 2),
        ("start", "10.0", 10),
    ]
    # Nothing but what the log names, in a folder for each partition.
    in_folders = {
        str(path.relative_to(table)) for path in table.rglob("*") if path.is_file() and "_delta_log" not in path.parts
    }
    assert in_folders == {path.split(f"{table}/")[1] for path in handle.file_uris()}
    assert {path.split("/")[0] for path in in_folders} == {"stream=clicks"}


def test_what_is_delivered_again_is_dropped(tmp_path: Path) -> None:
    opened(tmp_path)[0].write(rows(1, 10), SESSION)
    sink, _ = opened(tmp_path)
    assert sink.write(rows(3, 7), SESSION) == Position("10", 0)
    assert sink.write(rows(5, 14), SESSION) == Position("14", 0)
    assert stored(tmp_path) == list(range(1, 15))


def test_aggregates_are_cut_between_their_records(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    sink.write(ShardRows([batch([(9, 0), (10, 0), (10, 1)])], legacy=False), SESSION)
    assert opened(tmp_path)[1] == Position("10", 1)
    again = ShardRows([batch([(10, 0), (10, 1), (10, 2), (11, 0)])], legacy=False)
    assert sink.write(again, SESSION) == Position("11", 0)
    assert stored(tmp_path) == [9, 10, 10, 10, 11]


def test_the_legacy_dialect_drops_by_sequence_number(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    assert sink.write(rows(1, 4, legacy=True), SESSION) == Position("4")
    sink, place = opened(tmp_path)
    assert place is not None
    assert tuple(place) == ("4", None)
    sink.write(rows(3, 6, legacy=True), SESSION)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]


def created(folder: Path, schema: StructType = SCHEMA, **options: Any) -> DeltaTable:
    whole = StructType([*schema.fields, StructField("stream", StringType()), StructField("shard", StringType())])
    options = {"partition_by": ["stream", "shard"], **options}
    return DeltaTable.create(folder, Schema.from_json(whole.json()), **options)


def set_transactions(handle: DeltaTable, transactions: list[Transaction]) -> None:
    properties = CommitProperties(app_transactions=transactions)
    handle.create_write_transaction([], "append", handle.schema(), commit_properties=properties)


@pytest.mark.parametrize("digits", [1, 18, 19, 20, 37, 38, 56, 57, 112, 128, 129])
@pytest.mark.parametrize("sub", [None, 0, 1, 2**63 - 1])
def test_positions_in_transactions(tmp_path: Path, digits: int, sub: int | None) -> None:
    """Each, from one to the next larger one, and where a piece of 62 bits is all zeros or all ones."""
    bits = (10 ** (digits - 1)).bit_length() // 62 * 62
    numbers = {10 ** (digits - 1), 2**bits - 1, 2**bits, 2**bits + 1, 10**digits - 1}
    created(tmp_path)
    for number in sorted(numbers):
        place = Position(str(number), sub)
        actions = [action["txn"] for action in transactions(SHARD, place)]
        set_transactions(DeltaTable(tmp_path), [Transaction(each["appId"], each["version"]) for each in actions])
        found = position(DeltaTable(tmp_path), SHARD)
        assert found is not None
        assert tuple(found) == tuple(place)
    assert position(DeltaTable(tmp_path), OTHER) is None


def test_a_position_has_no_more_digits_than_the_service_gives(tmp_path: Path) -> None:
    created(tmp_path)
    names = [application_id(SHARD, f"sequence-number/{index}") for index in range(8)]
    set_transactions(DeltaTable(tmp_path), [Transaction(name, 1) for name in names])
    with pytest.raises(SinkError, match="the position of .* is damaged"):
        position(DeltaTable(tmp_path), SHARD)


def test_positions_of_any_length(tmp_path: Path) -> None:
    first = 10**128
    for start in (0, 2**62 - 2, first, first + 5):
        opened(tmp_path)[0].write(rows(start, start + 4), SESSION)
    assert stored(tmp_path) == [
        *range(5),
        *range(2**62 - 2, 2**62 + 3),
        *range(first, first + 10),
    ]


@pytest.mark.parametrize("name", ["a/b", "..", ".", "%2F", "ü ß", "a=b", "_x", "a'\"\\b"])
def test_streams_of_any_name_and_shards_of_one_name(tmp_path: Path, name: str) -> None:
    table = tmp_path / "t"
    for shard in (Shard(name, "s"), Shard("other", "s")):
        sink, place = opened(table, shard)
        assert place is None
        sink.write(rows(1, 3), SESSION)
        sink.write(rows(4, 5), SESSION)
    for shard in (Shard(name, "s"), Shard("other", "s")):
        assert stored(table, shard) == [1, 2, 3, 4, 5]
        assert opened(table, shard)[1] == Position("5", 0)
    assert shards(DeltaTable(table)) == sorted([Shard(name, "s"), Shard("other", "s")], key=lambda each: each.stream)
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_names_cannot_be_mixed_up(tmp_path: Path) -> None:
    opened(tmp_path, Shard("a", "b/c"))[0].write(rows(1, 3), SESSION)
    assert opened(tmp_path, Shard("a/b", "c"))[1] is None
    for shard in (Shard("", "c"), Shard("a", "")):
        with pytest.raises(ValueError, match="needs the name"):
            opened(tmp_path, shard)


def transformed(table: Callable[[pa.Table], pa.Table], schema: StructType = SCHEMA) -> Callable[[Any], Any]:
    return lambda df: FakeFrame(table(df.table), schema, 1)


def test_transform(tmp_path: Path) -> None:
    schema = StructType([StructField("sequenceNumber", StringType(), False), StructField("n", ArrayType(LongType()))])

    def two_columns(table: pa.Table) -> pa.Table:
        table = table.filter(pc.equal(table["sequenceNumber"], "2")).select(["sequenceNumber"])
        return table.append_column("n", pa.array([[1, None]] * len(table), pa.list_(pa.int64())))

    sink, _ = opened(tmp_path, transform=transformed(two_columns, schema))
    sink.write(rows(1, 3), SESSION)
    assert delta_rows(tmp_path).to_pylist() == [
        {"sequenceNumber": "2", "n": [1, None], "stream": "clicks", "shard": SHARD.shard_id}
    ]
    # Nothing is left of these, and the position moves all the same.
    assert sink.write(rows(4, 6), SESSION) == Position("6", 0)
    assert opened(tmp_path)[1] == Position("6", 0)
    assert len(DeltaTable(tmp_path).file_uris()) == 1


@pytest.mark.parametrize(("transform", "asked"), [(None, 1), (transformed(lambda table: table), 3)])
def test_a_schema_that_cannot_change_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transform: Any, asked: int
) -> None:
    """Spark Connect would be sent all rows again for each question."""
    count = []
    monkeypatch.setattr(FakeFrame, "schema", property(lambda _: count.append(1) or SCHEMA, lambda *_: None), False)
    sink, _ = opened(tmp_path, transform=transform)
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), SESSION)
    assert len(count) == asked
    assert stored(tmp_path) == list(range(1, 10))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (StructField("Stream", StringType()), "column Stream: the table has it already"),
        (StructField("x", DayTimeIntervalType()), "column x: its type interval day to second is none of Delta's"),
        (StructField("x", MapType(StringType(), StructType([StructField("y", VariantType())]))), "x: its type variant"),
    ],
)
def test_a_dataframe_that_fits_no_table(tmp_path: Path, column: StructField, why: str) -> None:
    sink, _ = opened(tmp_path, transform=transformed(lambda table: table, StructType([*SCHEMA.fields, column])))
    with pytest.raises(SinkError, match=why):
        sink.write(rows(1, 3), SESSION)
    assert list(tmp_path.iterdir()) == []


def test_a_table_made_by_others(tmp_path: Path) -> None:
    """May have more columns, in another order, and comments."""
    more = StructType([StructField("note", StringType(), True, {"comment": "mine"}), *reversed(SCHEMA.fields)])
    created(tmp_path, more, configuration={"delta.appendOnly": "true"})
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [1, 2, 3]
    assert delta_rows(tmp_path)["note"].to_pylist() == [None] * 3


def test_a_column_that_deltalake_adds(tmp_path: Path) -> None:
    """As docs/sinks.md says: after that, a restart writes it."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)

    def referred(table: pa.Table) -> pa.Table:
        return table.append_column("referrer", pa.array(["/"] * len(table)))

    wider = transformed(referred, StructType([*SCHEMA.fields, StructField("referrer", StringType())]))
    with pytest.raises(SinkError, match="it has no column referrer: add it to the table"):
        opened(tmp_path, transform=wider)[0].write(rows(4, 5), SESSION)
    DeltaTable(tmp_path).alter.add_columns([Field("referrer", PrimitiveType("string"))])
    opened(tmp_path, transform=wider)[0].write(rows(4, 5), SESSION)
    assert stored(tmp_path) == [1, 2, 3, 4, 5]
    assert sorted(delta_rows(tmp_path)["referrer"].to_pylist(), key=str) == ["/", "/", None, None, None]


def test_each_type_that_delta_has(tmp_path: Path) -> None:
    deep = {"type": "map", "keyType": "string", "valueType": "decimal(10,0)", "valueContainsNull": False}
    kinds: list[Any] = [
        *("string", "long", "integer", "short", "byte", "float", "double", "decimal(38,9)", "boolean", "binary"),
        *("date", "timestamp", "timestamp_ntz"),
        {"type": "array", "elementType": deep, "containsNull": False},
    ]
    fields = [{"name": f"c{index}", "type": kind, "nullable": True, "metadata": {}} for index, kind in enumerate(kinds)]
    schema = StructType.fromJson({"fields": fields})
    # The oldest PySpark and the newest give a timestamp's zone by different arguments: neither is asked.
    at = kinds.index("timestamp")
    fields[at] = {**fields[at], "type": "timestamp_ntz"}
    zoneless = StructType.fromJson({"fields": fields})
    arrow = to_arrow_schema(zoneless)
    arrow = arrow.set(at, arrow.field(at).with_type(pa.timestamp("us", "UTC")))

    def nulls(table: pa.Table) -> pa.Table:
        return pa.table([pa.nulls(len(table), field.type) for field in arrow], schema=arrow)

    sink, _ = opened(tmp_path, transform=transformed(nulls, schema))
    sink.write(rows(1, 3), SESSION)
    sink.write(rows(4, 5), SESSION)
    assert len(delta_rows(tmp_path)) == 5


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no partitions": (lambda path: created(path, partition_by=[]), "partitioned by \\[\\], not by"),
    "not null": (
        lambda path: created(path, StructType([*SCHEMA.fields, StructField("n", LongType(), False)])),
        "column n is NOT NULL",
    ),
    "constraint": (
        lambda path: created(path).alter.add_constraint({"late": "subSequenceNumber < 5"}),
        "nobody would check its constraint late",
    ),
    "generated": (
        lambda path: created(
            path,
            StructType([*SCHEMA.fields, StructField("n", IntegerType(), True, {"delta.generationExpression": '"1"'})]),
        ),
        "nobody would keep to delta.generationExpression of its column n",
    ),
    "forgetful": (
        lambda path: created(path, configuration={"delta.setTransactionRetentionDuration": "interval 7 days"}),
        "would make it forget the positions",
    ),
    "another type": (
        lambda path: created(path, StructType([*SCHEMA.fields[:3], StructField("subSequenceNumber", StringType())])),
        "its column subSequenceNumber is string, and long was to be written",
    ),
    "no such column": (
        lambda path: created(path, StructType(SCHEMA.fields[:4])),
        "no column approximateArrivalTimestamp: add it",
    ),
    "features": (
        lambda path: (
            created(path),
            edit_protocol(path, {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}),
        ),
        "features that are unknown here: rowTracking",
    ),
    "mapped": (
        lambda path: (created(path), edit_configuration(path, {"delta.columnMapping.mode": "name"})),
        "other names in its files",
    ),
}


def edit_protocol(folder: Path, protocol: dict[str, Any]) -> None:
    edit_log(folder, "protocol", protocol)


def edit_configuration(folder: Path, configuration: dict[str, str]) -> None:
    edit_log(folder, "metaData", {"configuration": configuration})


def edit_log(folder: Path, action: str, change: dict[str, Any]) -> None:
    """As other writers could have made the table, which deltalake does not."""
    path = folder / "_delta_log" / log_of(folder)[0]
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for each in actions:
        each.get(action, {}).update(change)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in actions))


@pytest.mark.parametrize(("make", "why"), REFUSED.values(), ids=REFUSED)
def test_a_table_whose_rules_nobody_would_keep(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    make(tmp_path)
    before = log_of(tmp_path)

    def both() -> None:
        opened(tmp_path)[0].write(rows(1, 3), SESSION)

    with pytest.raises(SinkError, match=why):
        both()
    assert log_of(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["_delta_log"]


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fails(df: Any) -> Any:
        df.write.parquet = lambda url: (Path(url.removeprefix("file://")).mkdir(), 1 / 0)
        return df

    with pytest.raises(ZeroDivisionError):
        opened(tmp_path, transform=fails)[0].write(rows(1, 3), SESSION)
    assert list((tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}").iterdir()) == []
    assert not (tmp_path / "_delta_log").exists()
    sink, place = opened(tmp_path)
    assert place is None
    sink.write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [1, 2, 3]


def test_no_folder_of_a_url() -> None:
    with pytest.raises(ValueError, match="DeltaSink needs a folder on a POSIX file system, not s3://bucket"):
        DeltaSink("s3://bucket/table")
    with pytest.raises(ValueError, match="%41': deltalake would take the % for an escape"):
        DeltaSink("/data/a%41")


@pytest.mark.parametrize("char", ["\\", "[", "]", "^", "|", "\n", "\x7f"])
def test_a_folder_that_deltalake_does_not_open(tmp_path: Path, char: str) -> None:
    for writer in (DeltaSink, tables.DeltaTable):
        with pytest.raises(ValueError, match="deltalake opens no table with .* in its path: choose a path without"):
            writer(tmp_path / f"a{char}b")


@pytest.mark.parametrize(("name", "why"), [("a\udcffb", "no UTF-8"), ("t/_delta_log/u", "within the log")])
def test_a_folder_in_which_no_reader_finds_a_table(tmp_path: Path, name: str, why: str) -> None:
    for writer in (DeltaSink, tables.DeltaTable):
        with pytest.raises(ValueError, match=f"{why}.*: choose another folder"):
            writer(tmp_path / name)


@pytest.mark.parametrize("name", ["file:", "myfile:"])
def test_a_folder_whose_name_is_like_a_urls(tmp_path: Path, name: str) -> None:
    opened(tmp_path / name)[0].write(rows(1, 3), SESSION)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert stored(tmp_path / name) == [1, 2, 3]


def test_a_path_with_a_space(tmp_path: Path) -> None:
    opened(tmp_path / "a ü#b")[0].write(rows(1, 3), SESSION)
    assert stored(tmp_path / "a ü#b") == [1, 2, 3]


# ---- other people's commits -------------------------------------------------------------------------------------


def before_commit(monkeypatch: pytest.MonkeyPatch, *happens: Callable[[], object]) -> None:
    """Let these happen, one each time, between the opening of a handle and the commit with it."""
    commit = DeltaSink._commit
    left = list(happens)

    def interrupted(*arguments: Any, **options: Any) -> bool:
        if left:
            left.pop(0)()
        return commit(*arguments, **options)

    monkeypatch.setattr(DeltaSink, "_commit", interrupted)


def staged_by_a_sleeper(folder: Path) -> list[Path]:
    """The files in the table's folder that no entry names."""
    named = {unquote(path) for path in DeltaTable(folder).get_add_actions().column("path").to_pylist()}
    return [path for path in folder.rglob("*.parquet") if path.relative_to(folder).as_posix() not in named]


def test_a_sleeper_whose_files_are_gone_writes_them_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asleep for days right before its entry, and `fastkcl sink orphans --delete` or VACUUM meanwhile."""
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)

    def sleep() -> None:
        for file in staged_by_a_sleeper(tmp_path):
            file.unlink()

    before_commit(monkeypatch, sleep)
    assert sink.write(rows(4, 6), SESSION) == Position("6", 0)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert staged_by_a_sleeper(tmp_path) == []


def test_files_older_than_an_orphan_may_be_are_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are there now; before the entry is made they may be gone."""
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    now = [0.0]
    monkeypatch.setattr(delta_module, "running_seconds", lambda: now[0])
    first: list[str] = []
    parquet = FakeWriter.parquet

    def slow(writer: FakeWriter, url: str) -> None:
        parquet(writer, url)
        first.append(url)
        now[0] += LEAST_AGE if len(first) == 1 else 1

    monkeypatch.setattr(FakeWriter, "parquet", slow)
    assert sink.write(rows(4, 6), SESSION) == Position("6", 0)
    assert len(first) == 2
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert staged_by_a_sleeper(tmp_path) == []


def test_what_fences_off_a_zombie_of_an_earlier_version(tmp_path: Path) -> None:
    """It commits by deltalake: a handle older than a commit of the same application id is refused."""
    created(tmp_path)
    old, another = DeltaTable(tmp_path), DeltaTable(tmp_path)

    def commit(handle: DeltaTable, app: str, version: int) -> None:
        set_transactions(handle, [Transaction(app, version)])

    commit(DeltaTable(tmp_path), "a", 5)
    assert old.transaction_version("a") is None
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        commit(old, "a", 6)
    commit(another, "b", 1)
    commit(DeltaTable(tmp_path), "a", 4)
    assert DeltaTable(tmp_path).transaction_version("a") == 4


def test_other_shards_are_no_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    staged: list[str] = []
    parquet = FakeWriter.parquet
    monkeypatch.setattr(FakeWriter, "parquet", lambda writer, url: (staged.append(url), parquet(writer, url)))
    other, _ = opened(tmp_path, OTHER)

    def others() -> None:
        for number in range(1, 9):
            other.write(rows(number, number), SESSION)

    before_commit(monkeypatch, others)
    opened(tmp_path)[0].write(rows(4, 6), SESSION)
    assert len([url for url in staged if SHARD.shard_id in url]) == 1
    assert (stored(tmp_path), stored(tmp_path, OTHER)) == ([1, 2, 3, 4, 5, 6], list(range(1, 9)))


def test_commits_of_another_kind_are_stepped_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New properties, new columns, a DELETE, compaction: the commit is made again, of the same files."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    staged: list[str] = []
    parquet = FakeWriter.parquet
    monkeypatch.setattr(FakeWriter, "parquet", lambda writer, url: (staged.append(url), parquet(writer, url)))
    before_commit(
        monkeypatch,
        lambda: DeltaTable(tmp_path).alter.set_table_properties({"delta.logRetentionDuration": "interval 40 days"}),
        lambda: DeltaTable(tmp_path).alter.add_columns([Field("note", PrimitiveType("string"))]),
        lambda: DeltaTable(tmp_path).optimize.compact(),
    )
    opened(tmp_path)[0].write(rows(4, 6), SESSION)
    before_commit(monkeypatch, lambda: DeltaTable(tmp_path).delete("sequenceNumber = '2'"))
    opened(tmp_path)[0].write(rows(6, 8), SESSION)
    assert stored(tmp_path) == [1, 3, 4, 5, 6, 7, 8]
    assert len(staged) == 2


def test_a_rule_that_is_new_at_the_commit_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    before_commit(
        monkeypatch,
        lambda: DeltaTable(tmp_path).alter.add_constraint({"early": "subSequenceNumber < 5"}),
    )
    with pytest.raises(SinkError, match="constraint early"):
        opened(tmp_path)[0].write(rows(4, 6), SESSION)
    assert stored(tmp_path) == [1, 2, 3]


def test_a_conflict_without_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)

    sink, _ = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(delta_module, "_PAUSE", 0)
        patch.setattr(DeltaSink, "_commit", lambda *_: False)
        with pytest.raises(SinkError, match="100 commits have met others"):
            sink.write(rows(4, 6), SESSION)
    assert sink.write(rows(4, 6), SESSION) == Position("6", 0)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_a_commit_whose_answer_is_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, _ = opened(tmp_path)
    commit = DeltaSink._commit

    for error in (OSError("after it"), None):

        def lost(*arguments: Any, error: Exception | None = error) -> bool:
            commit(*arguments)
            if error is not None:
                raise error
            return False

        with monkeypatch.context() as patch:
            patch.setattr(DeltaSink, "_commit", lost)
            if error is not None:
                with pytest.raises(OSError, match="after it"):
                    sink.write(rows(1, 3), SESSION)
            else:
                assert sink.write(rows(2, 6), SESSION) == Position("6", 0)
    assert sink.write(rows(1, 8), SESSION) == Position("8", 0)
    assert stored(tmp_path) == list(range(1, 9))


def test_a_zombie_is_fenced_off_at_the_commit_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    zombie, successor = opened(tmp_path)[0], opened(tmp_path)[0]
    before_commit(monkeypatch, lambda: successor.write(rows(2, 7), SESSION))
    assert zombie.write(rows(4, 9), SESSION) == Position("9", 0)
    assert stored(tmp_path) == list(range(1, 10))
    assert zombie.write(rows(8, 10), SESSION) == Position("10", 0)
    assert successor.write(rows(8, 12), SESSION) == Position("12", 0)
    assert stored(tmp_path) == list(range(1, 13))


def test_another_table_in_its_place_is_told(tmp_path: Path) -> None:
    from shutil import rmtree

    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    rmtree(tmp_path / "_delta_log")
    with pytest.raises(SinkError, match="the table was removed: restore it"):
        sink.write(rows(4, 6), SESSION)
    created(tmp_path)
    with pytest.raises(SinkError, match=r"is another table now \(id .*, was .*\): start again"):
        sink.write(rows(4, 6), SESSION)


def test_another_table_that_is_further_is_told_as_well(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path / "t")
    sink.write(rows(1, 3), SESSION)
    opened(tmp_path / "other")[0].write(rows(1, 9), SESSION)
    (tmp_path / "t").rename(tmp_path / "before")
    (tmp_path / "other").rename(tmp_path / "t")
    for _ in range(2):
        with pytest.raises(SinkError, match="is another table now"):
            sink.write(rows(4, 12), SESSION)
        with pytest.raises(SinkError, match="is another table now"):
            sink.open(SHARD)
    assert stored(tmp_path / "t") == list(range(1, 10))


@pytest.mark.parametrize("runs", [[], [(4, 5)], [(4, 6)], [(4, 5), (6, 8)]])
def test_an_older_copy_that_others_have_continued_is_told(tmp_path: Path, runs: list[tuple[int, int]]) -> None:
    table = tmp_path / "table"
    sink, _ = opened(table)
    sink.write(rows(1, 3), SESSION)
    shutil.copytree(table, tmp_path / "copy")
    sink.write(rows(4, 6), SESSION)
    shutil.rmtree(table)
    (tmp_path / "copy").rename(table)
    other, _ = opened(table)
    for run in runs:
        other.write(rows(*run), SESSION)
    before = stored(table)
    for _ in range(2):
        with pytest.raises(SinkError, match="is another entry than the one|ends at 1 now: entries are gone"):
            sink.write(rows(7, 9), SESSION)
        with pytest.raises(SinkError, match="is another entry than the one|ends at 1 now: entries are gone"):
            sink.open(SHARD)
    assert stored(table) == before


DAMAGED = {
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "missing": lambda path: path.unlink(),
}


def with_a_line_of_zeros(path: Path) -> None:
    first, second, *others = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([first, bytes(len(second)), *others]))


DAMAGED_ENTRIES = {**DAMAGED, "zeros in it": with_a_line_of_zeros}


@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize("how", DAMAGED_ENTRIES)
def test_an_entry_that_is_damaged_is_told(tmp_path: Path, how: str, version: int) -> None:
    sink, _ = opened(tmp_path)
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), SESSION)
    DAMAGED_ENTRIES[how](tmp_path / "_delta_log" / f"{version:020d}.json")
    if how == "missing" and version == 3:  # nothing tells that it was there, but who has seen it
        assert opened(tmp_path)[1] == Position("6", 0)
    else:
        with pytest.raises(SinkError, match=f"{version:020d}.json: (damaged|missing).*recovery.md"):
            opened(tmp_path)
        state = inspect_table(tmp_path)
        assert not state.ok
        assert f"{version:020d}.json: " in state.damage[0]
    if version == 3:  # who is moved on looks at the newest one, and at those after it
        with pytest.raises(SinkError, match="damaged|is another entry|ends at 2 now"):
            sink.write(rows(10, 12), SESSION)


@pytest.mark.parametrize("version", range(9))
def test_an_empty_entry_before_a_checkpoint_is_named_by_inspect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Writers and readers do not need it."""
    with_checkpoints(tmp_path, monkeypatch)
    (tmp_path / "_delta_log" / f"{version:020d}.json").write_bytes(b"")
    assert opened(tmp_path)[1] == Position("9", 0)
    state = inspect_table(tmp_path)
    assert not state.ok
    assert f"{version:020d}.json: damaged, 0 bytes" in state.damage[0]


def test_a_checkpoint_without_all_of_its_parts_hides_no_damage(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), SESSION)
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    (log / "_last_checkpoint").unlink()
    part = (log / f"{3:020d}.checkpoint.parquet").rename(log / f"{3:020d}.checkpoint.{1:010d}.{2:010d}.parquet")
    assert opened(tmp_path)[1] == Position("9", 0)
    (log / f"{2:020d}.json").write_bytes(b"")
    with pytest.raises(SinkError, match=f"{2:020d}.json: damaged, 0 bytes"):
        opened(tmp_path)
    shutil.copy(part, log / f"{3:020d}.checkpoint.{2:010d}.{2:010d}.parquet")
    assert newest_checkpoint(log, storage.names(log))[0] == 3


@pytest.mark.parametrize("name", ["bak", "3", f"{3:010d}.{1:010d}", f"{1:010d}.{2:010d}"])
def test_a_checkpoint_with_a_name_that_deltalake_does_not_take_is_none(tmp_path: Path, name: str) -> None:
    sink, _ = opened(tmp_path)
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), SESSION)
    DeltaTable(tmp_path).create_checkpoint()
    log = tmp_path / "_delta_log"
    (log / f"{3:020d}.checkpoint.parquet").rename(log / f"{3:020d}.checkpoint.{name}.parquet")
    assert f"it names {3:020d}.checkpoint" in inspect_table(tmp_path).damage[0]
    assert opened(tmp_path)[1] == Position("9", 0)  # by the log, with _last_checkpoint set aside
    (log / f"{2:020d}.json").write_bytes(b"")
    with pytest.raises(SinkError, match=f"{2:020d}.json: damaged, 0 bytes"):
        opened(tmp_path)


@pytest.mark.parametrize("lines", range(1, 5))
def test_an_entry_that_is_cut_at_the_end_of_a_line_is_told(tmp_path: Path, lines: int) -> None:
    sink, _ = opened(tmp_path)
    for first in (1, 4):
        sink.write(rows(first, first + 2), SESSION)
    path = tmp_path / "_delta_log" / f"{2:020d}.json"
    text = path.read_bytes().splitlines(keepends=True)
    assert len(text) == 5  # commitInfo, two files, a sequence number, a sub-sequence number
    path.write_bytes(b"".join(text[:lines]))
    with pytest.raises(SinkError, match=f"{2:020d}.json: damaged, cut off at the end of a line .*recovery.md"):
        opened(tmp_path)
    assert f"{2:020d}.json: damaged, cut off" in inspect_table(tmp_path).damage[0]


def test_an_entry_of_deltalake_that_is_cut_at_the_end_of_a_line_is_told(tmp_path: Path) -> None:
    """Whole, each kind is sound; without its last file it is not."""
    sink, _ = opened(tmp_path)
    for first in (1, 4, 7):
        sink.write(rows(first, first + 2), SESSION)
    some = DeltaTable(tmp_path).to_pyarrow_table().slice(0, 2)
    kinds: list[Callable[[DeltaTable], object]] = [
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["sequenceNumber"]),
        lambda table: table.delete("sequenceNumber = '4'"),
        lambda table: table.update({"partitionKey": "'k'"}, predicate="sequenceNumber = '5'"),
        lambda table: (
            table.merge(some, "s.sequenceNumber = t.sequenceNumber", source_alias="s", target_alias="t")
            .when_matched_update_all()
            .execute()
        ),
        lambda table: write_deltalake(table, some, mode="append"),
        lambda table: table.restore(3),
        lambda table: write_deltalake(table, some, mode="overwrite"),
        lambda table: write_deltalake(table, some.slice(0, 0), mode="append"),
    ]
    log = tmp_path / "_delta_log"
    told = 0
    for change in kinds:
        change(DeltaTable(tmp_path))
        assert opened(tmp_path)[1] == Position("9", 0)
        path = max(log.glob("*.json"))
        whole = path.read_bytes()
        lines = whole.split(b"\n")
        if lines[-1].startswith((b'{"add":', b'{"remove":')) and b'"operation":"RESTORE"' not in lines[0]:
            path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
            with pytest.raises(SinkError, match=r"cut off at the end of a line \(it names \d of \d files\)"):
                opened(tmp_path)
            path.write_bytes(whole)
            told += 1
    assert told == 7


@pytest.mark.parametrize("what", ["a link that leads nowhere", "a folder", "a FIFO"])
@pytest.mark.parametrize("name", [f"{1:020d}.json", f"{10:020d}.json", "NEWEST", "_last_checkpoint"])
def test_what_is_no_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    """It is not read, which a FIFO would keep for ever."""
    with_checkpoints(tmp_path, monkeypatch)
    name = name.replace("NEWEST", NEWEST)
    NO_FILES[what](tmp_path / "_delta_log" / name)
    with pytest.raises(SinkError, match=f"{name}: .* is in the place of a file: restore .*recovery.md"):
        opened(tmp_path)
    state = inspect_table(tmp_path)
    assert not state.ok
    assert f"{name}: " in state.damage[0]


@pytest.mark.parametrize(("name", "most"), [(f"{9:020d}.json", "1,073,741,824"), ("_last_checkpoint", "67,108,864")])
def test_a_file_that_is_too_large_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: str
) -> None:
    with_checkpoints(tmp_path, monkeypatch)
    os.truncate(tmp_path / "_delta_log" / name, 1 << 40)
    told = f"{name}: damaged, 1,099,511,627,776 bytes, and at most {most} are read: .*recovery.md"
    with pytest.raises(SinkError, match=told):
        opened(tmp_path)


def test_where_checkpoints_are_made_is_looked_at(tmp_path: Path) -> None:
    opened(tmp_path / "table")[0].write(rows(1, 3), SESSION)
    (tmp_path / "table" / "_fastkcl_checkpoints").symlink_to(tmp_path)
    assert "_fastkcl_checkpoints: leads elsewhere" in inspect_table(tmp_path / "table").damage[0]


def with_checkpoints(folder: Path, monkeypatch: pytest.MonkeyPatch, expected: Sequence[int] = (4, 8)) -> DeltaSink:
    """Versions 0 to 9, with checkpoints of 4 and 8."""
    monkeypatch.setattr(delta_module, "_CHECKPOINT_INTERVAL", 4)
    sink, _ = opened(folder)
    for number in range(1, 10):
        sink.write(rows(number, number), SESSION)
    assert [int(path.name[:20]) for path in sorted((folder / "_delta_log").glob("*.checkpoint.parquet"))] == list(
        expected
    )
    return sink


NEWEST = f"{8:020d}.checkpoint.parquet"


@pytest.mark.parametrize("name", [NEWEST, "_last_checkpoint"])
@pytest.mark.parametrize("how", DAMAGED)
def test_a_checkpoint_that_is_damaged_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str, name: str
) -> None:
    with_checkpoints(tmp_path, monkeypatch)
    DAMAGED[how](tmp_path / "_delta_log" / name)
    try:
        DeltaTable(tmp_path).transaction_version("x")
        opens = True
    except Exception:
        opens = False
    if not opens:
        state = inspect_table(tmp_path)
        assert (state.ok, [shard.ok for shard in state.shards]) == (False, [True])
        assert "damaged checkpoint" in state.damage[0]
    sink, place = opened(tmp_path)
    assert place == Position("9", 0)
    assert ("a damaged checkpoint" in caplog.text) is not opens
    assert sink.write(rows(8, 14), SESSION) == Position("14", 0)
    assert stored(tmp_path) == list(range(1, 15))
    assert opens or inspect_table(tmp_path).ok


def in_json(log: Path) -> Path:
    """Have version 8's checkpoint in JSON, as version 2 of checkpoints may be, with the last file in a sidecar."""
    actions: dict[Any, dict[str, Any]] = {}
    for version in range(9):
        for line in (log / f"{version:020d}.json").read_text().splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind != "commitInfo":
                actions[kind, action.get("appId", action.get("path"))] = {kind: action}
    features = {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}
    actions["protocol", None] = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    added = actions.pop([key for key in actions if key[0] == "add"][-1])
    sidecar = log / "_sidecars" / "0f8fad5b-d9cb-469f-a165-70867728950e.parquet"
    sidecar.parent.mkdir()
    whole = pq.read_table(log / NEWEST, columns=["add"])
    names = [None if add is None else add["path"] for add in whole["add"].to_pylist()]
    pq.write_table(whole.slice(names.index(added["add"]["path"]), 1), sidecar)
    about = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 0}
    lines = [{"checkpointMetadata": {"version": 8}}, *actions.values(), {"sidecar": about}]
    for name in (NEWEST, "_last_checkpoint"):
        (log / name).unlink()
    path = log / f"{8:020d}.checkpoint.7c9e6679-7425-40de-944b-e07fc1f90ae7.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("how", [*DAMAGED, "sidecar gone", "sidecar cut"])
def test_a_checkpoint_in_json_that_is_damaged_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    with_checkpoints(tmp_path, monkeypatch)
    path = in_json(tmp_path / "_delta_log")
    assert len(DeltaTable(tmp_path).file_uris()) == 9
    assert inspect_table(tmp_path).ok
    (sidecar,) = (tmp_path / "_delta_log" / "_sidecars").iterdir()
    if how == "sidecar gone":
        sidecar.unlink()
    else:
        (DAMAGED["cut off"] if how == "sidecar cut" else DAMAGED[how])(sidecar if how == "sidecar cut" else path)
    assert opened(tmp_path)[1] == Position("9", 0)
    assert stored(tmp_path) == list(range(1, 10))
    assert (f"{path}: a damaged checkpoint" in caplog.text) is (how not in ("empty", "missing"))  # these count as none
    assert inspect_table(tmp_path).ok is (how != "empty")


def test_a_checkpoint_in_the_place_of_an_empty_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = with_checkpoints(tmp_path, monkeypatch)
    there = tmp_path / "_delta_log" / f"{12:020d}.checkpoint.parquet"
    there.touch()
    for number in range(10, 14):
        sink.write(rows(number, number), SESSION)
    assert there.stat().st_size > 0
    assert inspect_table(tmp_path).ok
    assert stored(tmp_path) == list(range(1, 14))


@pytest.mark.parametrize("where", ["elsewhere", "table/_fastkcl_checkpoints"])
def test_nothing_of_others_is_removed_where_checkpoints_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    (tmp_path / "table").mkdir()
    letters = tmp_path / where / "letters"
    letters.mkdir(parents=True)
    ours = tmp_path / where / "0123456789abcdef"
    ours.mkdir()
    for folder in (letters, ours):
        os.utime(folder, (0, 0))
    if where == "elsewhere":
        (tmp_path / "table" / "_fastkcl_checkpoints").symlink_to(tmp_path / where)
    with_checkpoints(tmp_path / "table", monkeypatch, [4, 8] if where != "elsewhere" else [])
    assert (letters.exists(), ours.exists()) == (True, where == "elsewhere")
    assert ("leads elsewhere" in caplog.text) is (where == "elsewhere")


HOSTILE = [b'{"version": 1e999}', b"[" * 100_000, b'{"version": [8]}', b'{"version": "x"}', b"8", b"\xff"]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_of_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    with_checkpoints(tmp_path, monkeypatch)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_bytes(text)
    assert "_last_checkpoint" in inspect_table(tmp_path).damage[0]
    sink, place = opened(tmp_path)
    assert place == Position("9", 0)
    for number in range(10, 14):
        sink.write(rows(number, number), SESSION)
    assert inspect_table(tmp_path).ok


def test_a_checkpoint_that_nothing_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_checkpoints(tmp_path, monkeypatch)
    for version in range(7):
        (tmp_path / "_delta_log" / f"{version:020d}.json").unlink()
    (tmp_path / "_delta_log" / f"{4:020d}.checkpoint.parquet").unlink()
    newest = tmp_path / "_delta_log" / NEWEST
    newest.write_bytes(newest.read_bytes()[:900])
    with pytest.raises(SinkError, match="a damaged checkpoint .* does not go back to an older one"):
        opened(tmp_path)
    assert newest.exists()


def test_a_sync_that_fails_is_not_followed_by_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    sync = storage.sync_folder

    def fails(folder: Path) -> None:
        if folder.name == "_delta_log":
            raise OSError("input/output error")
        sync(folder)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "sync_folder", fails)
        with pytest.raises(OSError, match="input/output"):
            sink.write(rows(4, 6), SESSION)
        assert len(log_of(tmp_path)) == 3
        for again in (sink, DeltaSink(tmp_path)):
            with pytest.raises(OSError, match="input/output"):
                again.open(SHARD)
    assert opened(tmp_path)[1] == Position("6", 0)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_times_without_a_zone_are_a_feature(tmp_path: Path) -> None:
    """Of the table that a sink makes: else readers refuse it."""
    schema = StructType([*SCHEMA.fields, StructField("at", TimestampNTZType())])
    whole = StructType([*schema.fields, StructField("stream", StringType()), StructField("shard", StringType())])
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020d}.json").write_bytes(beginning(whole.json(), ["stream", "shard"]))
    assert DeltaTable(tmp_path).protocol().reader_features == ["timestampNtz"]


def test_the_log_may_be_cleaned_up(tmp_path: Path) -> None:
    """Checkpoints, clean-up, compaction and VACUUM keep records and position; history goes."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    opened(tmp_path, OTHER)[0].write(rows(1, 2), SESSION)
    orphan = tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}" / "after-start-dead" / "part-0.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(next(tmp_path.glob("stream=clicks/*/*/*.parquet")).read_bytes())
    sink, _ = opened(tmp_path)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    for number in range(4, 9):
        sink.write(rows(number, number), SESSION)
    DeltaTable(tmp_path).optimize.compact()
    DeltaTable(tmp_path).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    DeltaTable(tmp_path).create_checkpoint()
    time.sleep(0.01)
    DeltaTable(tmp_path).cleanup_metadata()
    assert len(log_of(tmp_path)) == 1
    assert not orphan.exists()
    assert opened(tmp_path)[1] == Position("8", 0)
    assert opened(tmp_path, OTHER)[1] == Position("2", 0)
    assert sink.write(rows(5, 12), SESSION) == Position("12", 0)
    assert (stored(tmp_path), stored(tmp_path, OTHER)) == (list(range(1, 13)), [1, 2])


def test_checkpoints_are_made_on_the_way(tmp_path: Path) -> None:
    created(tmp_path, configuration={"delta.checkpointInterval": "5"})
    sink, _ = opened(tmp_path)
    for number in range(1, 13):
        sink.write(rows(number, number), SESSION)
    assert [path.name for path in sorted((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))]
    assert opened(tmp_path)[1] == Position("12", 0)
    assert stored(tmp_path) == list(range(1, 13))


def test_a_commit_into_a_log_that_is_gone_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zombie that sleeps with its handle in its hand while its successor writes on and the log is cleaned up."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
    successor, _ = opened(tmp_path)

    def clean_up() -> None:
        for number in range(4, 9):
            successor.write(rows(number, number), SESSION)
        DeltaTable(tmp_path).create_checkpoint()
        time.sleep(0.01)
        DeltaTable(tmp_path).cleanup_metadata()

    before_commit(monkeypatch, clean_up)
    zombie, _ = opened(tmp_path)
    assert zombie.write(rows(4, 6), SESSION) == Position("8", 0)
    assert len(log_of(tmp_path)) == 1
    assert zombie.write(rows(4, 9), SESSION) == Position("9", 0)
    assert stored(tmp_path) == list(range(1, 10))


def test_a_table_that_others_write_to_as_well(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    write_deltalake(tmp_path, delta_rows(tmp_path).slice(0, 1), mode="append")
    sink.write(rows(4, 6), SESSION)
    assert stored(tmp_path) in ([1, 1, 2, 3, 4, 5, 6], [1, 2, 2, 3, 4, 5, 6], [1, 2, 3, 3, 4, 5, 6])


@pytest.mark.parametrize("seed", range(8))
def test_shards_that_make_the_table_at_the_same_time(tmp_path: Path, seed: int) -> None:
    """One of them makes it; nothing of the others is lost, and there is no second beginning."""
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            sink, _ = opened(tmp_path, Shard(f"stream-{number % 2}", f"shard-{number // 2}"))
            barrier.wait(PATIENCE)
            sink.write(rows(1, 4), SESSION)
            sink.write(rows(5, 6), SESSION)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    for number in range(4):
        assert stored(tmp_path, Shard(f"stream-{number % 2}", f"shard-{number // 2}")) == [1, 2, 3, 4, 5, 6]
    log = [
        json.loads(line)
        for name in log_of(tmp_path)
        for line in (tmp_path / "_delta_log" / name).read_text().splitlines()
    ]
    assert sum("metaData" in action for action in log) == 1


# ---- deaths and zombies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals("DELTA") as mortals:
        yield mortals


def check_and_continue(folder: Path, upto: int) -> int:
    """What is there is a beginning, the position is its end; what is delivered again is not doubled."""
    sink, place = opened(folder)
    seen = stored(folder)
    assert seen == list(range(1, 1 + len(seen)))
    assert place == (Position(str(len(seen)), 0) if seen else None)
    sink.write(rows(1, 6), SESSION)
    sink.write(rows(7, upto), SESSION)
    assert stored(folder) == list(range(1, upto + 1))
    return len(seen)


def test_a_death_at_every_step(tmp_path: Path, mortals: Mortals) -> None:
    steps = 0
    seen = []
    while not mortals.write(tmp_path / str(steps), 1, 8, steps=steps):
        seen.append(check_and_continue(tmp_path / str(steps), 12))
        steps += 1
    assert steps > 30
    assert seen == sorted(seen)
    assert set(seen) == {0, 4, 8}


@pytest.mark.parametrize("seed", range(10))
def test_deaths_in_a_row(tmp_path: Path, mortals: Mortals, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        mortals.write(tmp_path, 1, chance.randrange(2, 60), steps=chance.randrange(0, 100))
    check_and_continue(tmp_path, 80)


@pytest.mark.parametrize("seed", range(5))
def test_kills_at_any_moment(tmp_path: Path, mortals: Mortals, seed: int) -> None:
    """Inside of deltalake as well, where no step is."""
    chance = random.Random(seed)
    longest, lives = 0.5, 0
    # On a busy machine a life may be too short for a first commit: then the next ones are longer.
    while lives < 6 or not stored_position(tmp_path):
        mortals.write(tmp_path, 1, 2000, seconds=chance.uniform(0.05, longest))
        lives += 1
        longest *= 1 if lives < 6 else 1.5
    assert check_and_continue(tmp_path, 2000) > 0


def stored_position(folder: Path) -> Position | None:
    return position(DeltaTable(folder), SHARD) if DeltaTable.is_deltatable(str(folder)) else None


@pytest.mark.parametrize("seed", range(40))
def test_a_zombie_and_its_successor_in_any_order(tmp_path: Path, seed: int) -> None:
    """Two that believe they own the shard, cut otherwise: nothing doubled, nothing lost."""
    chance = random.Random(seed)
    if seed % 2:  # else they make the table as well
        opened(tmp_path)[0].write(rows(1, 3), SESSION)
    order = [chance.randrange(2) for _ in range(chance.randrange(20, 160))]
    if seed % 3 == 0:  # one sleeps for long
        order = [0] * chance.randrange(1, 80) + [1] * 120
    race(DELTA, tmp_path, order, [[(1, 6), (7, 12)], [(1, 8), (9, 10), (11, 20)]])
    assert stored(tmp_path) == list(range(1, 21))
    assert opened(tmp_path)[1] == Position("20", 0)
