"""Orphans and compaction: leftovers of dead writers, and few large files of many small ones; nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from delta_table_helpers import DeltaPlace, delta_posix, delta_s3, without_digest, written
from fastkcl.cli.main import cli
from fastkcl.local_aws import LocalAws
from fastkcl.spark.sinks import DeltaSink
from fastkcl.tables import SinkError, orphans
from fastkcl.tables.compaction import compact_delta
from fastkcl.tables.delta.checkpoint import make_checkpoint
from fastkcl.tables.delta.log import LOG, entry_key
from fastkcl.tables.delta.table import PartitionColumn
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import LEAST_AGE, find_orphans
from fastkcl.tables.store import Found
from sink_helpers import SHARD, FakeSession, rows
from table_helpers import DAY, NOON, Place, arrived, as_they_are, posix_place, s3_place
from waiting import PATIENCE

TODAY = date(2026, 11, 24)


@pytest.fixture(params=["posix", "s3"])
def lake(request: pytest.FixtureRequest, aws: LocalAws, tmp_path: Path) -> DeltaPlace:
    """A Delta table with four runs on each of two days."""
    place = delta_posix(tmp_path) if request.param == "posix" else delta_s3(aws)
    table = place.table()
    table.open(SHARD)
    for number in range(8):
        table.append(arrived([number], NOON + number // 4 * DAY), as_they_are)
    return place


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now = time.time()
    monkeypatch.setattr(orphans, "time", type("Later", (), {"time": staticmethod(lambda: now + days * 86_400)}))


def test_orphans_of_a_delta_table(lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    files = lake.files()
    staged = f"date=2026-11-22/after-start-{RANDOM}.parquet"
    lake.store.create(staged, b"PAR1 staged")
    lake.store.create("date=2026-11-22/deletion_vector_1.bin", b"a vector")
    lake.store.create("_change_data/part.parquet", b"of others")
    assert find_orphans(lake.url, lake.storage).files == ()  # it is young
    later(monkeypatch, 4)
    found = find_orphans(lake.url, lake.storage)
    assert [(each.key, each.size) for each in found.files] == [(staged, 11)]
    assert find_orphans(lake.url, lake.storage, older_than=5 * LEAST_AGE).files == ()
    found.delete()
    assert find_orphans(lake.url, lake.storage).files == ()
    assert lake.files() == files
    assert lake.numbers() == list(range(8))


RANDOM = "0" * 24
OURS = (
    f"after-start-{RANDOM}.parquet",
    f"date=2026-11-22/after-49590338271490256608559692538361571095921575989136588898-{RANDOM}.parquet",
    f"stream=clicks/shard=s/after-5.0-{RANDOM[:16]}/part-00000-0d-c000.snappy.parquet",
)
OF_OTHERS = (
    "report.parquet",
    "date=2026-11-22/staged.parquet",
    "date=2026-11-22/part-00000-mine.parquet",
    "date=2026-11-22/after-3.0-mine.parquet",
    f"date=2026-11-22/after-3.0-{RANDOM[:16]}.parquet",
    f"date=2026-11-22/after-later-{RANDOM}.parquet",
    f"exports/after-start-{RANDOM}.parquet",
    f"after-5.0-{RANDOM[:16]}-copy/part-0.parquet",
)


def test_only_names_that_our_writers_give_are_orphans(lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (*OURS, *OF_OTHERS):
        lake.store.create(key, b"PAR1")
    later(monkeypatch, 4)
    found = find_orphans(lake.url, lake.storage)
    assert [each.key for each in found.files] == sorted(OURS)
    found.delete()
    there = {each.key for each in lake.store.walk()}
    assert there == {*lake.files(), *OF_OTHERS}


@pytest.mark.parametrize("partition_by", [(), ("date",), ("stream", "shard", "date")])
def test_our_writers_give_such_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition_by: tuple[PartitionColumn, ...]
) -> None:
    """A commit that came to nothing: its files are those of a table whose log never had it."""
    place = delta_posix(tmp_path / "1")
    written(place, (1, 2), (3, 4), partition_by=partition_by)
    sink = DeltaSink(tmp_path / "2" / "table")
    sink.open(SHARD)
    session: Any = FakeSession()
    sink.write(rows(1, 3), session)
    for folder in (tmp_path / "1" / "table", tmp_path / "2" / "table"):
        (*_, newest) = sorted((folder / LOG).glob("*.json"))
        newest.unlink()
        files = {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}
        lost = files - set(DeltaPlace(str(folder)).files())
        assert lost
        later(monkeypatch, 4)
        assert {each.key for each in find_orphans(str(folder)).files} == lost


@pytest.mark.parametrize(
    "mark",
    [
        f"_delta_log/{0:020d}.json",
        "_commits/clicks/shardId-000000000000/after-start",
        "_fastkcl/table",
        "metadata/00000-01234567-89ab-cdef-0123-456789abcdef.metadata.json",
        "metadata/v1.gz.metadata.json",
    ],
)
def test_a_file_in_another_table_below_is_no_orphan(
    lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """Once it was begun at the wrong URL."""
    staged = f"after-start-{RANDOM}.parquet"
    lake.store.create(f"stream=a/{mark}", b"{}")
    for folder in ("stream=a", "stream=a/date=2026-11-22", "stream=b"):
        lake.store.create(f"{folder}/{staged}", b"PAR1")
    later(monkeypatch, 4)
    assert [each.key for each in find_orphans(lake.url, lake.storage).files] == [f"stream=b/{staged}"]


def test_nothing_is_an_orphan_beside_an_iceberg_tables_metadata(
    lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.store.create("metadata/v1.metadata.json", b"{}")
    lake.store.create(f"after-start-{RANDOM}.parquet", b"PAR1")
    later(monkeypatch, 4)
    with pytest.raises(
        SinkError, match=r"metadata/v1\.metadata\.json: metadata of an Iceberg table .* nothing is called"
    ):
        find_orphans(lake.url, lake.storage)


def test_what_a_version_has_removed_is_no_orphan(lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the log's entries, and by a checkpoint when they are gone."""
    assert compact_delta(lake.url, lake.storage, today=TODAY)
    later(monkeypatch, 4)
    assert find_orphans(lake.url, lake.storage).files == ()
    handle = lake.handle()
    handle.create_checkpoint()
    for name in lake.entries()[:-1]:
        lake.store.remove(f"_delta_log/{name}")
    assert find_orphans(lake.url, lake.storage).files == ()
    assert lake.numbers() == list(range(8))


@pytest.mark.parametrize("spelling", ["{}/", "{}/.", "./{}", "x/../{}", "{table}/{}", "file://{table}/{}", "{0}//{1}"])
@pytest.mark.parametrize("by", ["entry", "checkpoint"])
def test_a_file_whose_name_is_spelled_otherwise_is_no_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str, by: str
) -> None:
    place = delta_posix(tmp_path)
    table = written(place, (1, 3))
    (name,) = place.files()
    entry = table._store.read("_delta_log/00000000000000000001.json", 1 << 20) or b""
    parts = name.split("/") if "{0}" in spelling else [name]
    made = without_digest(entry).replace(name.encode(), spelling.format(*parts, table=place.url).encode())
    assert made != entry
    table._store.replace("_delta_log/00000000000000000001.json", made)
    if by == "checkpoint":
        place.handle().create_checkpoint()
        for version in range(2):
            table._store.remove(f"_delta_log/{version:020d}.json")
    later(monkeypatch, 4)
    assert find_orphans(place.url).files == ()


def test_a_log_that_cannot_be_read_calls_nothing_an_orphan(lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.store.replace("_delta_log/00000000000000000003.json", b"{")
    later(monkeypatch, 4)
    with pytest.raises(SinkError, match=r"00000000000000000003\.json: damaged, its JSON is cut off"):
        find_orphans(lake.url, lake.storage)


@pytest.mark.parametrize(("copied", "over"), [(0, 2), (1, 3), (2, 3)])
def test_a_log_with_a_copy_of_an_entry_calls_nothing_an_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: int, over: int
) -> None:
    """The file of the entry that was replaced is the only copy of its records."""
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4), (5, 6))
    place.store.replace(entry_key(over), place.store.read(entry_key(copied), 1 << 20) or b"")
    later(monkeypatch, 4)
    with pytest.raises(SinkError, match=rf"{entry_key(over)}.*nothing is called an orphan"):
        find_orphans(place.url)


def test_a_parquet_table_has_none_but_what_lay_aside(
    aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (posix_place(tmp_path), s3_place(aws)):
        table = place.table()
        table.open(SHARD)
        table.append(arrived([1, 2]), as_they_are)
    aside = tmp_path / "table" / "_fastkcl" / "writing"
    dead, young = f".{'0' * 16}", f".{'1' * 16}"
    (aside / dead).write_bytes(b"12")
    (aside / young).write_bytes(b"12")
    old = time.time() - 4 * 86_400
    os.utime(aside / dead, (old, old))
    assert find_orphans(place.url, place.storage).files == ()
    (found,) = find_orphans(str(tmp_path / "table")).files
    assert found == Found(f"_fastkcl/writing/{dead}", 2, pytest.approx(old))


def test_compaction_of_closed_days_beside_a_writer(lake: DeltaPlace) -> None:
    writer = lake.table()
    writer.open(SHARD)
    (done,) = compact_delta(lake.url, lake.storage, today=date(2026, 11, 23))
    assert (done.part, done.removed, done.added) == ("date=2026-11-22", 4, 1)
    assert len(lake.files()) == 5
    writer.append(arrived([8], NOON + DAY), as_they_are)
    (done,) = compact_delta(lake.url, lake.storage, today=TODAY)
    assert (done.part, done.removed, done.added) == ("date=2026-11-23", 5, 1)
    assert compact_delta(lake.url, lake.storage, today=TODAY) == []
    writer.append(arrived([9], NOON + 2 * DAY), as_they_are)
    assert lake.numbers() == list(range(10))
    assert compact_delta(lake.url, lake.storage, before=date(2027, 1, 1), today=TODAY) == []  # today goes on


def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that are synced from now on."""
    found: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_what_a_compaction_has_made_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake syncs nothing: the large files, their folders, and then the entry, of each day."""
    place = delta_posix(tmp_path)
    table = place.table()
    table.open(SHARD)
    for number in range(6):
        table.append(arrived([number], NOON + (number // 3) * DAY), as_they_are)
    small, before = set(place.files()), set(place.entries())
    calls = synced(monkeypatch)
    assert len(compact_delta(place.url, today=TODAY)) == 2
    root = Path(place.url)
    large = [root / name for name in sorted(set(place.files()) - small)]
    entries = [root / LOG / name for name in sorted(set(place.entries()) - before)]
    assert (len(large), len(entries)) == (2, 2)
    for file, entry in zip(large, entries, strict=True):
        first = calls.index(entry)
        assert calls.index(file) < calls.index(file.parent) < first < calls.index(root / LOG, first)
    assert not small & {path.relative_to(root).as_posix() for path in calls if root in path.parents}


def test_each_checkpoint_that_a_compaction_has_made_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = delta_posix(tmp_path)
    table = place.table()
    table.open(SHARD)
    for number in range(9):
        table.append(arrived([number], NOON + (number // 3) * DAY), as_they_are)
    place.handle().alter.set_table_properties({"delta.checkpointInterval": "1"})
    root = Path(place.url)
    before = set((root / LOG).glob("*.checkpoint.parquet"))
    calls = synced(monkeypatch)
    assert len(compact_delta(place.url, today=TODAY)) == 2
    made = set((root / LOG).glob("*.checkpoint.parquet")) - before
    assert len(made) >= 2
    assert made <= set(calls)


def test_what_a_compaction_that_has_died_left_unsynced_is_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = delta_posix(tmp_path)
    table = place.table()
    table.open(SHARD)
    for number in range(3):
        table.append(arrived([number]), as_they_are)
    small = set(place.files())
    place.handle().optimize.compact()
    calls = synced(monkeypatch)
    assert compact_delta(place.url, today=TODAY) == []
    (large,) = set(place.files()) - small
    file = Path(place.url, large)
    assert calls.index(file) < calls.index(file.parent)


def test_a_compaction_whose_file_a_power_cut_has_emptied_is_taken_back(tmp_path: Path) -> None:
    """As docs/recovery.md says: the small files are there until VACUUM removes them."""
    place = delta_posix(tmp_path)
    table = place.table()
    table.open(SHARD)
    for number in range(3):
        table.append(arrived([number]), as_they_are)
    small = set(place.files())
    place.handle().optimize.compact()
    (large,) = set(place.files()) - small
    entry = place.entries()[-1]
    table.append(arrived([3]), as_they_are)
    place.handle().create_checkpoint()
    Path(place.url, large).write_bytes(b"")
    assert f"{large}: it has 0 bytes, and the log says" in command(place, "inspect")[1]
    place.store.replace(f"{LOG}/{entry}", b'{"commitInfo":{}}')
    for name in ("_last_checkpoint", place.entries()[-1].replace(".json", ".checkpoint.parquet")):
        place.store.remove(f"{LOG}/{name}")
    assert place.numbers() == [0, 1, 2, 3]
    code, said = command(place, "inspect")
    assert code == 0, said
    table = place.table()
    table.open(SHARD)
    table.append(arrived([4]), as_they_are)
    assert place.numbers() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("folder", [".", "a ü"])
def test_compaction_does_not_wait_for_a_fifo_in_the_place_of_a_file(tmp_path: Path, folder: str) -> None:
    """In a process: one that waits in deltalake does not end by SIGINT."""
    place = delta_posix(tmp_path / folder)
    table = place.table()
    table.open(SHARD)
    for number in range(2):
        table.append(arrived([number]), as_they_are)
    file = Path(place.url, unquote(place.handle().get_add_actions().column("path").to_pylist()[0]))
    file.unlink()
    os.mkfifo(file)
    command = [sys.executable, "-m", "fastkcl", "sink", "compact", place.url]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 2
    assert f"{file}: a FIFO, socket or device is in the place of a file: restore the file from a copy" in ran.stderr


def test_a_table_without_days_is_compacted_as_a_whole(tmp_path: Path) -> None:
    """As DeltaSink's are, which are partitioned like this."""
    place = delta_posix(tmp_path)
    table = place.table(partition_by=("stream", "shard"))
    table.open(SHARD)
    for number in range(3):
        table.append(arrived([number]), as_they_are)
    with pytest.raises(SinkError, match="is not partitioned by date"):
        compact_delta(place.url, before=TODAY, today=TODAY)
    (done,) = compact_delta(place.url, today=TODAY)
    assert (done.part, done.removed, done.added) == ("the table", 3, 1)
    table.append(arrived([3]), as_they_are)
    assert place.numbers() == [0, 1, 2, 3]


def command(place: Place, *arguments: str) -> tuple[int, str]:
    options = [] if place.storage is None else ["--endpoint-url", str(place.storage.endpoint)]
    keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_DEFAULT_REGION": "us-east-1"}
    done = CliRunner().invoke(cli, ["sink", arguments[0], place.url, *options, *arguments[1:]], env=keys)
    return done.exit_code, done.output


def test_the_commands(lake: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = f"date=2026-11-22/after-start-{RANDOM}.parquet"
    lake.store.create(staged, b"PAR1 staged")
    assert command(lake, "orphans") == (0, "No orphans.\n")
    later(monkeypatch, 4)
    assert command(lake, "orphans") == (
        0,
        f"{staged}  11 bytes\n1 files of 0.0 MB orphaned\n",
    )
    code, said = command(lake, "orphans", "--delete", "--json", "--older-than", "36h")
    found: dict[str, Any] = json.loads(said)
    assert (code, found["deleted"], len(found["files"])) == (0, True, 1)
    assert command(lake, "orphans") == (0, "No orphans.\n")
    assert command(lake, "orphans", "--older-than", "23h")[0] == 2
    assert command(lake, "compact", "--before", "2026-11-23") == (0, "date=2026-11-22: 4 files became 1\n")
    assert command(lake, "compact", "--before", "2026-11-23") == (0, "Nothing to compact.\n")


def test_what_is_refused(aws: LocalAws, tmp_path: Path) -> None:
    for place in (posix_place(tmp_path), s3_place(aws)):
        place.table().open(SHARD)
        code, said = command(place, "compact")
        assert code == 2
        assert "a table of a ParquetTable is not compacted: its readers list its files" in said
    nothing = Place(str(tmp_path))
    for verb in ("orphans", "compact"):
        code, said = command(nothing, verb)
        assert code == 2
        assert "no table of a worker" in said
    with pytest.raises(ValueError, match="at least a day"):
        find_orphans(place.url, place.storage, older_than=3600)


def test_uploads_of_others_are_listed(aws: LocalAws) -> None:
    place = s3_place(aws)
    place.table().open(SHARD)
    bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
    aws.client("s3").create_multipart_upload(Bucket=bucket, Key=f"{prefix}/large.parquet")
    code, said = command(place, "orphans", "--delete")
    assert code == 0
    assert f"unfinished upload of {prefix}/large.parquet, begun 20" in said
    assert "AbortIncompleteMultipartUpload" in said
    assert len(json.loads(command(place, "orphans", "--json")[1])["uploads"]) == 1  # it is not ours to end


def _cut_checkpoint(log: Path) -> None:
    path = log / f"{2:020d}.checkpoint.parquet"
    path.rename(log / f"{2:020d}.checkpoint.0000000001.0000000002.parquet")


def _other_columns(log: Path) -> None:
    pq.write_table(pa.table({"add": ["a"], "txn": [1]}), log / f"{2:020d}.checkpoint.parquet")


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda log: (log / f"{3:020d}.json").write_bytes(b""), "damaged, 0 bytes"),
        (lambda log: (log / f"{3:020d}.json").unlink(), "3.json: missing, and no whole checkpoint has it"),
        (_cut_checkpoint, "0.json: missing, and no whole checkpoint has it"),
        (_other_columns, "a damaged checkpoint"),
        (lambda log: pq.write_table(pa.table({"txn": [1]}), log / f"{2:020d}.checkpoint.parquet"), "no column add"),
    ],
)
def test_nothing_is_an_orphan_of_a_log_that_is_not_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], what: str
) -> None:
    """What the lost part names would be deleted for good."""
    place = delta_posix(tmp_path)
    table = written(place, *((first, first + 2) for first in range(1, 16, 3)))
    make_checkpoint(table._store, 2, {})
    log = tmp_path / "table" / "_delta_log"
    for version in range(2):
        (log / f"{version:020d}.json").unlink()
    later(monkeypatch, 10)
    assert find_orphans(place.url).files == ()
    damage(log)
    with pytest.raises(SinkError, match=what):
        find_orphans(place.url)


def test_an_entry_of_a_far_version_costs_nothing(tmp_path: Path) -> None:
    """All versions before it are missing: they are not counted one by one. It is a copy of the first entry."""
    place = delta_posix(tmp_path)
    written(place, (1, 3))
    log = tmp_path / "table" / "_delta_log"
    (log / f"{'9' * 20}.json").write_bytes((log / f"{1:020d}.json").read_bytes())
    for look in (lambda: place.table().open(SHARD), lambda: find_orphans(place.url)):
        with pytest.raises(SinkError, match="2.json: missing"):
            look()
    state = inspect_table(place.url)
    assert [each.split(": ")[-1] for each in state.damage] == [
        "missing, and there are later ones",
        "its own content is lost",
    ]


def test_a_table_without_one_of_its_files_is_not_compacted(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4))
    file = Path(place.url, place.files()[0])
    file.unlink()
    with pytest.raises(SinkError, match=f"{file}: the log names it, and it is missing: restore it"):
        compact_delta(place.url, today=TODAY)


def damaged(lines: list[bytes]) -> bytes:
    return b"".join(line for line in lines if not line.startswith(b'{"add"'))


@pytest.mark.parametrize("spoil", [damaged, lambda _: b"", lambda lines: lines[0]], ids=["a file", "all", "its end"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_damaged_log_is_not_compacted(
    tmp_path: Path, spoil: Callable[[list[bytes]], bytes], *, checkpoint: bool
) -> None:
    """The commit could make a checkpoint over the damage, and a clean-up remove the entry."""
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4), (5, 6))
    key = entry_key(2)
    place.store.replace(key, spoil((place.store.read(key, 1 << 20) or b"").splitlines(keepends=True)))
    if checkpoint:
        place.handle().create_checkpoint()
    files = place.store.files(LOG)
    with pytest.raises(SinkError, match=f"{key}.*the remedy is in docs/recovery.md"):
        compact_delta(place.url, today=TODAY)
    assert place.store.files(LOG) == files
