"""An Iceberg table that a worker writes itself: each record once, in each catalog."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from fastkcl import Position
from fastkcl.cli.main import cli
from fastkcl.tables import IcebergTable, Shard, SinkError, WriteCancelledError, storage
from fastkcl.tables.iceberg import head as head_module
from fastkcl.tables.iceberg.catalog import open_catalog
from fastkcl.tables.iceberg.sqlite import settle
from fastkcl.tables.store import DeniedError, StoreError
from iceberg_helpers import NAME, IcebergPlace, as_columns, every_place, plans, sql_posix, written
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform
from pyiceberg.types import LongType
from sink_helpers import SHARD
from table_helpers import DAY, NOON, arrived, as_they_are

OTHER = Shard("clicks", "shardId-000000000001")


@pytest.fixture(params=["sql", "sql-s3", "glue", "rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergPlace]:
    """Somewhere for a table: each catalog, a folder and a bucket."""
    with every_place(request, tmp_path) as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> IcebergPlace:
    """The cheapest one."""
    return sql_posix(tmp_path)


# ---- a catalog in SQLite ----------------------------------------------------------------------------------------


def test_a_commit_in_sqlite_outlives_a_power_cut(local: IcebergPlace, tmp_path: Path) -> None:
    """3 is EXTRA: the removal of the journal is synced, too. On each connection, the first one of pyiceberg's own."""
    engine = open_catalog(local.catalog).engine  # type: ignore[attr-defined]
    with engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
    with sqlite3.connect(tmp_path / "catalog.db") as theirs:
        assert theirs.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_commit_in_sqlite_that_a_writer_finds_is_synced(
    local: IcebergPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer may have died before that: its journal would come back, and take the commit back."""
    written(local, (1, 3))
    synced: list[Path] = []
    sync_folder = storage.sync_folder

    def noted(folder: Path) -> None:
        sync_folder(folder)
        synced.append(folder)

    monkeypatch.setattr(storage, "sync_folder", noted)
    assert local.table().open(SHARD) == Position("3", 0)
    assert synced == [tmp_path]

    def failing(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error", str(folder))

    monkeypatch.setattr(storage, "sync_folder", failing)
    with pytest.raises(StoreError, match=r"sync the catalog of db\.clicks: .*Input/output error"):
        local.table().open(SHARD)


def test_a_catalog_in_memory_has_no_folder() -> None:
    catalog = open_catalog({"type": "sql", "uri": "sqlite://", "warehouse": "file:///tmp/none"})
    settle(catalog)
    assert catalog.list_namespaces() == []


# ---- one writer -------------------------------------------------------------------------------------------------


def test_a_life(place: IcebergPlace) -> None:
    table = place.table()
    assert table.open(SHARD) is None
    assert table.append(arrived(range(1, 4)), as_they_are) == Position("3", 0)
    assert table.append(arrived(range(2, 11)), as_they_are) == Position("10", 0)
    assert place.table().open(SHARD) == Position("10", 0)
    assert place.table().open(OTHER) is None
    assert place.numbers() == list(range(1, 11))
    handle = place.handle()
    assert len(handle.metadata.snapshots) == 2
    assert [field.name for field in handle.spec().fields] == ["arrival_day"]
    assert {tuple(row.values()) for row in place.read().select(["stream", "shard"]).to_pylist()} == {
        (SHARD.stream, SHARD.shard_id)
    }
    position = handle.properties["fastkcl.position.clicks/shardId-000000000000"]
    assert position == f"10.0 {handle.metadata.current_snapshot_id}"


FAR_TIMES = pytest.mark.parametrize("time", [-70_000_000_000_000, 300_000_000_000_000], ids=["before 1", "after 9999"])


@FAR_TIMES
@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform(), DayTransform(), HourTransform()], ids=str)
def test_a_time_that_has_no_partition(local: IcebergPlace, transform: Any, time: int) -> None:
    """pyiceberg has only Python's years; no service gives others."""
    table = written(local, (1, 2))
    with local.handle().update_spec() as spec:
        spec.remove_field("arrival_day").add_field("approximateArrivalTimestamp", transform, "arrival")
    table = local.table()
    table.open(SHARD)
    with pytest.raises(SinkError, match="is before the year 1 or after 9999, for which pyiceberg makes no partition"):
        table.append(arrived([3, 4], [NOON, time]), as_they_are)
    table.append(arrived([3, 4], [NOON, None]), as_they_are)
    assert local.table().open(SHARD) == Position("4", 0)
    assert local.numbers() == [1, 2, 3, 4]


@FAR_TIMES
def test_a_time_that_has_no_statistics(place: IcebergPlace, time: int) -> None:
    """In a table without partitions."""
    table = place.table(evolve="add")
    table.open(SHARD)
    table.append(arrived([1, 2]), lambda rows: as_they_are(rows).drop_columns(["approximateArrivalTimestamp"]))
    table.append(arrived([3, 4], [NOON, time]), as_they_are)
    assert place.table().open(SHARD) == Position("4", 0)
    assert place.numbers() == [1, 2, 3, 4]
    done = CliRunner().invoke(cli, ["sink", "inspect", *place.arguments])
    assert done.exit_code == 0, done.output


def test_what_comes_again_is_dropped(local: IcebergPlace) -> None:
    table = written(local, (1, 10))
    assert table.append(arrived(range(5, 11)), as_they_are) == Position("10", 0)
    assert table.append(arrived(range(5, 16)), as_they_are) == Position("15", 0)
    assert local.numbers() == list(range(1, 16))
    assert len(local.handle().metadata.snapshots) == 2


def test_shards_and_streams_have_their_own_positions(local: IcebergPlace) -> None:
    shards = [Shard(stream, shard) for stream in ("clicks", "007", "ü-1") for shard in ("shardId-0", "shardId-1")]
    for shard in shards:
        written(local, (1, 3), shard=shard)
        assert local.table().open(shard) == Position("3", 0)
    assert {record[:2] for record in local.records()} == {(shard.stream, shard.shard_id) for shard in shards}


def test_legacy_positions_and_sub_sequence_numbers(local: IcebergPlace) -> None:
    table = written(local)
    assert table.append(arrived([1, 1, 2], legacy=True), as_they_are) == Position("2", None)
    assert local.table().open(SHARD) == Position("2", None)
    table.append(arrived([7] * 12, subs=range(12)), as_they_are)
    assert local.table().open(SHARD) == Position("7", 11)
    table.append(arrived([7] * 14, subs=range(14)), as_they_are)
    assert local.numbers() == [1, 1, 2] + [7] * 14


def test_rows_that_a_transformation_leaves_nothing_of_move_the_position(local: IcebergPlace) -> None:
    """By a snapshot: a zombie's commit on the one before is refused."""
    table = written(local, (1, 3))
    zombie = local.table()
    zombie.open(SHARD)
    table.append(arrived(range(4, 7)), lambda rows: rows.table().slice(0, 0))
    assert local.table().open(SHARD) == Position("6", 0)
    assert local.numbers() == [1, 2, 3]
    assert zombie.append(arrived(range(4, 9)), as_they_are) == Position("8", 0)
    assert local.numbers() == [1, 2, 3, 7, 8]


def test_what_is_not_wanted_is_not_written(local: IcebergPlace) -> None:
    table = written(local, (1, 3))
    rows = arrived(range(4, 7))
    rows._cancelled = lambda: True
    with pytest.raises(WriteCancelledError):
        table.append(rows, as_they_are)
    assert local.numbers() == [1, 2, 3]


def test_days(local: IcebergPlace) -> None:
    """Each row lies in the partition of its own arrival: a manifest that said otherwise would hide it from readers."""
    table = written(local)
    table.append(arrived([1, 2, 3, 4, 5], [None, NOON, NOON + DAY, NOON, None]), as_they_are)
    table.append(arrived([6], [NOON - 30_000 * DAY]), as_they_are)
    assert local.days() == {"1944-10-03": [6], "2026-11-22": [2, 4], "2026-11-23": [3], "None": [1, 5]}
    assert len(local.handle().metadata.snapshots) == 2
    found = local.handle().scan("approximateArrivalTimestamp >= '2026-11-23T00:00:00+00:00'").to_arrow()
    assert found["sequenceNumber"].to_pylist() == ["3"]


def test_types_that_iceberg_does_not_have(local: IcebergPlace) -> None:
    def typed(rows: Any) -> pa.Table:
        return pa.table(
            {
                "sequenceNumber": rows.table()["sequenceNumber"],
                "kind": pa.array(["a"] * rows.num_rows).dictionary_encode(),
                "small": pa.array([7] * rows.num_rows, pa.uint16()),
                "at": pa.array([NOON] * rows.num_rows, pa.timestamp("ms", "Europe/Vienna")),
                "tags": pa.array([[{"x": 1}]] * rows.num_rows),
            }
        )

    written(local).append(arrived([1, 2]), typed)
    assert local.handle().spec().is_unpartitioned()
    assert (
        local.read().select(["kind", "small", "tags"]).to_pylist()
        == [{"kind": "a", "small": 7, "tags": [{"x": 1}]}] * 2
    )
    for made in (pa.array([None, None]), pa.array([1, 2], pa.duration("s"))):
        with pytest.raises(SinkError, match="column bad: Iceberg has no type for .*: cast it"):
            _append(local, made)


def _append(place: IcebergPlace, column: pa.Array) -> None:
    written(place).append(arrived([8, 9]), lambda rows: pa.table({"bad": column}))


def test_new_columns(local: IcebergPlace) -> None:
    written(local, (1, 2))
    more: Any = lambda rows: rows.table().append_column("price", pa.array([1.5] * rows.num_rows))  # noqa: E731
    with pytest.raises(SinkError, match=r'db.clicks: has no column price: evolve="add"'):
        written(local).append(arrived([3]), more)
    adding = written(local, evolve="add")
    staler = written(local, evolve="add")
    adding.append(arrived([3]), more)
    written(local, (4, 4))  # without it
    shouting: Any = lambda rows: rows.table().append_column("PRICE", pa.array([1] * rows.num_rows))  # noqa: E731
    with pytest.raises(SinkError, match="columns PRICE and price differ in capitals alone"):
        written(local, evolve="add").append(arrived([5]), shouting)
    staler.append(arrived([5]), more)  # staged with other ids, and again
    rows = local.read().select(["sequenceNumber", "price"]).to_pylist()
    assert {row["sequenceNumber"]: row["price"] for row in rows} == {
        "1": None,
        "2": None,
        "3": 1.5,
        "4": None,
        "5": 1.5,
    }
    with pytest.raises(SinkError, match="column price is string"):
        written(local).append(arrived([6]), lambda rows: rows.table().append_column("price", pa.array(["x"])))


# ---- what the table is --------------------------------------------------------------------------------------------


def test_a_table_that_is_another_one_now(local: IcebergPlace) -> None:
    table = written(local, (1, 3))
    catalog = local.theirs()
    catalog.drop_table(NAME)
    with pytest.raises(SinkError, match="was removed"):
        table.append(arrived(range(4, 7)), as_they_are)
    written(local, (1, 1))
    with pytest.raises(SinkError, match=r"is another table now \(UUID .*, was .*\): start again"):
        table.append(arrived(range(4, 7)), as_they_are)
    assert local.numbers() == [1]


def test_a_rollback(local: IcebergPlace) -> None:
    table = written(local, (1, 3), (4, 6))
    handle = local.handle()
    first = handle.metadata.snapshots[0].snapshot_id
    handle.manage_snapshots().rollback_to_snapshot(first).commit()
    for writer in (table, local.table()):
        with pytest.raises(
            SinkError, match=r"rolled back: the position 6\.0 .* no ancestor of main .* set the property"
        ):
            writer.open(SHARD)
    with pytest.raises(SinkError, match="rolled back"):
        table.append(arrived(range(7, 9)), as_they_are)
    with local.handle().transaction() as change:
        change.set_properties({"fastkcl.position.clicks/shardId-000000000000": f"3.0 {first}"})
    assert written(local, (1, 5)).open(SHARD) == Position("5", 0)
    assert local.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("py-io-impl", "subprocess.Popen"),
        ("write.py-location-provider.impl", "pyiceberg.table.locations.SimpleLocationProvider"),
    ],
)
def test_a_table_chooses_no_code(local: IcebergPlace, name: str, code: str) -> None:
    """Whoever may change the table could have each writer and reader of it run something."""
    table = written(local, (1, 3))
    with suppress(Exception), local.handle().transaction() as change:  # pyiceberg's own runs it
        change.set_properties({name: code})
    if name == "py-io-impl":
        assert written(local, (4, 6)).open(SHARD) == Position("6", 0)
        assert table.open(SHARD) == Position("6", 0)
        return
    for writer in (table, local.table()):
        with pytest.raises(SinkError, match=f"its property {name} is '{code}', code .*: remove the property"):
            writer.open(SHARD)


@pytest.mark.parametrize("value", ["", "3.0", "3.0 x", "start 1", "x 1", "03.0 1 2"])
def test_a_damaged_position(local: IcebergPlace, value: str) -> None:
    written(local, (1, 3))
    with local.handle().transaction() as change:
        change.set_properties({"fastkcl.position.clicks/shardId-000000000000": value})
    with pytest.raises(SinkError, match="property fastkcl.position.clicks/shardId-000000000000 is damaged"):
        local.table().open(SHARD)


def test_users_work_between_commits(local: IcebergPlace) -> None:
    """New columns, expiry and properties: nothing is lost or doubled."""
    table = written(local, (1, 3), (4, 6))
    table.append(arrived([7]), as_they_are)
    with local.handle().update_schema() as update:
        update.add_column("mine", LongType())
    table.append(arrived([8]), as_they_are)
    local.handle().maintenance.expire_snapshots().older_than(_soon()).commit()
    table.append(arrived([9]), as_they_are)
    with local.handle().transaction() as change:
        change.set_properties({"owner": "me"})
    table.append(arrived([10]), as_they_are)
    assert local.numbers() == list(range(1, 11))
    assert local.handle().properties["owner"] == "me"


def _soon() -> Any:
    return datetime.now() + timedelta(days=1)


def test_a_note_from_before_the_table_follows_it(local: IcebergPlace) -> None:
    """Its records came again, and were stored: if the table is dropped later, they are not excused."""
    first = local.table()
    first.open(SHARD)
    first.give_up(Position("3", 0))
    table = local.table()
    table.open(SHARD)
    assert table.given_up() == Position("3", 0)
    table.append(arrived(range(1, 4)), as_they_are)
    assert not table.gone_on()
    local.theirs().drop_table(NAME)
    again = local.table()
    assert again.open(SHARD) is None
    assert again.given_up() is None


def test_a_role_without_a_right_to_the_namespace_goes_on(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise DeniedError("read the namespace: AccessDeniedException")

    written(local, (1, 3))
    table = local.table()
    table.open(SHARD)
    monkeypatch.setattr(head_module.IcebergHead, "namespace_note", refused)
    assert not table.gone_on()
    table.give_up(Position("5", 0))
    assert table.given_up() == Position("5", 0)


def test_records_given_up_are_noted(place: IcebergPlace) -> None:
    table = place.table()
    table.open(SHARD)
    assert table.given_up() is None
    table.give_up(Position("3", 0))
    again = place.table()
    again.open(SHARD)
    assert again.given_up() == Position("3", 0)
    again.append(arrived([4, 5]), as_they_are)
    again.give_up(Position("9", 0))
    again.give_up(Position("7", 0))
    late = place.table()
    late.open(SHARD)
    assert late.given_up() == Position("9", 0)


@pytest.mark.parametrize(
    ("catalog", "error", "said"),
    [
        (
            {"type": "hive", "uri": "thrift://x"},
            ValueError,
            "cannot be written in hive: .*'type': 'rest'.*'sql'.*'glue'",
        ),
        ({"type": "dynamodb"}, ValueError, "cannot be written in dynamodb: "),
        ({"py-catalog-impl": "x.Y"}, ValueError, "cannot be written in one of py-catalog-impl: "),
        ({}, ValueError, "give"),
        ({"type": 3}, TypeError, "a dict of texts"),
    ],
)
def test_other_catalogs_are_refused(catalog: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        IcebergTable(NAME, catalog)


def test_a_new_table_without_a_place_is_refused_before_the_first_record(tmp_path: Path) -> None:
    catalog = {name: value for name, value in sql_posix(tmp_path).catalog.items() if name != "warehouse"}
    for _ in range(2):
        with pytest.raises(SinkError, match=r"db\.clicks: a new table has no place.*give the catalog warehouse="):
            IcebergTable(NAME, catalog=catalog).open(SHARD)
        sql_posix(tmp_path).theirs().create_namespace_if_not_exists(NAME.rpartition(".")[0])
    namespace = NAME.rpartition(".")[0]
    sql_posix(tmp_path).theirs().update_namespace_properties(namespace, updates={"location": f"file://{tmp_path}/db"})
    table = IcebergTable(NAME, catalog=catalog)
    assert table.open(SHARD) is None
    assert table.append(arrived([1]), as_they_are) == Position("1", 0)


@pytest.mark.parametrize("name", ["clicks", "", "db.", "a b.c"])
def test_a_table_needs_a_namespace(name: str) -> None:
    with pytest.raises(ValueError, match="namespace and table"):
        IcebergTable(name, {"type": "rest", "uri": "http://127.0.0.1:1"})


def test_a_catalog_that_is_down_is_named_without_its_password(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="open the catalog: ") as caught:
        IcebergTable(NAME, {"type": "sql", "uri": f"sqlite:////{tmp_path}/none/x:secret@db"}).open(SHARD)
    assert "secret" not in str(caught.value)


# ---- growth and readers -------------------------------------------------------------------------------------------


def test_snapshots_and_metadata_are_kept_to_a_number(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        head_module, "OURS", {**head_module.OURS, "fastkcl.snapshots": "5", "commit.manifest.min-count-to-merge": "4"}
    )
    monkeypatch.setattr(head_module, "_MERGE_EACH", 8)
    table = written(local, (1, 1))
    tagged = local.handle().metadata.current_snapshot_id
    local.handle().manage_snapshots().create_tag(tagged, "mine").commit()
    for number in range(2, 32):
        table.append(arrived([number]), as_they_are)
    metadata = local.handle().metadata
    assert len(metadata.snapshots) == 6  # and the tag's
    assert tagged in {each.snapshot_id for each in metadata.snapshots}
    assert len(metadata.metadata_log) == 20
    assert len(local.handle().current_snapshot().manifests(local.handle().io)) <= 12
    assert local.numbers() == list(range(1, 32))
    folder = Path(local.handle().location().removeprefix("file://"))
    assert len(list(folder.glob("metadata/*.metadata.json"))) == 21


def test_tables_of_others_keep_their_snapshots(local: IcebergPlace) -> None:
    catalog = local.theirs()
    catalog.create_namespace("db")
    catalog.create_table(
        NAME, arrived([1]).table().schema.append(pa.field("stream", pa.string())).append(pa.field("shard", pa.string()))
    )
    table = written(local)
    for number in range(1, 5):
        table.append(arrived([number]), as_they_are)
    assert len(local.handle().metadata.snapshots) == 4
    assert local.numbers() == [1, 2, 3, 4]


def test_readers(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row once, with a new column in the middle."""
    written(local, (1, 3))
    written(local, evolve="add").append(
        arrived(range(4, 7)), lambda rows: rows.table().add_column(1, "price", pa.array([1] * rows.num_rows))
    )
    written(local, (7, 9))
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    handle = local.handle()
    wanted = [str(number) for number in range(1, 10)]
    assert sorted(handle.scan().to_arrow()["sequenceNumber"].to_pylist()) == wanted
    assert sorted(pl.scan_iceberg(handle).select("sequenceNumber").collect()["sequenceNumber"]) == wanted
    assert len(plans(local)) == 3
    assert sorted(local.read()["price"].to_pylist(), key=str) == [1, 1, 1, *[None] * 6]


def test_a_run_without_the_time_of_arrival(local: IcebergPlace) -> None:
    written(local, (1, 3))
    written(local).append(arrived([4]), as_columns("sequenceNumber"))
    assert local.numbers() == [1, 2, 3, 4]
    assert local.days() == {"2026-11-22": [1, 2, 3], "None": [4]}


# ---- damaged metadata -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 200])
def test_a_damaged_manifest_list_is_no_outage(tmp_path: Path, size: int) -> None:
    """A SinkError, which nobody repeats for a day, and it names the file."""
    place = sql_posix(tmp_path)
    table = written(place, (1, 3))
    snapshot = place.handle().current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifest_list.removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:size])
    for each in (table, place.table()):
        each.open(SHARD)
        with pytest.raises(SinkError, match=rf"{path.name}: a manifest list.* is damaged: .*recovery.md"):
            each.append(arrived(range(4, 7)), as_they_are)


@pytest.mark.parametrize("change", [{"snapshots": []}, {"current-snapshot-id": 5}])
def test_a_position_without_the_snapshot_of_main(tmp_path: Path, change: dict[str, Any]) -> None:
    place = sql_posix(tmp_path)
    written(place, (1, 3))
    path = Path(place.handle().metadata_location.removeprefix("file://"))
    found = json.loads(path.read_text())
    found.update(change)
    found["refs"]["main"]["snapshot-id"] = found["current-snapshot-id"]
    path.write_text(json.dumps(found))
    with pytest.raises(SinkError, match=r"has the position 3.0 of clicks.*is missing in its metadata.*recovery.md"):
        place.table().open(SHARD)


@pytest.mark.parametrize("text", ["9" * 5000, "\u00b2", "-1", "x"])
def test_a_property_that_is_no_count_expires_nothing(tmp_path: Path, text: str) -> None:
    place = sql_posix(tmp_path)
    written(place, (1, 3))
    with place.handle().transaction() as transaction:
        transaction.set_properties({"fastkcl.snapshots": text})
    written(place, (4, 6), (7, 9))
    assert len(place.handle().metadata.snapshots) == 3
