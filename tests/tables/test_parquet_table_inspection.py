"""`sink inspect` of a ParquetTable, on both kinds of storage: sound, and with each fault that it can have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastkcl import Position
from fastkcl.cli.main import cli
from fastkcl.tables import Shard, SinkError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.inspection import TableState
from sink_helpers import SHARD
from table_helpers import DAY, NOON, Place, arrived, as_they_are, posix_place

OTHER = Shard("clicks", "shardId-000000000007")


def write(place: Place, *runs: tuple[int, int], day: int = 0, shard: Shard = SHARD, **options: Any) -> None:
    table = place.table(**options)
    table.open(shard)
    for first, last in runs:
        table.append(arrived(range(first, last + 1), NOON + day * DAY), as_they_are)


def inspect(place: Place) -> TableState:
    return inspect_table(place.url, place.storage)


def body(place: Place, key: str) -> bytes:
    file = place.store.open(key)
    assert file is not None
    with file:
        return file.read()


def test_a_sound_table_of_two_shards_and_three_days(place: Place) -> None:
    write(place, (1, 9))
    write(place, (10, 12), day=1)
    write(place, (13, 13), day=2)
    write(place, (5, 6), shard=OTHER)
    found = inspect(place)
    assert found.ok
    assert (found.path, found.sink, found.unknown, found.damage) == (place.url, "ParquetTable", (), ())
    first, second = found.shards
    assert (first.stream, first.shard_id) == (SHARD.stream, SHARD.shard_id)
    assert (first.commits, first.records, first.rows, first.all_commits) == (3, 13, 13, True)
    assert (first.first, first.last, first.position) == (Position("1", 0), Position("13", 0), Position("13", 0))
    assert first.doubles is not None
    assert (first.doubles.rows, first.unkeyed) == (0, {})
    assert (second.shard_id, second.records) == (OTHER.shard_id, 2)


def test_a_table_without_days(place: Place) -> None:
    write(place, (1, 9), (10, 12), partition="none")
    (shard,) = inspect(place).shards
    assert (shard.ok, shard.commits, shard.records) == (True, 2, 12)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_old_files_may_go(place: Place, count: int) -> None:
    """From the oldest one on, also a day's last file, which turns to the next one; the newest one has the position."""
    write(place, (1, 9))
    write(place, (10, 12), day=1)
    write(place, (13, 15), day=2)
    before = place.files()
    assert len(before) == 6
    for key in before[:count]:
        place.store.remove(key)
    found = inspect(place)
    (shard,) = found.shards
    assert found.ok
    assert not shard.all_commits
    assert shard.position == Position("15", 0)
    assert place.table().open(SHARD) == Position("15", 0)


def test_a_file_in_the_middle_is_gone(place: Place) -> None:
    write(place, (1, 9), (10, 12), (13, 14))
    place.store.remove(place.files()[2])
    (shard,) = inspect(place).shards
    assert shard.gaps == [(Position("12", 0), Position("14", 0))]
    assert not shard.ok


def copied(place: Place) -> None:
    """Somebody has copied a file: readers see its rows twice."""
    key = place.files()[1]
    assert place.store.create(f"{key.rpartition('/')[0]}/copy.parquet", body(place, key))


def of_no_shard(place: Place) -> None:
    assert place.store.create("notes.txt", b"x")


def cut_off(place: Place) -> None:
    key = place.files()[1]
    content = body(place, key)
    place.store.remove(key)
    assert place.store.create(key, content[:-20])


def in_another_day(place: Place) -> None:
    key = place.files()[1]
    content = body(place, key)
    place.store.remove(key)
    assert place.store.create(key.replace("date=2026-11-22", "date=2026-11-21"), content)


def of_another_shard(place: Place) -> None:
    key = place.files()[1]
    assert place.store.create(key.replace(SHARD.shard_id, OTHER.shard_id), body(place, key))


def note_damaged(place: Place) -> None:
    place.table().open(SHARD)
    assert place.store.create(f"_fastkcl/given_up/{place.files()[0].partition('/date=')[0]}/x", b"")


@pytest.mark.parametrize(
    ("spoil", "seen"),
    [
        (copied, lambda s: (s.shards[0].unknown[0][-12:], s.shards[0].doubles.rows) == ("copy.parquet", 9)),
        (of_no_shard, lambda s: s.unknown == ("notes.txt",)),
        (cut_off, lambda s: "not written by this table's writers, or damaged" in s.shards[0].damage[0]),
        (in_another_day, lambda s: "lies in another day" in s.shards[0].damage[0]),
        (of_another_shard, lambda s: "it says of itself" in s.shards[1].damage[0]),
        (note_damaged, lambda s: "no note of this table's writers" in s.shards[0].damage[0]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_faults(place: Place, spoil: Callable[[Place], None], seen: Callable[[TableState], bool]) -> None:
    write(place, (1, 9), (10, 12))
    assert inspect(place).ok
    spoil(place)
    found = inspect(place)
    assert not found.ok
    assert seen(found), found


def test_a_turn_in_the_place_of_the_file_after_it(place: Place) -> None:
    """Both continue from one position, so they have one name, in two days."""
    write(place, (1, 9))
    write(place, (10, 12), day=1)
    *_, turn, newest = place.files()
    assert turn.rpartition("/")[2] == newest.rpartition("/")[2]
    content = body(place, turn)
    place.store.remove(newest)
    assert place.store.create(newest, content)
    (fault,) = inspect(place).shards[0].damage
    assert f"{newest}: not written by this table's writers, or damaged: it has no records" in fault
    with pytest.raises(SinkError, match="it has no records, as a turn to another day, and names no other day"):
        place.table().open(SHARD)


def test_the_command(place: Place) -> None:
    options = [] if place.storage is None else ["--endpoint-url", str(place.storage.endpoint)]
    keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    write(place, (1, 9), (10, 12))

    def run(*more: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, ["sink", "inspect", place.url, *options, *more], env=keys)
        return done.exit_code, done.output

    code, said = run()
    assert code == 0, said
    assert said.startswith(f"{place.url}: a table of ParquetTable, 1 shard\n")
    assert "commits         2\n" in said
    code, said = run("--json")
    report = json.loads(said)
    assert (code, report["sink"], report["ok"]) == (0, "ParquetTable", True)
    copied(place)
    code, said = run()
    assert (code, "9 rows too many" in said, "copy.parquet" in said) == (1, True, True)
    nowhere = f"{place.url}-of-nobody"
    done = CliRunner().invoke(cli, ["sink", "inspect", nowhere, *options], env=keys)
    assert done.exit_code == 2
    assert nowhere in done.output


def test_a_folder_in_the_place_of_the_newest_file(tmp_path: Path) -> None:
    """Nothing continues from it, so nothing else would miss it."""
    place = posix_place(tmp_path)
    write(place, (1, 9), (10, 12))
    key = place.files()[-1]
    place.store.remove(key)
    Path(place.url, key).mkdir()
    found = inspect(place)
    assert not found.ok
    assert found.damage[0].startswith(f"{key}: a folder is in the place of a file: restore the file from a copy")


def test_a_link_to_itself_in_the_place_of_a_file(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    write(place, (1, 9), (10, 12))
    key = place.files()[-1]
    place.store.remove(key)
    Path(place.url, key).symlink_to(key.rpartition("/")[2])
    found = inspect(place)
    (shard,) = found.shards
    assert not found.ok
    assert any("a link that leads in a circle is in the place of a file" in each for each in shard.damage)


def test_a_file_in_the_place_of_a_writers_folder(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    write(place, (1, 9))
    path = Path(place.url, "_fastkcl/writing")
    path.rmdir()
    path.touch()
    (damage,) = inspect(place).damage
    assert damage.startswith(f"{path}: something else is in the place of a folder: move it away")


@pytest.mark.parametrize("name", ["x", "_table", "_staging", "_fastkcl/writing/x"])
def test_a_link_in_a_circle_in_nobodys_place(tmp_path: Path, name: str) -> None:
    place = posix_place(tmp_path)
    write(place, (1, 9))
    Path(place.url, name).symlink_to(Path(name).name)
    write(place, (10, 12))
    assert inspect(place).ok == (name != "x")  # a file there is one that readers see


@pytest.mark.parametrize("name", ["_fastkcl", "_fastkcl/table"])
def test_a_link_that_leads_nowhere_in_the_place_of_the_mark(tmp_path: Path, name: str) -> None:
    place = posix_place(tmp_path)
    write(place, (1, 9))
    path = Path(place.url, name)
    shutil.rmtree(path)
    path.symlink_to("nowhere")
    with pytest.raises(SinkError, match=f"{path}: a link that leads nowhere is in the place of a folder: move it away"):
        inspect(place)


def test_a_mark_without_its_file(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    write(place, (1, 9))
    (mark,) = Path(place.url, "_fastkcl/table").iterdir()
    mark.unlink()
    with pytest.raises(SinkError, match="_fastkcl/table: the table's claim is gone, and its files are there"):
        inspect(place)
    for key in place.files():
        place.store.remove(key)
    with pytest.raises(SinkError, match="it has no _fastkcl/table: restore it from a copy"):
        inspect(place)
