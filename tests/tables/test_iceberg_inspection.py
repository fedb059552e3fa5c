"""`fastkcl sink inspect` of an Iceberg table, in each catalog: the commits of its snapshots, and the rows of its
files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.local_aws import LocalAws
from fastkcl.tables import IcebergTable, Shard, SinkError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.iceberg.catalog import load_table
from iceberg_helpers import NAME, IcebergPlace, as_columns, every_place, plans, sql_posix, sql_s3, written
from pyiceberg.table import Table
from sink_helpers import SHARD
from table_helpers import arrived

OTHER = Shard("clicks eu", "shardId-000000000001")
PROPERTY = "fastkcl.position.clicks/shardId-000000000000"
SOUND: dict[str, Any] = {
    "ok": True,
    "all_commits": True,
    "gaps": [],
    "unpublished": [],
    "missing_files": [],
    "unknown_files": [],
    "doubles": 0,
    "doubles_examples": [],
    "doubles_not_looked_for": [],
    "damage": [],
}


@pytest.fixture
def local(tmp_path: Path) -> IcebergPlace:
    """The cheapest catalog."""
    return sql_posix(tmp_path)


@pytest.fixture(params=["sql-s3", "glue", "rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergPlace]:
    """Each other one."""
    with every_place(request, tmp_path) as made:
        yield made


def at(number: int, sub: int | None = 0) -> dict[str, Any]:
    return {"sequenceNumber": str(number), "subSequenceNumber": sub}


def facts(commits: int, records: int, first: int, last: int, shard: Shard = SHARD) -> dict[str, Any]:
    return {
        "stream": shard.stream,
        "shard": shard.shard_id,
        "commits": commits,
        "records": records,
        "rows": records,
        "first": at(first),
        "last": at(last),
        "continues_from": at(last),
    }


def inspect(place: IcebergPlace) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["sink", "inspect", *place.arguments, "--json"])
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)


def inspect_one(place: IcebergPlace) -> tuple[int, dict[str, Any]]:
    code, report = inspect(place)
    (shard,) = report["shards"]
    return code, shard


def plain(place: IcebergPlace, *runs: tuple[int, int], shard: Shard = SHARD) -> IcebergTable:
    """Without partitions, so that pyiceberg writes to it too."""
    table = place.table()
    table.open(shard)
    for first, last in runs:
        table.append(arrived(range(first, last + 1)), as_columns("sequenceNumber", "subSequenceNumber", "data"))
    return table


def path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def test_a_sound_table_in_each_catalog(place: IcebergPlace) -> None:
    written(place, (1, 9), (10, 12))
    written(place, (5, 6), shard=OTHER)
    code, report = inspect(place)
    shard, other = report.pop("shards")
    name = f"default:{place.name}"
    assert (code, report) == (
        0,
        {"path": name, "sink": "IcebergTable", "ok": True, "unknown_files": [], "damage": []},
    )
    assert shard == {**SOUND, **facts(2, 12, 1, 12)}
    assert other == {**SOUND, **facts(1, 2, 5, 6, OTHER)}
    done = CliRunner().invoke(cli, ["sink", "inspect", *place.arguments])
    assert f"{name}: a table of IcebergTable, 2 shards\n" in done.stdout
    assert done.stdout.endswith("All is well.\n")


def test_snapshots_that_are_expired_and_files_that_an_engine_has_rewritten(local: IcebergPlace) -> None:
    """Rows of both shards in one file without our footer."""
    plain(local, (1, 4), (5, 8))
    plain(local, (1, 3), shard=OTHER)
    local.handle().maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
    local.handle().overwrite(local.read())
    plain(local, (9, 10))
    code, report = inspect(local)
    shard, other = report["shards"]
    assert (code, len(plans(local))) == (0, 2)
    assert shard == {**SOUND, **facts(1, 2, 1, 10), "all_commits": False, "rows": 10}
    assert other == {**SOUND, **facts(1, 3, 1, 3, OTHER), "all_commits": False}


def test_a_run_that_a_transformation_leaves_nothing_of(local: IcebergPlace) -> None:
    written(local).append(arrived([1, 2]), lambda rows: rows.table().slice(0, 0))
    code, found = inspect_one(local)
    assert (code, found) == (0, {**SOUND, **facts(1, 2, 1, 2), "rows": 0, "first": None, "last": None})


def a_file_twice(handle: Table) -> None:
    """Of the first run."""
    location = sorted(task.file.file_path for task in handle.scan().plan_files())[0]
    handle.add_files([location], check_duplicate_files=False)


def another_files_rows_again(handle: Table) -> None:
    handle.append(handle.scan().to_arrow().slice(0, 2))


def a_gap(handle: Table) -> None:
    """The newest run again, as if others had been between."""
    summary = json.dumps([{"stream": SHARD.stream, "shard": SHARD.shard_id, "after": "7.0", "upto": "8.0", "rows": 1}])
    handle.append(handle.scan().to_arrow().slice(0, 0), snapshot_properties={"fastkcl": summary})


def a_position_of_its_own(handle: Table) -> None:
    with handle.transaction() as change:
        change.set_properties({PROPERTY: f"6.0 {handle.metadata.current_snapshot_id}"})


def a_damaged_position(handle: Table) -> None:
    with handle.transaction() as change:
        change.set_properties({PROPERTY: "8.0"})


def a_damaged_note(handle: Table) -> None:
    with handle.transaction() as change:
        change.set_properties({"fastkcl.given-up.clicks/shardId-000000000000": "x"})


def a_rollback(handle: Table) -> None:
    handle.manage_snapshots().rollback_to_snapshot(handle.metadata.snapshots[0].snapshot_id).commit()


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (a_file_twice, {"doubles": 4}),
        (another_files_rows_again, {"doubles": 2}),
        (a_gap, {"gaps": [{"after": at(7), "upto": at(8)}]}),
        (a_position_of_its_own, {"damage": "the position is 6/0, and the last commit ends elsewhere"}),
        (a_damaged_position, {"damage": f"{PROPERTY} is damaged"}),
        (a_damaged_note, {"damage": "property fastkcl.given-up.clicks/shardId-000000000000"}),
        (a_rollback, {"damage": "it was rolled back: the position 8.0"}),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_faults_of_a_shard(local: IcebergPlace, spoil: Callable[[Table], None], expected: dict[str, Any]) -> None:
    plain(local, (1, 4), (5, 8))
    spoil(local.handle())
    code, found = inspect_one(local)
    assert (code, found["ok"]) == (1, False)
    for name, value in expected.items():
        if name == "damage":
            (damage,) = found[name]
            assert value in damage
        else:
            assert found[name] == value


def test_a_data_file_that_is_gone_is_its_shards(local: IcebergPlace) -> None:
    written(local, (1, 4), (5, 8))
    written(local, (1, 3), shard=OTHER)
    gone = next(each for each in plans(local) if "after-4.0" in each)
    path(gone).unlink()
    code, report = inspect(local)
    assert (code, [shard["ok"] for shard in report["shards"]]) == (1, [False, True])
    name = gone.removeprefix(f"{local.handle().location()}/")
    assert report["shards"][0]["missing_files"] == [name]
    assert report["shards"][0]["rows"] == 4


def cut(location: str) -> None:
    whole = path(location).read_bytes()
    path(location).write_bytes(whole[: len(whole) // 2])


def remove(location: str) -> None:
    path(location).unlink()


METADATA = lambda handle: handle.metadata_location  # noqa: E731
LIST = lambda handle: handle.current_snapshot().manifest_list  # noqa: E731
OLD_LIST = lambda handle: handle.metadata.snapshots[0].manifest_list  # noqa: E731
MANIFEST = lambda handle: handle.current_snapshot().manifests(handle.io)[0].manifest_path  # noqa: E731


@pytest.mark.parametrize(
    ("which", "spoil", "said"),
    [
        (METADATA, cut, "damaged, or cut off: "),
        (METADATA, remove, "a file of the table's metadata is gone"),
        (LIST, cut, "a manifest list that is damaged: "),
        (LIST, remove, "the manifest list of snapshot "),
        (OLD_LIST, remove, "the manifest list of snapshot "),
        (OLD_LIST, cut, "a manifest list that is damaged: "),
        (MANIFEST, cut, "a manifest that is damaged: "),
        (MANIFEST, remove, "a file of the table's metadata is gone"),
    ],
)
def test_damage_is_named(
    local: IcebergPlace, which: Callable[[Table], str], spoil: Callable[[str], None], said: str
) -> None:
    written(local, (1, 4), (5, 8))
    location = which(local.handle())
    spoil(location)
    code, report = inspect(local)
    (damage,) = report["damage"]
    assert (code, report["ok"]) == (1, False)
    assert damage.startswith(f"{location}: ")
    assert said in damage


def test_what_is_damaged_while_the_table_moves_on_is_looked_at_again(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine removes what it has replaced: the second look finds all well."""
    from fastkcl.tables.iceberg import inspection

    table = plain(local, (1, 4))
    look = inspection._Look.state
    looks = []

    def meanwhile(self: Any) -> Any:
        looks.append(self)
        if len(looks) == 1:
            gone = plans(local)[0]
            local.handle().overwrite(local.read())
            path(gone).unlink()
            table.append(arrived([5]), as_columns("sequenceNumber", "subSequenceNumber"))
        return look(self)

    monkeypatch.setattr(inspection._Look, "state", meanwhile)
    assert inspect(local)[0] == 0
    assert len(looks) == 2


def test_a_catalog_that_does_not_tell_where_its_metadata_is(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a REST catalog may do."""
    from fastkcl.tables.iceberg import inspection, orphans

    def load(*arguments: Any) -> Table:
        table = load_table(*arguments)
        table.metadata_location = None  # type: ignore[assignment]
        return table

    monkeypatch.setattr(inspection, "load_table", load)
    monkeypatch.setattr(orphans, "load_table", load)
    written(local, (1, 4))
    assert inspect(local)[0] == 0
    done = CliRunner().invoke(cli, ["sink", "orphans", *local.arguments])
    assert (done.exit_code, done.output) == (0, "No orphans.\n")


def test_delete_files_are_not_read_and_said(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastkcl.tables.iceberg import inspection

    written(local, (1, 4))
    monkeypatch.setattr(inspection._Look, "_data_files", with_deletes(inspection._Look._data_files))
    code, found = inspect_one(local)
    why = "rows of this table may be deleted by delete files, which are not read here"
    assert (code, found["doubles_not_looked_for"]) == (0, [{"why": why, "files": 1}])


def with_deletes(of: Any) -> Any:
    def found(self: Any, head: Any) -> Any:
        self._deletes = True  # pyiceberg writes none
        return of(self, head)

    return found


def test_what_is_no_table_of_ours(local: IcebergPlace, tmp_path: Path) -> None:
    def said(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["sink", "inspect", *arguments])
        assert (done.exit_code, done.stdout) == (2, "")
        return done.stderr

    assert "db.clicks: the catalog has no such table" in said(*local.arguments)
    catalog = local.theirs()
    catalog.create_namespace("db")
    catalog.create_table(NAME, pa.schema([("a", pa.int64())])).append(pa.table({"a": [1]}))
    assert "default:db.clicks: an Iceberg table without commits of an IcebergTable; a TableSink" in said(
        *local.arguments
    )
    assert "A table in a catalog needs --catalog" in said(NAME)
    assert "must be NAME=VALUE" in said(NAME, "--catalog", "glue")
    assert "clicks: must be namespace and table" in said("clicks", *local.arguments[1:])
    assert "cannot be written in hive" in said(NAME, "--catalog", "type=hive")
    uri = f"sqlite:////{tmp_path}/none/x:secret@db"
    text = said(NAME, "--catalog", "type=sql", "--catalog", f"uri={uri}")
    assert "open the catalog: " in text
    assert "secret" not in text


@pytest.mark.parametrize(
    "name", ["a\0.parquet", "a" * 300 + ".parquet", "/".join(["a" * 200] * 30), "{file}/a.parquet"]
)
def test_a_name_that_no_file_can_have_is_a_missing_file(local: IcebergPlace, name: str) -> None:
    plain(local, (1, 2))
    table = local.handle()
    (file,) = (task.file for task in table.scan().plan_files())
    file[1] = made = f"{table.location()}/{name}".replace("{file}", file.file_path.rpartition("/")[2])
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    code, shard = inspect_one(local)
    assert (code, shard["missing_files"]) == (1, [made.removeprefix(f"{table.location()}/")])


@pytest.mark.parametrize("name", ["s3://b/x", "file://elsewhere/x", "file://[", "hdfs://a/x"])
def test_a_data_file_in_no_place_of_a_table_is_missing(local: IcebergPlace, name: str) -> None:
    plain(local, (1, 2))
    (file,) = (task.file for task in local.handle().scan().plan_files())
    file[1] = name
    with local.handle().transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    code, report = inspect(local)
    assert code == 1
    assert report["shards"][0]["missing_files"] == [name]
    assert any(each.startswith(f"{name}: ") for each in report["damage"])


@pytest.mark.parametrize("what", [lambda file: file.mkdir(), lambda file: file.symlink_to(file.name)])
def test_something_else_in_the_place_of_a_data_file(local: IcebergPlace, what: Callable[[Path], None]) -> None:
    plain(local, (1, 2), (3, 4))
    (first, *_) = plans(local)
    path(first).unlink()
    what(path(first))
    code, report = inspect(local)
    assert code == 1
    assert any("is in the place of a file: restore the file from a copy" in each for each in report["damage"])


@pytest.mark.parametrize("name", ["a\0.avro", "a" * 300 + ".avro", "/".join(["a" * 200] * 30), "s3://b/x", "file://["])
def test_a_manifest_list_that_cannot_exist_is_damage(local: IcebergPlace, name: str) -> None:
    plain(local, (1, 2), (3, 4))
    handle = local.handle()
    metadata = path(handle.metadata_location)
    table = json.loads(metadata.read_text())
    made = name if "://" in name else f"{handle.location()}/metadata/{name}"
    table["snapshots"][0]["manifest-list"] = made
    metadata.write_text(json.dumps(table))
    code, report = inspect(local)
    assert code == 1
    assert report["damage"][0].startswith(f"{made[:200]}")


def change_metadata(place: IcebergPlace, change: Callable[[dict[str, Any]], None]) -> None:
    metadata = path(place.handle().metadata_location)
    table = json.loads(metadata.read_text())
    change(table)
    metadata.write_text(json.dumps(table))


@pytest.mark.parametrize("told", [7, {"stream": "s"}, [], None])
def test_a_summary_that_is_no_text(local: IcebergPlace, told: object) -> None:
    plain(local, (1, 2), (3, 4))

    def change(table: dict[str, Any]) -> None:
        table["snapshots"][0]["summary"]["fastkcl"] = told

    change_metadata(local, change)
    code, report = inspect(local)
    assert code == 1
    assert report["damage"] or report["shards"][0]["gaps"]


@pytest.mark.parametrize(
    "location",
    [
        "",
        "file:",
        "file:x",
        "x",
        "s3://",
        "s3:///x",
        "s3://b/x",
        "/a\0",
        f"/{'a' * 256}",
        "http://a/b",
        "/a#b",
        "s3://bucket/a#b",
    ],
)
def test_a_location_where_no_table_can_be(local: IcebergPlace, location: str) -> None:
    table = plain(local, (1, 2))
    change_metadata(local, lambda metadata: metadata.update(location=location))
    code, report = inspect(local)
    assert code == 1
    assert any("cannot have files" in each for each in report["damage"])
    for writer in (table, local.table()):
        with pytest.raises(
            SinkError, match="its location .* cannot have files: .*; set another one, or restore its metadata"
        ):
            writer.open(SHARD)


PATHS = ["write.data.path", "write.metadata.path"]


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("location", ["file:x", "s3:///x", "/a\0", f"/{'a' * 256}", "file:///a#b", "/a?b"])
def test_a_property_with_a_place_where_no_file_can_be(local: IcebergPlace, name: str, location: str) -> None:
    """Of names that are cut off at # and ?, all data files of a table would be one."""
    table = plain(local, (1, 2))
    change_metadata(local, lambda metadata: metadata["properties"].update({name: location}))
    code, report = inspect(local)
    assert code == 1
    assert any(f"its {name} " in each for each in report["damage"])
    for writer in (table, local.table()):
        with pytest.raises(
            SinkError, match=f"its {name} .* cannot have files: .*; set another one, or restore its metadata"
        ):
            writer.open(SHARD)


@pytest.mark.parametrize("below", ["", "/x"])
@pytest.mark.parametrize("name", ["location", *PATHS])
def test_a_location_that_leads_nowhere(local: IcebergPlace, name: str, below: str) -> None:
    plain(local, (1, 2))
    link = path(local.handle().location()) / "nowhere"
    link.symlink_to("no")

    def change(metadata: dict[str, Any]) -> None:
        (metadata if name == "location" else metadata["properties"])[name] = f"{link}{below}"

    change_metadata(local, change)
    code, report = inspect(local)
    assert code == 1
    assert any(each.startswith(f"{link}: something else is in the place of a folder") for each in report["damage"])


@pytest.mark.parametrize("what", ["a file", "a circle", "300 letters"])
def test_a_location_that_is_no_folder(local: IcebergPlace, what: str) -> None:
    plain(local, (1, 2))
    handle = local.handle()
    metadata = path(handle.metadata_location)
    table = json.loads(metadata.read_text())
    there = path(handle.location()).parent / ("a" * 300 if what == "300 letters" else "other")
    if what == "a file":
        there.touch()
    elif what == "a circle":
        there.symlink_to("other")
    table["location"] = f"file://{there}"
    metadata.write_text(json.dumps(table))
    code, report = inspect(local)
    assert code == 1
    assert any("the table's location cannot be read" in each for each in report["damage"])


def test_a_long_name_of_an_object_is_sound(aws: LocalAws, tmp_path: Path) -> None:
    """A file on a disk can have 255 bytes, an object 1,024."""
    place = sql_s3(aws, tmp_path)
    plain(place, (1, 2))
    handle = place.handle()
    (file,) = (task.file for task in handle.scan().plan_files())
    bucket, _, key = file.file_path.removeprefix("s3://").partition("/")
    made = f"{key.rpartition('/')[0]}/{'a' * 300}.parquet"
    aws.client("s3").copy_object(Bucket=bucket, Key=made, CopySource={"Bucket": bucket, "Key": key})
    with handle.transaction() as transaction:
        transaction.delete("sequenceNumber >= '0'")
        file[1] = f"s3://{bucket}/{made}"
        with transaction.update_snapshot().fast_append() as append:
            append.append_data_file(file)
    code, shard = inspect_one(place)
    assert (code, shard["missing_files"], shard["damage"], shard["rows"]) == (0, [], [], 2)


def test_another_shards_file_in_the_place_of_one(tmp_path: Path) -> None:
    place = sql_posix(tmp_path)
    written(place, (1, 2))
    written(place, (1, 9), shard=Shard("clicks", "shardId-000000000001"))
    mine, other = sorted(tmp_path.rglob("after-*.parquet"), key=lambda path: path.stat().st_size)
    shutil.copyfile(other, mine)
    damage = [each for shard in inspect_table(place.name, catalog=place.catalog).shards for each in shard.damage]
    assert [each.partition(": ")[2] for each in damage] == ["a file of clicks, shardId-000000000001 is in its place"]
