"""ParquetSink: each record exactly once, whoever dies or wakes up, and whenever."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from fastkcl import Position
from fastkcl.spark.sinks import ParquetSink, Shard, SinkError
from fastkcl.tables import storage
from fastkcl.tables.folders import spelled, unspelled
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.parquet.sink import commits, shards
from sink_helpers import (
    NO_FILES,
    PARQUET,
    SHARD,
    FakeSession,
    FakeWriter,
    Mortals,
    batch,
    edit_commit,
    race,
    rows,
    stored,
)

SESSION: Any = FakeSession()


def opened(folder: Path, shard: Shard = SHARD, **options: Any) -> tuple[ParquetSink, Position | None]:
    sink = ParquetSink(folder, **options)
    return sink, sink.open(shard)


def test_a_life(tmp_path: Path) -> None:
    sink, position = opened(tmp_path / "table")
    assert position is None
    assert sink.write(rows(1, 10), SESSION) == Position("10", 0)
    assert sink.write(rows(11, 12), SESSION) == Position("12", 0)
    assert stored(tmp_path / "table") == list(range(1, 13))
    table = pa.dataset.dataset(tmp_path / "table", format="parquet", partitioning="hive").to_table()
    assert set(table["stream"].to_pylist()) == {"clicks"}
    assert set(table["shard"].to_pylist()) == {"shardId-000000000000"}
    assert opened(tmp_path / "table")[1] == Position("12", 0)
    assert shards(tmp_path / "table") == ({SHARD: f"clicks/{SHARD.shard_id}"}, [])
    assert [(c.after, c.upto, c.rows) for c in commits(tmp_path / "table", f"clicks/{SHARD.shard_id}")] == [
        (None, Position("10", 0), 10),
        (Position("10", 0), Position("12", 0), 2),
    ]
    assert list((tmp_path / "table" / "_staging" / "clicks" / SHARD.shard_id).iterdir()) == []


def test_what_is_delivered_again_is_dropped(tmp_path: Path) -> None:
    opened(tmp_path)[0].write(rows(1, 10), SESSION)
    sink, _ = opened(tmp_path)
    assert sink.write(rows(3, 7), SESSION) == Position("10", 0)
    assert sink.write(rows(5, 14), SESSION) == Position("14", 0)
    assert stored(tmp_path) == list(range(1, 15))


def test_aggregates_are_cut_between_their_records(tmp_path: Path) -> None:
    from fastkcl.spark.sinks.rows import ShardRows

    sink, _ = opened(tmp_path)
    sink.write(ShardRows([batch([(9, 0), (10, 0), (10, 1)])], legacy=False), SESSION)
    assert sink.write(ShardRows([batch([(10, 0), (10, 1), (10, 2), (11, 0)])], legacy=False), SESSION) == Position(
        "11", 0
    )
    assert stored(tmp_path) == [9, 10, 10, 10, 11]


def test_the_legacy_dialect_drops_by_sequence_number(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    assert sink.write(rows(1, 4, legacy=True), SESSION) == Position("4")
    sink, position = opened(tmp_path)
    assert position is not None
    assert position.sub_sequence_number is None
    sink.write(rows(3, 6, legacy=True), SESSION)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_positions_of_any_length(tmp_path: Path) -> None:
    first = 10**128
    for start in (first, first + 5):
        opened(tmp_path)[0].write(rows(start, start + 4), SESSION)
    assert stored(tmp_path) == list(range(first, first + 10))


@pytest.mark.parametrize("name", ["a/b", "..", ".", "%2F", "ü ß", "a=b", "_x"])
def test_streams_of_any_name_and_shards_of_one_name(tmp_path: Path, name: str) -> None:
    table = tmp_path / "t"
    for shard in (Shard(name, "s"), Shard("other", "s")):
        opened(table, shard)[0].write(rows(1, 3), SESSION)
    assert stored(table) == [1, 1, 2, 2, 3, 3]
    assert shards(table)[0].keys() == {Shard(name, "s"), Shard("other", "s")}
    read = pa.dataset.dataset(table, format="parquet", partitioning="hive").to_table()
    assert set(read["stream"].to_pylist()) == {spelled(name), "other"}
    assert unspelled(spelled(name)) == name
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_transform(tmp_path: Path) -> None:
    def few(df: Any) -> Any:
        df.write = FakeWriter(df.table.filter(pa.compute.equal(df.table["sequenceNumber"], "2")), 1)
        return df

    import pyarrow.compute  # noqa: F401 - for pa.compute

    opened(tmp_path, transform=few)[0].write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [2]
    assert opened(tmp_path)[1] == Position("3", 0)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    def fails(df: Any) -> Any:
        df.write.parquet = lambda url: (Path(url.removeprefix("file://")).mkdir(), 1 / 0)
        return df

    with pytest.raises(ZeroDivisionError):
        opened(tmp_path, transform=fails)[0].write(rows(1, 3), SESSION)
    assert list((tmp_path / "_staging" / "clicks" / SHARD.shard_id).iterdir()) == []
    sink, position = opened(tmp_path)
    assert position is None
    sink.write(rows(1, 3), SESSION)
    assert stored(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("url", ["s3://bucket/table", "S3A://b/t", "dbfs:/mnt/t", "hdfs:/t", "file://host/t"])
def test_no_folder_of_a_url(url: str) -> None:
    with pytest.raises(ValueError, match=f"POSIX file system, not {url}"):
        ParquetSink(url)


def test_a_url_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path, folder in ((f"file://{tmp_path}/a", "a"), (f"file:{tmp_path}/b", "b"), ("./dbfs:/c", "dbfs:/c")):
        ParquetSink(path).open(SHARD)
        assert (tmp_path / folder / "_table").is_file()


def test_damage_is_told(tmp_path: Path) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    data = tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}"
    for file in data.iterdir():
        file.unlink()
    with pytest.raises(SinkError, match="committed .* and gone"):
        opened(tmp_path)
    commit = tmp_path / "_commits" / "clicks" / SHARD.shard_id / "after-start"
    commit.write_text("{")
    with pytest.raises(SinkError, match="after-start: a damaged commit file"):
        opened(tmp_path)
    (commit.parent / "after-noon").touch()
    with pytest.raises(SinkError, match="after-noon: no name of a commit file"):
        opened(tmp_path)
    with pytest.raises(SinkError, match="no table of a ParquetSink"):
        shards(tmp_path / "_commits")


# ---- damage and hostile files -----------------------------------------------------------------------------------


FOLDERS = f"clicks/{SHARD.shard_id}"
DATA = f"stream=clicks/shard={SHARD.shard_id}"
OTHER = Shard("clicks", "shardId-000000000001")


def commit_file(table: Path, after: str) -> Path:
    return table / "_commits" / FOLDERS / f"after-{after}"


def files_of(table: Path) -> dict[str, bytes]:
    return {str(path.relative_to(table)): path.read_bytes() for path in table.rglob("*") if path.is_file()}


def test_a_commit_file_that_is_missing_is_told_before_anything_is_written(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    sink.write(rows(4, 6), SESSION)
    commit_file(tmp_path, "3.0").unlink()
    before = files_of(tmp_path)
    with pytest.raises(SinkError, match=r"3.0-00000.parquet: published \(2 files\), and its commit file is gone"):
        opened(tmp_path)
    with pytest.raises(SinkError, match="this commit was there, and is gone"):
        sink.write(rows(7, 9), SESSION)
    assert files_of(tmp_path) == before


def test_published_data_is_never_replaced(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    there = tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}" / "3.0-00001.parquet"
    there.write_bytes(b"somebody's")
    with pytest.raises(SinkError, match="3.0-00001.parquet: there is another file in the place of"):
        sink.write(rows(4, 6), SESSION)
    assert there.read_bytes() == b"somebody's"


@pytest.mark.parametrize("how", ["another", "gone", "older"])
def test_another_table_in_its_place_is_told(tmp_path: Path, how: str) -> None:
    """At the next commit, and again when the same process asks how far the table is."""
    table = tmp_path / "table"
    sink, _ = opened(table)
    sink.write(rows(1, 3), SESSION)
    if how == "older":
        shutil.copytree(table, tmp_path / "copy")
        sink.write(rows(4, 6), SESSION)
    shutil.rmtree(table)
    if how == "another":
        opened(table)[0].write(rows(1, 3), SESSION)
    elif how == "older":
        (tmp_path / "copy").rename(table)
    for _ in range(2):
        with pytest.raises((SinkError, FileNotFoundError), match="table was replaced|No such file"):
            sink.write(rows(7, 9), SESSION)
        with pytest.raises(SinkError, match="the table was replaced"):
            sink.open(SHARD)
    if how == "gone":
        assert not table.exists()
    else:
        assert stored(table) == [1, 2, 3]


@pytest.mark.parametrize("runs", [[(4, 5)], [(4, 6)], [(4, 5), (6, 8)]])
def test_an_older_copy_that_others_have_continued_is_told(tmp_path: Path, runs: list[tuple[int, int]]) -> None:
    """It has the table's id, and a commit after the same position, which is another one."""
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
    before = readable(table)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"after-3.0: is another commit than the one that this writer has seen"):
            sink.write(rows(7, 9), SESSION)
        with pytest.raises(SinkError, match="is another commit"):
            sink.open(SHARD)
    assert readable(table) == before
    assert inspect_table(table).ok


def test_a_commit_that_is_damaged_under_a_writer_is_told(tmp_path: Path) -> None:
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    commit_file(tmp_path, "start").write_bytes(b"")
    before = readable(tmp_path)
    with pytest.raises(SinkError, match=r"after-start: a damaged commit file"):
        sink.write(rows(4, 6), SESSION)
    assert readable(tmp_path) == before


def left_while_publishing(table: Path, links: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records 1 to 3; and 4 to 6, committed, by a child that died when so many of two files had their names."""
    opened(table)[0].write(rows(1, 3), SESSION)
    sink, _ = opened(table)
    link, made = storage.link, list[Path]()

    def die_later(source: Path, target: Path) -> None:
        if "stream=clicks" in target.parts:
            if len(made) == links:
                die(target)
            made.append(target)
        link(source, target)

    def die(path: Path) -> None:
        raise OSError(errno.EIO, "it died", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(storage, "link", die_later)
        patch.setattr(storage, "remove", die)
        with pytest.raises(OSError, match="it died"):
            sink.write(rows(4, 6), SESSION)


@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_remedy_for_a_newest_commit_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    """As docs/recovery.md has it, where the staging folder is there."""
    left_while_publishing(tmp_path / "table", published, monkeypatch)
    files = list((tmp_path / "table" / DATA).glob("3.0-*.parquet"))
    assert len(files) == published
    assert list((tmp_path / "table" / "_staging" / FOLDERS).glob("after-3.0-*"))
    commit_file(tmp_path / "table", "3.0").write_bytes(b"{")
    with pytest.raises(SinkError, match=r"after-3\.0: a damaged commit file"):
        opened(tmp_path / "table")
    for file in files:
        file.rename(tmp_path / file.name)
    commit_file(tmp_path / "table", "3.0").unlink()
    sink, position = opened(tmp_path / "table")
    assert position == Position("3", 0)
    sink.write(rows(4, 6), SESSION)
    assert stored(tmp_path / "table") == [1, 2, 3, 4, 5, 6]
    assert inspect_table(tmp_path / "table").ok


@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_copy_that_makes_two_files_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: int) -> None:
    """As `cp -r` does, of a table that a child was publishing into."""
    left_while_publishing(tmp_path / "table", published, monkeypatch)
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    synced: list[Path] = []
    monkeypatch.setattr(storage, "sync_file", synced.append)
    assert opened(tmp_path / "copy")[1] == Position("6", 0)
    files = sorted((tmp_path / "copy" / DATA).glob("3.0-*.parquet"))
    assert len(files) == 2
    assert [path for path in synced if "stream=clicks" in path.parts] == files[:published]  # before the staged ones go
    assert not list((tmp_path / "copy" / "_staging" / FOLDERS).iterdir())
    assert stored(tmp_path / "copy") == [1, 2, 3, 4, 5, 6]
    assert inspect_table(tmp_path / "copy").ok


@pytest.mark.parametrize("change", [lambda body: body + b"x", lambda body: bytes([body[0] ^ 1]) + body[1:]])
def test_but_not_if_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]
) -> None:
    left_while_publishing(tmp_path / "table", 1, monkeypatch)
    shutil.copytree(tmp_path / "table", tmp_path / "copy")
    (file,) = (tmp_path / "copy" / DATA).glob("3.0-*.parquet")
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(SinkError, match="there is another file in the place of"):
        opened(tmp_path / "copy")
    assert list((tmp_path / "copy" / "_staging" / FOLDERS).iterdir())


HOSTILE = {
    "an empty staging": {"staging": ""},
    "no staging": {"staging": None},
    "the table": {"staging": "."},
    "a folder beside the table": {"staging": "../witness"},
    "an absolute folder": {"staging": "/tmp"},
    "another shard's staging": {"staging": f"_staging/clicks/other/after-3.0-{'0' * 16}"},
    "a way out of the staging": {"staging": f"_staging/{FOLDERS}/after-3.0-../../../../witness"},
    "a file elsewhere": {"files": ["../../../../../witness/file.parquet"]},
    "a file twice": {"files": ["a.parquet", "a.parquet"]},
    "no names": {"files": [7]},
    "no list of files": {"files": {}},
    "a name that no file has": {"files": ["\ud800.parquet"]},
    "a name that no file can have": {"files": ["a" * 248 + ".parquet"]},
    "an end before its beginning": {"upto": ["2", 0]},
    "an end at its beginning": {"upto": ["3", 0]},
    "another beginning": {"after": ["2", 0]},
    "no position": {"upto": ["-5", 0]},
    "a number as a position": {"upto": [6, 0]},
    "a position that no record has": {"upto": ["9" * 130, 0]},
    "a fraction of rows": {"rows": 1.5},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_commit_file_is_not_believed(tmp_path: Path, change: dict[str, Any]) -> None:
    """Nothing is removed, nothing is looked for for ever."""
    table, witness = tmp_path / "table", tmp_path / "witness"
    witness.mkdir()
    (witness / "file.parquet").write_bytes(b"mine")
    sink, _ = opened(table)
    sink.write(rows(1, 3), SESSION)
    sink.write(rows(4, 6), SESSION)
    file = commit_file(table, "3.0")
    edit_commit(file, **change)
    before = files_of(tmp_path)
    with pytest.raises(SinkError, match="after-3.0: a damaged commit file"):
        opened(table)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("text", [b"", b"{}", b"[" * 100_000, b'{"format": 2, "id": "x"}', b'{"format": 1, "id": 7}'])
def test_an_id_that_is_damaged_is_told(tmp_path: Path, text: bytes) -> None:
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    (tmp_path / "_table").write_bytes(text)
    with pytest.raises(SinkError, match="_table: damaged"):
        opened(tmp_path)
    state = inspect_table(tmp_path)
    assert not state.ok
    assert "_table: damaged" in state.damage[0]


def test_staging_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    (witness / f"after-start-{'0' * 16}").mkdir(parents=True)
    opened(tmp_path / "table")[0].write(rows(1, 3), SESSION)
    staging = tmp_path / "table" / "_staging" / FOLDERS
    staging.rmdir()
    staging.symlink_to(witness)
    with pytest.raises(SinkError, match="leads elsewhere"):
        opened(tmp_path / "table")
    assert (witness / f"after-start-{'0' * 16}").is_dir()


def test_a_folder_of_others_beside_what_was_staged_is_left(tmp_path: Path) -> None:
    opened(tmp_path / "table")[0].write(rows(1, 3), SESSION)
    staging = tmp_path / "table" / "_staging" / FOLDERS
    dead, others = staging / f"after-start-{'0' * 16}", staging / "after-start-copy"
    dead.mkdir()
    others.mkdir()
    opened(tmp_path / "table")
    assert list(staging.iterdir()) == [others]


@pytest.mark.parametrize("level", ["_staging", "_staging/clicks", f"_staging/{FOLDERS}"])
def test_staging_that_leads_elsewhere_is_no_sound_table(tmp_path: Path, level: str) -> None:
    table = tmp_path / "table"
    opened(table)[0].write(rows(1, 3), SESSION)
    (table / level).rename(tmp_path / "elsewhere")
    (table / level).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match="leads elsewhere.*recovery.md"):
        opened(table)
    (shard,) = inspect_table(table).shards
    assert not shard.ok
    assert "leads elsewhere" in shard.damage[0]


@pytest.mark.parametrize("level", ["_staging", "_staging/clicks", f"_staging/{FOLDERS}"])
def test_staging_that_leads_in_a_circle_is_no_sound_table(tmp_path: Path, level: str) -> None:
    table = tmp_path / "table"
    opened(table)[0].write(rows(1, 3), SESSION)
    shutil.rmtree(table / level)
    (table / level).symlink_to(table / level)
    (shard,) = inspect_table(table).shards
    assert "leads elsewhere" in shard.damage[0]


def remove_commits_and_data(table: Path) -> None:
    for folders in (f"_commits/{FOLDERS}", DATA):
        shutil.rmtree(table / folders)


def empty_commits_and_remove_data(table: Path) -> None:
    for name in (table / "_commits" / FOLDERS).iterdir():
        name.unlink()
    shutil.rmtree(table / DATA)


def leave_the_note(table: Path) -> None:
    opened(table)[0].give_up(Position("9", 0))
    for folders in (f"_commits/{FOLDERS}", DATA, f"_staging/{FOLDERS}"):
        shutil.rmtree(table / folders)


@pytest.mark.parametrize("remove", [remove_commits_and_data, empty_commits_and_remove_data, leave_the_note])
def test_a_shard_whose_commits_and_data_are_gone_is_no_sound_table(
    tmp_path: Path, remove: Callable[[Path], None]
) -> None:
    """What a sink has made beside them shows that they were there; a neighbour is sound."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    opened(tmp_path, OTHER)[0].write(rows(1, 3), SESSION)
    assert inspect_table(tmp_path).ok
    remove(tmp_path)
    state = inspect_table(tmp_path)
    assert not state.ok
    (fault,) = [*state.damage, *(fault for shard in state.shards for fault in shard.damage)]
    assert f"_commits/{FOLDERS}: gone" in fault or f"{DATA}: gone" in fault


def remove_everything_of_it(table: Path) -> None:
    for folders in (f"_commits/{FOLDERS}", DATA, f"_staging/{FOLDERS}"):
        shutil.rmtree(table / folders)


def remove_the_files_alone(table: Path) -> None:
    for folders in (f"_commits/{FOLDERS}", DATA):
        for file in (table / folders).iterdir():
            file.unlink()


@pytest.mark.parametrize("remove", [remove_everything_of_it, remove_the_files_alone])
def test_a_shard_of_which_nothing_is_left_looks_new(tmp_path: Path, remove: Callable[[Path], None]) -> None:
    """As the guarantees say: there a daemon's checkpoint alone shows the loss."""
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    opened(tmp_path, OTHER)[0].write(rows(1, 3), SESSION)
    remove(tmp_path)
    assert inspect_table(tmp_path).ok
    assert opened(tmp_path)[1] is None


def test_a_death_at_the_making_of_folders_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(tmp_path, OTHER)
    made = storage.make_folder
    for allowed in range(3):
        left = iter(range(allowed))

        def make(folder: Path, kept: Any = None, *, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(folder))
            made(folder, kept)

        monkeypatch.setattr(storage, "make_folder", make)
        with pytest.raises(OSError, match="error"):
            opened(tmp_path)
        assert inspect_table(tmp_path).ok


def test_data_of_elsewhere_are_told(tmp_path: Path) -> None:
    table = tmp_path / "table"
    opened(table)[0].write(rows(1, 3), SESSION)
    (table / "stream=clicks").rename(tmp_path / "elsewhere")
    (table / "stream=clicks").symlink_to(tmp_path / "elsewhere")
    state = inspect_table(table)
    assert not state.ok
    assert "stream=clicks: leads elsewhere" in state.damage[0]


def readable(table: Path) -> dict[str, bytes]:
    return {name: content for name, content in files_of(table).items() if not name.startswith("_staging")}


def is_told(sink: ParquetSink, call: str) -> None:
    calls = {
        "open": lambda: sink.open(SHARD),
        "write": lambda: sink.write(rows(7, 9), SESSION),
        "given_up": sink.given_up,
    }
    with pytest.raises(SinkError, match=r"is in the place of a file: restore .*recovery.md"):
        calls[call]()


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("_table", ["open", "write"]),
        (f"_commits/{FOLDERS}/after-3.0", ["open", "write"]),
        (f"_commits/{FOLDERS}/after-6.0", ["open", "write"]),  # where the next one belongs
        (f"_given_up/{FOLDERS}", ["given_up"]),
    ],
)
def test_what_is_no_file_is_named(tmp_path: Path, name: str, calls: list[str], what: str) -> None:
    """It is not read, which a FIFO would keep for ever; nothing is written, nothing is removed."""
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    sink.write(rows(4, 6), SESSION)
    sink.give_up(Position("7", 0))
    NO_FILES[what](tmp_path / name)
    before = readable(tmp_path)
    for call in calls:
        is_told(sink, call)
    if "open" in calls:
        is_told(ParquetSink(tmp_path), "open")
    state = inspect_table(tmp_path)
    assert not state.ok
    assert "is in the place of a file" in [*state.damage, *state.shards[0].damage][0]
    assert readable(tmp_path) == before


@pytest.mark.parametrize("name", ["_table", f"_commits/{FOLDERS}/after-3.0", f"_given_up/{FOLDERS}"])
def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    """A terabyte with nothing in it takes no room on the disk, and all of the memory."""
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    sink.write(rows(4, 6), SESSION)
    sink.give_up(Position("7", 0))
    os.truncate(tmp_path / name, 1 << 40)
    most = "1,048,576" if "_given_up" in name else "67,108,864"
    told = rf": damaged, 1,099,511,627,776 bytes, and at most {most} are read: .*recovery"
    with pytest.raises(SinkError, match=told):
        sink.given_up() if "_given_up" in name else ParquetSink(tmp_path).open(SHARD)
    state = inspect_table(tmp_path)
    assert not state.ok
    assert f"{name}: damaged, 1,099," in [*state.damage, *state.shards[0].damage][0]


@pytest.mark.parametrize("what", NO_FILES)
def test_what_is_no_file_takes_no_data_with_it(tmp_path: Path, what: str) -> None:
    """In the place where the files of a commit are to be published, which then stay staged."""
    sink, _ = opened(tmp_path)
    sink.write(rows(1, 3), SESSION)
    place = tmp_path / "stream=clicks" / f"shard={SHARD.shard_id}" / "3.0-00001.parquet"
    NO_FILES[what](place)
    for ask in (lambda: sink.write(rows(4, 6), SESSION), lambda: opened(tmp_path)):
        with pytest.raises(SinkError, match=r"3.0-00001.parquet: .* is in the place of a file"):
            ask()
    state = inspect_table(tmp_path)
    assert not state.ok
    (place.unlink if place.is_symlink() or not place.is_dir() else place.rmdir)()
    assert opened(tmp_path)[1] == Position("6", 0)
    assert stored(tmp_path) == list(range(1, 7))


@pytest.mark.parametrize("what", ["a link that leads nowhere", "a FIFO"])
@pytest.mark.parametrize("name", ["_commits", "_staging", "stream=clicks", "_commits/clicks"])
def test_what_is_no_folder_is_named(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    NO_FILES[what](tmp_path / name)
    with pytest.raises(SinkError, match=f"{name}: a .* is in the place of a folder: .*recovery.md"):
        opened(tmp_path)


def test_an_error_is_no_absence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged files of a commit that nobody can see for the moment stay."""
    sink, _ = opened(tmp_path)

    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        commit = ParquetSink._commit

        def commits_and_fails(*arguments: Any) -> None:
            commit(*arguments)
            patch.setattr(Path, "stat", fails)
            fails()

        patch.setattr(ParquetSink, "_commit", commits_and_fails)
        with pytest.raises(OSError, match="input/output"):
            sink.write(rows(1, 3), SESSION)
    assert sink.open(SHARD) == Position("3", 0)
    assert stored(tmp_path) == [1, 2, 3]


def test_a_sync_that_fails_is_not_followed_by_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, _ = opened(tmp_path)
    sync = storage.sync_folder

    def fails(folder: Path) -> None:
        if "_commits" in folder.parts:
            raise OSError(errno.EIO, "input/output error")
        sync(folder)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "sync_folder", fails)
        with pytest.raises(OSError, match="input/output"):
            sink.write(rows(1, 3), SESSION)
        assert commit_file(tmp_path, "start").exists()
        with pytest.raises(OSError, match="input/output"):
            sink.open(SHARD)
        with pytest.raises(OSError, match="input/output"):
            opened(tmp_path)
    assert opened(tmp_path)[1] == Position("3", 0)
    assert stored(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("shard", [Shard("", "s"), Shard("s", "")])
def test_a_name_is_needed(tmp_path: Path, shard: Shard) -> None:
    with pytest.raises(ValueError, match="needs the name of a stream and of a shard"):
        opened(tmp_path, shard)


def in_old_spelling(table: Path) -> None:
    """A table of stream 007 as earlier versions have made it."""
    for before, after in (("_commits/@007", "007"), ("_staging/@007", "007"), ("stream=@007", "stream=007")):
        (table / before).rename((table / before).with_name(after))
    for file in (table / "_commits" / "007" / "s").iterdir():
        edit_commit(file, checksum=False, staging=json.loads(file.read_text())["staging"].replace("@007", "007"))
    (table / "_table").unlink()


def test_an_old_table_goes_on_in_its_spelling(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shard = Shard("007", "s")
    opened(tmp_path, shard)[0].write(rows(1, 3), SESSION)
    in_old_spelling(tmp_path)
    sink, position = opened(tmp_path, shard)
    assert position == Position("3", 0)
    assert "are in _commits/007/s, as an earlier version has spelled it" in caplog.text
    sink.write(rows(2, 6), SESSION)
    assert stored(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert shards(tmp_path) == ({shard: "007/s"}, [])
    assert not (tmp_path / "stream=@007").exists()


def test_commits_in_two_spellings_are_refused(tmp_path: Path) -> None:
    shard = Shard("007", "s")
    opened(tmp_path / "new", shard)[0].write(rows(1, 3), SESSION)
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    in_old_spelling(tmp_path / "old")
    shutil.copytree(tmp_path / "old" / "_commits" / "007", tmp_path / "new" / "_commits" / "007")
    fault = "_commits/007/s and _commits/@007/s, and belong into _commits/@007/s alone"
    with pytest.raises(SinkError, match=fault):
        opened(tmp_path / "new", shard)
    found, (told,) = shards(tmp_path / "new")
    assert found == {shard: "007/s"}
    assert fault in told


# ---- deaths and zombies -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals("PARQUET") as mortals:
        yield mortals


def test_a_death_at_every_step(tmp_path: Path, mortals: Mortals) -> None:
    """What is delivered again from the start, and what comes after it, is there once."""
    steps = 0
    while not mortals.write(tmp_path / str(steps), 1, 8, steps=steps):
        folder = tmp_path / str(steps)
        sink, position = opened(folder)
        seen = stored(folder) if position is not None else []
        assert seen == list(range(1, 1 + len(seen)))
        assert len(seen) in (0, 4, 8)
        assert position == (Position(str(len(seen)), 0) if seen else None)
        sink.write(rows(1, 6), SESSION)
        sink.write(rows(7, 12), SESSION)
        assert stored(folder) == list(range(1, 13))
        steps += 1
    assert steps > 30


@pytest.mark.parametrize("seed", range(20))
def test_deaths_in_a_row(tmp_path: Path, mortals: Mortals, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        first = chance.randrange(1, 30)
        mortals.write(tmp_path, 1, first + chance.randrange(1, 30), steps=chance.randrange(0, 60))
    sink, position = opened(tmp_path)
    seen = stored(tmp_path) if position is not None else []
    assert seen == list(range(1, 1 + len(seen)))
    sink.write(rows(1, 80), SESSION)
    assert stored(tmp_path) == list(range(1, 81))


def test_a_zombie_whose_staging_a_successor_has_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wakes up before it syncs its file: its records, and later ones, are in the table."""
    zombie, _ = opened(tmp_path)
    zombie.write(rows(1, 2), SESSION)
    sync_file, woken = storage.sync_file, []

    def late(path: Path) -> None:
        if not woken and "_staging" in path.parts:
            woken.append(path)
            for numbers in ((3, 4), (5, 6)):
                opened(tmp_path)[0].write(rows(*numbers), SESSION)
            opened(tmp_path)
            assert not path.exists()
        sync_file(path)

    monkeypatch.setattr(storage, "sync_file", late)
    assert zombie.write(rows(3, 4), SESSION) == Position("6", 0)
    assert zombie.write(rows(3, 8), SESSION) == Position("8", 0)
    assert stored(tmp_path) == list(range(1, 9))
    assert inspect_table(str(tmp_path), None).ok


@pytest.mark.parametrize("seed", range(60))
def test_a_zombie_and_its_successor_in_any_order(tmp_path: Path, seed: int) -> None:
    """Two that believe they own the shard, cut otherwise: nothing doubled, nothing lost."""
    chance = random.Random(seed)
    opened(tmp_path)[0].write(rows(1, 3), SESSION)
    order = [chance.randrange(2) for _ in range(chance.randrange(20, 120))]
    if seed % 3 == 0:  # one sleeps for long
        order = [0] * chance.randrange(1, 50) + [1] * 80
    race(PARQUET, tmp_path, order, [[(1, 6), (7, 12)], [(4, 8), (9, 10), (11, 20)]])
    assert stored(tmp_path) == list(range(1, 21))
    assert opened(tmp_path)[1] == Position("20", 0)


def test_a_folder_whose_name_is_too_long_for_a_shard_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table"
    opened(table)[0].write(rows(1, 3), SESSION)
    (table / "_commits" / "clicks" / ("s" * 255)).mkdir()
    found = inspect_table(table)
    assert not found.ok
    assert any("no name of a shard's folder" in each for each in found.damage)


def test_a_file_in_the_place_of_staging_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table"
    opened(table)[0].write(rows(1, 3), SESSION)
    (staging,) = (table / "_staging").glob("*/*")
    shutil.rmtree(staging)
    staging.touch()
    (shard,) = inspect_table(table).shards
    assert "a file is in the place of a folder: move it away" in shard.damage[0]
