"""Orphans of an Iceberg table: leftovers of refused commits and expired snapshots, and nothing that anybody may
need."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.tables import SinkError, orphans
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.iceberg import head as head_module
from fastkcl.tables.iceberg.head import IcebergHead
from fastkcl.tables.iceberg.io import storage_of, table_store
from fastkcl.tables.orphans import LEAST_AGE, Orphans, find_orphans
from fastkcl.tables.store import Store
from iceberg_helpers import NAME, IcebergPlace, as_columns, every_place, plans, sql_posix, written
from table_helpers import arrived, as_they_are

RANDOM = "0" * 24
UUID = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def local(tmp_path: Path) -> IcebergPlace:
    """The cheapest catalog."""
    return sql_posix(tmp_path)


@pytest.fixture(params=["sql-s3", "glue", "rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergPlace]:
    """Each other one."""
    with every_place(request, tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables keep three snapshots and two metadata files."""
    few = {"fastkcl.snapshots": "3", "write.metadata.previous-versions-max": "2"}
    monkeypatch.setattr(head_module, "OURS", {**head_module.OURS, **few})


def later(monkeypatch: pytest.MonkeyPatch, days: float = 4) -> None:
    now = time.time()
    monkeypatch.setattr(orphans, "time", type("Later", (), {"time": staticmethod(lambda: now + days * 86_400)}))


def found(place: IcebergPlace, **options: Any) -> Orphans:
    return find_orphans(place.name, catalog=place.catalog, **options)


def kinds(of: Orphans) -> dict[str, int]:
    """How many files of each kind."""
    counts: dict[str, int] = {}
    for each in of.files:
        name = each.key.rpartition("/")[2]
        kind = "data" if name.startswith("after-") else "list" if name.startswith("snap-") else name.rpartition(".")[2]
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def store(place: IcebergPlace) -> Store:
    handle = place.handle()
    return table_store(handle.location(), storage_of(handle.io.properties))


def test_what_refused_commits_and_expired_snapshots_left(place: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(place, *((number, number) for number in range(1, 8)))
    zombie = place.table()
    zombie.open(table._shard_opened)
    table.append(arrived([8]), as_they_are)
    zombie.append(arrived([8, 9]), as_they_are)  # refused, and staged again
    lake = store(place)
    for key in (
        "data/mine.parquet",
        "metadata/mine.json",
        f"data/{UUID}-m0.avro",
        f"metadata/after-1.0-{RANDOM}.parquet",
    ):
        lake.create(key, b"of others")
    assert found(place).files == ()  # all of it is young
    later(monkeypatch)
    seen = kinds(found(place))
    assert seen.pop("data") == 1
    assert seen.pop("list") == 5  # of ten commits: three snapshots are left, and two in the metadata before
    assert set(seen) <= {"avro", "json"}
    assert found(place, older_than=5 * LEAST_AGE).files == ()
    before = len(lake.walk())
    left = found(place)
    left.delete()
    assert len(lake.walk()) == before - len(left.files)
    assert found(place).files == ()
    assert place.numbers() == list(range(1, 10))
    for snapshot in place.handle().metadata.snapshots:
        assert place.handle().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows in (7, 8, 9)
    assert written(place, (9, 10)).append(arrived([11]), as_they_are)
    assert place.numbers() == list(range(1, 12))


def test_a_writer_between_its_file_and_its_commit_loses_nothing(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is committed for 23 hours, and no orphan for 24."""
    table = written(local, (1, 3))
    commit = IcebergHead.commit
    kept = []

    def clean(self: IcebergHead, *arguments: Any) -> bool:
        later(monkeypatch, 0.97)
        kept.append(found(local, older_than=LEAST_AGE))
        kept[-1].delete()
        return commit(self, *arguments)

    monkeypatch.setattr(IcebergHead, "commit", clean)
    table.append(arrived([4, 5]), as_they_are)
    assert [each.files for each in kept] == [()]
    assert local.numbers() == [1, 2, 3, 4, 5]


def test_what_is_committed_between_the_list_and_the_metadata_is_named(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastkcl.tables.iceberg import orphans as module

    table = written(local, (1, 3))
    later(monkeypatch)
    load, times = module.load_table, []

    def meanwhile(*arguments: Any) -> Any:
        times.append(1)
        if len(times) == 2:
            table.append(arrived([4]), as_they_are)
        return load(*arguments)

    monkeypatch.setattr(module, "load_table", meanwhile)
    assert found(local).files == ()


@pytest.mark.parametrize("end", ["?a", "#a", "/", "/."])
def test_a_file_whose_name_is_spelled_otherwise_is_no_orphan(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    written(local, (1, 3))
    table = local.handle()
    (file,) = (task.file for task in table.scan().plan_files())
    path = Path(file.file_path.removeprefix("file://"))
    other = path.with_name(f"after-3-{'0' * 24}.parquet")
    shutil.copy(path, other)
    later(monkeypatch)
    assert kinds(found(local)) == {"data": 1}
    file[1] = f"file://{other}{end}"
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    assert found(local).files == ()


def test_what_an_older_metadata_names_is_no_orphan(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine has replaced and expired it, and the log still leads back: then that version is forgotten too."""
    columns = as_columns("sequenceNumber", "subSequenceNumber")
    table = local.table()
    table.open(written(local)._shard_opened)
    table.append(arrived([1, 2]), columns)
    (replaced,) = plans(local)
    local.handle().overwrite(local.read())
    for number in (3, 4):
        table.append(arrived([number]), columns)
    later(monkeypatch)
    name = replaced.removeprefix(f"{local.handle().location()}/")
    seen = []
    for number in range(5, 10):
        seen.append(name in [each.key for each in found(local).files])
        table.append(arrived([number]), columns)
    assert seen[0] is False
    assert seen[-1] is True
    found(local).delete()
    assert local.numbers() == list(range(1, 10))


def test_tables_of_others_lose_our_data_files_alone(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    written(local, (1, 1))
    schema = local.handle().schema()
    local.theirs().drop_table(NAME)
    shutil.rmtree(local.catalog["warehouse"].removeprefix("file://"))
    local.theirs().create_table(NAME, schema)
    written(local, (1, 1), (2, 2))
    store(local).create(f"data/after-1.0-{RANDOM}.parquet", b"staged")
    store(local).create(f"metadata/{UUID}-m0.avro", b"somebody's")
    later(monkeypatch)
    assert [each.key for each in found(local).files] == [f"data/after-1.0-{RANDOM}.parquet"]


def test_a_folder_with_metadata_of_another_table_is_refused(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was dropped without its files, say."""
    written(local, (1, 2))
    local.theirs().drop_table(NAME)
    written(local, (1, 3))
    later(monkeypatch)
    with pytest.raises(SinkError, match=r"metadata of another table .* so nothing is called an orphan"):
        found(local)


def test_writers_that_made_the_table_at_once(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one leaves the metadata of a table that never was: no reason to refuse, and none of ours to delete."""
    tables = [written(local) for _ in range(2)]
    tables[0].append(arrived([1]), as_they_are)
    tables[1].append(arrived([1, 2]), as_they_are)
    later(monkeypatch)
    before = {each.key for each in store(local).walk() if each.key.endswith(".metadata.json")}
    left = found(local)
    assert kinds(left).get("json") is None
    left.delete()
    assert {each.key for each in store(local).walk() if each.key.endswith(".metadata.json")} == before
    handle = local.handle()
    logged = {handle.metadata_location, *(each.metadata_file for each in handle.metadata.metadata_log)}
    assert len(before) > len(logged), "nobody else has made it any more"
    assert local.numbers() == [1, 2]


@pytest.mark.parametrize("which", ["list", "manifest", "metadata"])
def test_damage_calls_nothing_an_orphan(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    written(local, (1, 2), (3, 4))
    handle = local.handle()
    gone = {
        "list": handle.metadata.snapshots[0].manifest_list,
        "manifest": handle.current_snapshot().manifests(handle.io)[0].manifest_path,
        "metadata": handle.metadata.metadata_log[-1].metadata_file,
    }[which].removeprefix("file://")
    store(local).create(f"data/after-1.0-{RANDOM}.parquet", b"staged")
    later(monkeypatch)
    if which == "metadata":
        Path(gone).write_bytes(b"{")
    else:
        Path(gone).unlink()
    with pytest.raises(SinkError, match=Path(gone).name):
        found(local)


@pytest.mark.parametrize("mark", ["_delta_log", "_commits"])
def test_a_file_in_another_table_below_is_no_orphan(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """A DeltaTable gives its files the same names."""
    written(local, (1, 2))
    store(local).create(f"data/clicks/{mark}/x", b"")
    store(local).create(f"data/clicks/date=2026-11-22/after-1.0-{RANDOM}.parquet", b"of that table")
    store(local).create(f"data/after-1.0-{RANDOM}.parquet", b"staged")
    later(monkeypatch)
    assert [each.key for each in found(local).files] == [f"data/after-1.0-{RANDOM}.parquet"]


def test_nothing_is_called_an_orphan_through_a_link(local: IcebergPlace, tmp_path: Path) -> None:
    table = written(local, (1, 2))
    place = Path(local.handle().location().removeprefix("file://"), "_fastkcl")
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    told = f"{place}: leads elsewhere, and writers remove files there: make it a folder"
    with pytest.raises(SinkError, match=told):
        found(local)
    with pytest.raises(SinkError, match=told):
        table.append(arrived([3]), as_they_are)
    assert any(each.startswith(told) for each in inspect_table(local.name, catalog=local.catalog).damage)


def test_the_commands(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(verb: str, *arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["sink", verb, *local.arguments, *arguments])
        return done.exit_code, done.output

    written(local, (1, 2))
    staged = f"data/after-1.0-{RANDOM}.parquet"
    store(local).create(staged, b"staged")
    assert command("orphans") == (0, "No orphans.\n")
    later(monkeypatch)
    assert command("orphans") == (0, f"{staged}  6 bytes\n1 files of 0.0 MB orphaned\n")
    code, said = command("orphans", "--delete", "--json")
    assert (code, json.loads(said)["deleted"], len(json.loads(said)["files"])) == (0, True, 1)
    assert command("orphans") == (0, "No orphans.\n")
    code, said = command("compact")
    assert code == 2
    assert "CALL <catalog>.system.rewrite_data_files(table => 'db.clicks')" in said
