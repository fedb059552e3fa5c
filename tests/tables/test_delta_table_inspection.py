"""`fastkcl sink inspect` of a DeltaTable: by date and by other partitions, on both kinds of storage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from delta_table_helpers import DeltaPlace, delta_posix, delta_s3, without_digest, written
from deltalake import DeltaTable
from fastkcl import Position
from fastkcl.spark.sinks import DeltaSink
from fastkcl.tables import DeltaTable as DeltaWriter
from fastkcl.tables import Shard, SinkError
from fastkcl.tables.delta import head as head_module
from fastkcl.tables.delta import inspection as inspection_module
from fastkcl.tables.delta import refusals
from fastkcl.tables.delta.actions import lines
from fastkcl.tables.delta.group import entry_of
from fastkcl.tables.delta.log import LAST_CHECKPOINT, LOG, entry_key
from fastkcl.tables.delta.refusals import RefusalError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.inspection import TableState
from fastkcl.tables.store import StoreError
from sink_helpers import SHARD
from table_helpers import DAY, NOON, arrived, as_they_are

OTHER = Shard("clicks", "shardId-000000000001")


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaPlace:
    return delta_posix(tmp_path) if request.param == "posix" else delta_s3(request.getfixturevalue("aws"))


def inspected(place: DeltaPlace) -> TableState:
    return inspect_table(place.url, place.storage)


@pytest.mark.parametrize("columns", [("date",), (), ("shard",), ("stream", "shard", "date")])
def test_a_sound_table(place: DeltaPlace, columns: Any) -> None:
    written(place, (1, 4), (5, 6), partition_by=columns)
    written(place, (1, 2), shard=OTHER)
    state = inspected(place)
    assert state.ok, state
    assert state.sink == "DeltaTable"
    assert [(shard.shard_id, shard.commits, shard.rows, shard.position) for shard in state.shards] == [
        (SHARD.shard_id, 2, 6, Position("6", 0)),
        (OTHER.shard_id, 1, 2, Position("2", 0)),
    ]
    assert (state.shards[0].first, state.shards[0].last) == (Position("1", 0), Position("6", 0))


@pytest.mark.parametrize("time", [None, -62_200_000_000_000, 569_000_000_000_000])
def test_rows_without_a_day(place: DeltaPlace, time: int | None) -> None:
    """No time of arrival, one before the year 1, one after the year 9999."""
    table = place.table()
    table.open(SHARD)
    table.append(arrived([1, 2], [time, time]), as_they_are)
    table.append(arrived([3]), as_they_are)
    table.append(arrived([4, 5], [time, time]), as_they_are)
    state = inspected(place)
    assert state.ok, state
    assert place.numbers() == [1, 2, 3, 4, 5]


def cleaning_up(place: DeltaPlace) -> Callable[[], None]:
    """A clean-up each time: a commit, a checkpoint, and what was before it goes."""
    table = place.table()
    position = table.open(SHARD)
    assert position is not None
    numbers = count(int(position.sequence_number) + 1)

    def clean_up() -> None:
        before = [each.key for each in place.store.files(LOG)]
        table.append(arrived([next(numbers)]), as_they_are)
        place.handle().create_checkpoint()
        for key in before:
            if not key.endswith(LAST_CHECKPOINT):
                place.store.remove(key)

    return clean_up


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("module", [inspection_module, head_module])
def test_a_clean_up_of_the_log_during_a_look_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, times: int
) -> None:
    """deltalake has listed the log, and the files go before it reads them."""
    place = delta_posix(tmp_path)
    written(place, (1, 3), (4, 5))
    place.handle().create_checkpoint()
    clean_up, opened, left = cleaning_up(place), refusals.opened, [None] * times

    def late(look: Callable[[], Any]) -> Any:
        if left:
            left.pop()
            clean_up()
            raise RefusalError("Kernel error: File not found: 00000000000000000001.json")
        return opened(look)

    monkeypatch.setattr(module, "opened", late)
    if module is inspection_module:
        assert inspected(place).ok
    else:
        assert place.table().open(SHARD) == Position(str(5 + times), 0)
    assert left == []


@pytest.mark.parametrize("module", [inspection_module, head_module])
def test_a_log_that_is_cleaned_up_at_each_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 3))
    place.handle().create_checkpoint()
    clean_up = cleaning_up(place)

    def late(_: object) -> Any:
        clean_up()
        raise RefusalError("Kernel error: File not found: 00000000000000000001.json")

    monkeypatch.setattr(module, "opened", late)
    with pytest.raises(StoreError, match="its files go while they are read: is it cleaned up"):
        inspected(place) if module is inspection_module else place.table().open(SHARD)


def test_entries_that_go_before_they_are_read_are_no_gap(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    written(place, (1, 3), (4, 5))
    clean_up, left = cleaning_up(place), [None]
    read = inspection_module._Entries.read

    def late(entries: Any, version: int) -> None:
        if left and version == 1:
            left.pop()
            clean_up()
        read(entries, version)

    monkeypatch.setattr(inspection_module._Entries, "read", late)
    assert inspected(place).ok
    assert left == []


REWRITES: dict[str, Callable[[DeltaTable], object]] = {
    "compact": lambda table: table.optimize.compact(),
    "update": lambda table: table.update({"data": "data"}, predicate="sequenceNumber = '3'"),
    "delete": lambda table: table.delete("sequenceNumber = '3'"),
}


@pytest.mark.parametrize("columns", [("date",), ("stream",), ("date", "shard")])
@pytest.mark.parametrize("how", REWRITES)
def test_files_that_were_rewritten_are_of_several_shards(place: DeltaPlace, how: str, columns: Any) -> None:
    """deltalake writes their text as views, and not the columns that the table is partitioned by."""
    table = written(place, (1, 4), (5, 6), partition_by=columns)
    written(place, (1, 2), shard=OTHER)
    REWRITES[how](place.handle())
    table.append(arrived([7, 8], [NOON, NOON + DAY]), as_they_are)
    state = inspected(place)
    assert not state.damage
    assert state.ok or how == "delete", state
    assert [(shard.rows, shard.commits) for shard in state.shards] == [(7 if how == "delete" else 8, 3), (2, 1)]


def test_a_commit_of_several_shards(place: DeltaPlace) -> None:
    """And what it says when one of their positions was cut off."""
    tables = [written(place, (1, 2)), written(place, (1, 2), shard=OTHER)]
    requests = []
    for table in tables:
        snapshot = table._moved_on([])
        requests.append(table._stage(arrived([3]), as_they_are).request(snapshot.id, table._shard_opened))
    entry = lines(entry_of(requests, ["date"], None))
    place.store.create(entry_key(3), entry)
    state = inspected(place)
    assert state.ok, state
    assert [(shard.rows, shard.commits) for shard in state.shards] == [(3, 2), (3, 2)]
    cut = entry.rsplit(b"\n", 3)[0] + b"\n"
    place.store.replace(entry_key(3), cut)
    assert "it has not the positions of 2 shards" in inspected(place).damage[0]


def test_faults(place: DeltaPlace) -> None:
    written(place, (1, 2), (3, 4), (5, 6))
    place.store.remove(place.files()[0])
    assert inspected(place).damage == (f"{place.url}/{place.files()[0]}: the log names it, and it is missing",)
    place.store.replace(place.files()[1], b"PAR1 no file PAR1")
    state = inspected(place)
    assert not state.ok
    assert state.unknown == (place.files()[1],)


def add_by_hand(place: DeltaPlace, version: int, name: str) -> None:
    """An entry that adds the table's first file again, under another name."""
    (add,) = (
        line for line in (place.store.read(entry_key(1), 1 << 20) or b"").splitlines() if line.startswith(b'{"add"')
    )
    action = json.loads(add)
    action["add"]["path"] = name
    place.store.create(entry_key(version), b'{"commitInfo":{}}\n' + json.dumps(action).encode() + b"\n")


@pytest.mark.parametrize(
    "name", ["a\0.parquet", "a" * 300 + ".parquet", "a%00.parquet", "/".join(["a" * 200] * 30), "{file}/a.parquet"]
)
def test_a_name_that_no_file_can_have_is_a_missing_file(place: DeltaPlace, name: str) -> None:
    written(place, (1, 2))
    name = name.replace("{file}", place.files()[0])
    add_by_hand(place, 2, name)
    state = inspected(place)
    assert not state.ok
    assert state.damage == (f"{place.url}/{unquote(name)}: the log names it, and it is missing",)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "it names 00000000000000000003.checkpoint.parquet, which is damaged or missing"),
        (b"", "it names no version"),
        (b'{"version": 9}', "it names 00000000000000000009.checkpoint.parquet, which is damaged or missing"),
    ],
    ids=["checkpoint gone", "0 bytes", "another version"],
)
def test_a_checkpoint_that_is_named_and_not_there(place: DeltaPlace, content: bytes | None, why: str) -> None:
    """deltalake opens no such table on S3."""
    written(place, (1, 2), (3, 4), (5, 6))
    place.handle().create_checkpoint()
    if content is None:
        place.store.remove(f"{LOG}/00000000000000000003.checkpoint.parquet")
    else:
        place.store.replace(f"{LOG}/{LAST_CHECKPOINT}", content)
    assert inspected(place).damage == (f"{place.url}/{LOG}/{LAST_CHECKPOINT}: a damaged checkpoint: {why}",)


@pytest.mark.parametrize("by", ["VACUUM", "no rows"])
def test_others_entries_without_an_action_mend_nothing(tmp_path: Path, by: str) -> None:
    """They have a `commitInfo` alone, too, and an entry that is gone after them is still missed."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 2), (3, 4))
    if by == "VACUUM":
        place.handle().optimize.compact()
        place.handle().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    else:
        handle = place.handle()
        handle.create_write_transaction([], "append", handle.schema(), partition_by=["date"])
    others = place.handle().version()
    assert (place.store.read(entry_key(others), 1 << 20) or b"").count(b"\n") < 2
    table.append(arrived([5, 6]), as_they_are)
    table.append(arrived([7]), as_they_are)
    place.store.replace(entry_key(others + 1), place.store.read(entry_key(others), 1 << 20) or b"")
    with pytest.raises(
        SinkError, match="it continues clicks, shardId-0+ from 6.0, and the entries before it end at 4.0"
    ):
        place.table().open(SHARD)


def test_another_shards_file_of_the_same_size_in_the_place_of_one(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    for shard in (SHARD, OTHER):
        written(place, (1, 2), shard=shard, partition_by=("stream", "shard"))
    mine, other = (next(Path(place.url).rglob(f"shard={each.shard_id}/*.parquet")) for each in (SHARD, OTHER))
    assert mine.stat().st_size == other.stat().st_size
    shutil.copyfile(other, mine)
    damage = [each for shard in inspected(place).shards for each in shard.damage]
    assert [each.partition(": ")[2] for each in damage] == [f"a file of clicks, {OTHER.shard_id} is in its place"]


def test_an_entry_that_continues_from_no_position(place: DeltaPlace) -> None:
    written(place, (1, 4), (5, 6))
    text = place.store.read(entry_key(2), 1 << 20)
    assert text is not None
    place.store.replace(entry_key(2), without_digest(text).replace(b'"after": "4.0"', b'"after": "four"'))
    with pytest.raises(SinkError, match="2.json: it continues clicks, shardId-0+ from four, and the entries before it"):
        place.table().open(SHARD)


def test_a_name_that_is_none_is_damage_of_its_entry(place: DeltaPlace) -> None:
    written(place, (1, 4), (5, 6))
    key = entry_key(1)
    text = place.store.read(key, 1 << 20)
    assert text is not None
    lines = [json.loads(line) for line in text.splitlines()]
    (info,) = [line["commitInfo"] for line in lines if "commitInfo" in line]
    info["fastkcl"]["shard"] = "\ud800"
    place.store.replace(key, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert any(key in each for each in inspected(place).damage)


def test_an_entry_that_is_missing(place: DeltaPlace) -> None:
    written(place, (1, 2), (3, 4), (5, 6))
    place.store.remove(entry_key(2))
    assert inspected(place).damage == (f"{place.url}/{entry_key(2)}: missing, and there are later ones",)


@pytest.mark.parametrize("within", ["a removed file", "an entry"])
def test_a_file_within_another_one_is_missing(tmp_path: Path, within: str) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4))
    name = place.files()[0] if within == "a removed file" else entry_key(0)
    place.handle().optimize.compact()
    add_by_hand(place, 4, f"{name}/a.parquet")
    assert inspected(place).damage == (f"{place.url}/{name}/a.parquet: the log names it, and it is missing",)


def test_a_link_to_itself_in_the_place_of_a_file(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    (name,) = place.files()
    place.store.remove(name)
    Path(place.url, name).symlink_to(name.rpartition("/")[2])
    state = inspected(place)
    assert not state.ok
    told = (*state.damage, *(each for shard in state.shards for each in shard.damage))
    assert any("a link that leads in a circle is in the place of a file: restore" in each for each in told)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_table_whose_only_commit_has_0_bytes(tmp_path: Path, *, checkpoint: bool) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    place.store.replace(entry_key(1), b"")
    if checkpoint:
        place.handle().create_checkpoint()
    assert any("1.json: damaged, 0 bytes" in each for each in inspected(place).damage)


def test_a_log_without_files(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    (Path(place.url) / LOG).mkdir(parents=True)
    with pytest.raises(
        SinkError,
        match="_delta_log: it has no entry, and no checkpoint: if nothing was written yet",
    ):
        inspected(place)


def test_a_log_that_leads_nowhere(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    Path(place.url).mkdir(parents=True)
    (Path(place.url) / LOG).symlink_to("nowhere")
    with pytest.raises(SinkError, match="_delta_log: a link that leads nowhere is in the place of a folder"):
        inspected(place)


@pytest.mark.parametrize("name", ["_fastkcl", "_fastkcl/writing"])
@pytest.mark.parametrize("kind", ["a file", "nowhere", "a circle"])
def test_something_else_in_the_place_of_a_writers_folder(tmp_path: Path, name: str, kind: str) -> None:
    """Readers see the table, and no writer can write."""
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    path = Path(place.url, name)
    shutil.rmtree(path)
    if kind == "a file":
        path.touch()
    else:
        path.symlink_to("nowhere" if kind == "nowhere" else path.name)
    (damage,) = inspected(place).damage
    assert damage.startswith(str(path))
    assert "is in the place of a folder: move it away" in damage


def test_a_shard_of_which_only_the_position_is_left(tmp_path: Path) -> None:
    """Its rows were deleted, and its entries cleaned up."""
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    place.handle().delete()
    place.handle().create_checkpoint()
    for name in place.entries()[:-1]:
        Path(place.url, LOG, name).unlink()
    found = inspected(place)
    assert found.ok
    ((shard, position),) = [((each.stream, each.shard_id), each.position) for each in found.shards]
    assert (shard, position) == ((SHARD.stream, SHARD.shard_id), Position("2", 0))
    assert place.table().open(SHARD) == position


def test_a_position_that_no_commit_of_a_whole_log_leads_to(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    key = f"{LOG}/{place.entries()[-1]}"
    lines = (place.store.read(key, 1 << 20) or b"").splitlines()
    positions = [line for line in lines if line.startswith(b'{"txn"')]
    place.store.replace(key, b"\n".join([b'{"commitInfo":{}}', *positions]) + b"\n")
    (shard,) = inspected(place).shards
    assert shard.damage == ["the position is 2/0, and no commit in the log leads to it"]


def test_a_link_in_a_circle_among_unfinished_files(tmp_path: Path) -> None:
    """It is in nobody's place: writers go on."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 2))
    link = Path(place.url, "_fastkcl/writing/x")
    link.symlink_to("x")
    assert inspected(place).ok
    assert place.table().open(SHARD) == Position("2", 0)
    table.append(arrived([3]), as_they_are)
    assert place.numbers() == [1, 2, 3]


@pytest.mark.parametrize("name", ["x", ".x", f"{1:020d}.crc", "_sidecars/x", f"{0:020d}.json"])
@pytest.mark.parametrize("kind", [DeltaWriter, DeltaSink], ids=["DeltaTable", "DeltaSink"])
def test_a_link_in_a_circle_in_the_log(tmp_path: Path, name: str, kind: Any) -> None:
    """deltalake looks at each, and could not open the table."""
    place = delta_posix(tmp_path)
    written(place, (1, 2), partition_by=("stream", "shard"))
    place.handle().create_checkpoint()
    path = Path(place.url, LOG, name)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)
    assert any(each.startswith(f"{path}: a link that leads in a circle") for each in inspected(place).damage)
    with pytest.raises(SinkError, match=f"{path}: a link that leads in a circle.*the remedy is in docs/recovery.md"):
        kind(place.url).open(SHARD)


def test_a_mended_entry_that_a_shard_has_alone(tmp_path: Path) -> None:
    """As the page on recovery has it, where a checkpoint is older than the damage."""
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    place.handle().create_checkpoint()
    place.store.replace(f"{LOG}/{place.entries()[-1]}", b'{"commitInfo":{}}')
    found = inspected(place)
    assert found.ok
    assert place.table().open(SHARD) == Position("2", 0)
