"""`fastkcl sink inspect` of a DeltaTable: by date and by other partitions, on both kinds of storage."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import DeltaPlace, delta_posix, delta_s3, written
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from fastkcl import Position
from fastkcl.tables import Shard, SinkError
from fastkcl.tables.delta.actions import lines
from fastkcl.tables.delta.group import entry_of
from fastkcl.tables.delta.log import LAST_CHECKPOINT, LOG, entry_key
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.inspection import TableState
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


@pytest.mark.parametrize("at", [3, 4], ids=["in the place of another", "after the newest"])
def test_a_copy_of_an_older_entry_stops_a_writer(place: DeltaPlace, at: int) -> None:
    """It would set the shard back, and the records since then would be stored again."""
    written(place, (1, 4), (5, 6), (7, 9))
    copied = place.store.read(entry_key(1), 1 << 20)
    assert copied is not None
    assert b"CREATE TABLE" not in copied
    assert len(place.entries()) == 4
    place.store.replace(entry_key(at), copied)
    with pytest.raises(
        SinkError, match=rf"{at}.json: it continues clicks, shardId-0+ from .*, and the entries before it"
    ):
        place.table().open(SHARD)
    assert not inspected(place).ok


def with_a_copy(place: DeltaPlace, interval: int) -> tuple[Any, bytes]:
    """A table whose shard has a copy of its first entry in the place of its last one.

    Returns:
        A writer that is past it, and the last entry.
    """
    other = written(place, (1, 2), shard=OTHER)
    place.handle().alter.set_table_properties({"delta.checkpointInterval": str(interval)})
    written(place, (1, 4), (5, 6), (7, 9))
    other.append(arrived([3, 4]), as_they_are)
    copied, replaced = (place.store.read(entry_key(version), 1 << 20) for version in (3, 5))
    assert copied is not None
    assert replaced is not None
    assert SHARD.shard_id.encode() in copied
    place.store.replace(entry_key(5), copied)
    return other, replaced


def test_no_checkpoint_is_made_over_a_copy_of_an_older_entry(
    place: DeltaPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """It would set the shard back in the eyes of who begins with it."""
    with_a_copy(place, 7)[0].append(arrived([5, 6]), as_they_are)
    assert place.entries()[-1] == entry_key(7).rpartition("/")[2]
    assert "no checkpoint of its log is made" in caplog.text
    assert f"{entry_key(5)} continues clicks, {SHARD.shard_id} from start, and the entries before it" in caplog.text
    with pytest.raises(SinkError, match="5.json: it continues clicks, shardId-0+ from start"):
        place.table().open(SHARD)


def test_a_checkpoint_over_a_copy_of_an_older_entry_stops_a_writer(tmp_path: Path) -> None:
    """Others make one: it has set the shard back."""
    place = delta_posix(tmp_path)
    with_a_copy(place, 100)[0].append(arrived([5, 6]), as_they_are)
    place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=rf"{entry_key(5)} continues clicks, {SHARD.shard_id} from start, and the"):
        place.table().open(SHARD)
    assert any("is a copy of another entry" in each for each in inspected(place).damage)


@pytest.mark.parametrize("by_others", [2, 3])
def test_further_checkpoints_over_a_copy_of_an_older_entry_stop_a_writer(tmp_path: Path, by_others: int) -> None:
    """The last two agree with each other, and with the entries between them."""
    place = delta_posix(tmp_path)
    other, _ = with_a_copy(place, 100)
    for first in range(by_others):
        other.append(arrived([5 + 2 * first, 6 + 2 * first]), as_they_are)
        place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=rf"{entry_key(5)} continues clicks, {SHARD.shard_id} from start, and the"):
        place.table().open(SHARD)
    assert any("is a copy of another entry" in each for each in inspected(place).damage)


def test_checkpoints_over_a_copy_stop_a_writer_when_the_entry_is_there_again(tmp_path: Path) -> None:
    """They agree with each other, and the entries with none of them."""
    place = delta_posix(tmp_path)
    other, replaced = with_a_copy(place, 100)
    for first in (5, 7):
        other.append(arrived([first, first + 1]), as_they_are)
        place.handle().create_checkpoint()
    place.store.replace(entry_key(5), replaced)
    for version in (8, 7):
        with pytest.raises(SinkError, match=rf"{version}.checkpoint.parquet: .* is 4.0 in it, and 9.0 in the log"):
            place.table().open(SHARD)
        place.store.remove(f"{LOG}/{version:020d}.checkpoint.parquet")
        with suppress(FileNotFoundError):
            place.store.remove(f"{LOG}/{LAST_CHECKPOINT}")
    assert place.table().open(SHARD) == Position("9", 0)


def test_a_damaged_entry_hides_no_copy(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    other, _ = with_a_copy(place, 100)
    other.append(arrived([5, 6]), as_they_are)
    place.handle().create_checkpoint()
    place.store.replace(entry_key(6), b"{")
    with pytest.raises(SinkError, match=rf"{entry_key(5)} continues clicks, {SHARD.shard_id} from start, and the"):
        place.table().open(SHARD)


@pytest.mark.parametrize("further", range(3))
@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["from the start", "from a checkpoint"])
def test_a_checkpoint_over_an_entry_of_0_bytes_stops_a_writer(
    tmp_path: Path, *, has_checkpoint: bool, further: int
) -> None:
    """deltalake takes it for an entry that does nothing, and the shard would continue from before it."""
    place = delta_posix(tmp_path)
    written(place, (1, 4), (5, 6), (7, 9))
    if has_checkpoint:
        place.handle().create_checkpoint()
    other = written(place, (1, 2), shard=OTHER)
    table = place.table()
    table.open(SHARD)
    table.append(arrived([10, 11]), as_they_are)
    sound = place.store.read(entry_key(5), 1 << 20)
    other.append(arrived([3, 4]), as_they_are)
    place.store.replace(entry_key(5), b"")
    place.handle().create_checkpoint()
    for first in range(further):
        other.append(arrived([5 + 2 * first, 6 + 2 * first]), as_they_are)
        place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=rf"{entry_key(5)} has 0 bytes, and the checkpoint has nothing of it"):
        place.table().open(SHARD)
    state = inspected(place)
    assert any(f"{entry_key(5)} has 0 bytes, and the checkpoint has nothing of it" in each for each in state.damage)
    # As the error says: the entry comes from a copy, and the checkpoint goes.
    place.store.replace(entry_key(5), sound or b"")
    for version in range(6, 7 + further):
        place.store.remove(f"{LOG}/{version:020d}.checkpoint.parquet")
    place.store.remove(f"{LOG}/{LAST_CHECKPOINT}")
    assert place.table().open(SHARD) == Position("11", 0)
    # A checkpoint that was made before the damage has the commit.
    place.handle().create_checkpoint()
    place.store.replace(entry_key(5), b"")
    assert place.table().open(SHARD) == Position("11", 0)


def test_an_entry_of_0_bytes_whose_file_is_rewritten_is_not_wanted(tmp_path: Path) -> None:
    """A checkpoint has the same with it and without it."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 4), (5, 6))
    place.handle().optimize.compact()
    table.append(arrived([7, 8]), as_they_are)
    place.handle().create_checkpoint()
    place.store.replace(entry_key(2), b"")
    assert place.table().open(SHARD) == Position("8", 0)
    assert place.numbers() == list(range(1, 9))


def test_the_position_of_an_entry_of_0_bytes_is_wanted_where_its_file_is_not(tmp_path: Path) -> None:
    """OPTIMIZE has rewritten the file, and nothing continues the shard."""
    place = delta_posix(tmp_path)
    written(place, (1, 4), (5, 6))
    place.handle().optimize.compact()
    place.store.replace(entry_key(2), b"")
    place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=f"{entry_key(2)} has 0 bytes, and the checkpoint has nothing of it: restore"):
        place.table().open(SHARD)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_mend_after_a_checkpoint_that_has_the_commit(place: DeltaPlace, *, is_last: bool) -> None:
    """As the page says: the entry is replaced, and nothing is appended. Two mended entries are equal."""
    written(place, (1, 4), (5, 6), (7, 9))
    place.handle().create_checkpoint()
    mended = (1, 3) if is_last else (1, 2)
    for version in mended:
        place.store.replace(entry_key(version), b"")
    assert place.table().open(SHARD) == Position("9", 0)
    for version in mended:
        place.store.replace(entry_key(version), b'{"commitInfo":{}}\n')
    table = place.table()
    assert table.open(SHARD) == Position("9", 0)
    table.append(arrived([10]), as_they_are)
    place.handle().create_checkpoint()
    assert place.table().open(SHARD) == Position("10", 0)
    assert place.numbers() == list(range(1, 11))
    assert inspected(place).damage == ()


def test_no_checkpoint_is_made_over_an_entry_of_0_bytes(place: DeltaPlace, caplog: pytest.LogCaptureFixture) -> None:
    written(place, (1, 2), (3, 4))
    place.handle().alter.set_table_properties({"delta.checkpointInterval": "6"})
    table = written(place, (1, 2), (3, 4), shard=OTHER)
    place.store.replace(entry_key(2), b"")
    table.append(arrived([5, 6]), as_they_are)
    assert place.entries()[-1] == entry_key(6).rpartition("/")[2]
    assert f"{place.url}: no checkpoint of its log is made: {entry_key(2)} has 0 bytes" in caplog.text


def test_a_log_that_was_mended_as_the_page_says_is_continued(place: DeltaPlace) -> None:
    """An entry of 0 bytes is replaced by one that does nothing, and its files are appended."""
    written(place, (1, 4), (5, 6), (7, 9))
    text = place.store.read(entry_key(2), 1 << 20)
    assert text is not None
    place.store.replace(entry_key(2), b"")
    with pytest.raises(SinkError, match="damaged, 0 bytes"):
        place.table().open(SHARD)
    place.store.replace(entry_key(2), b'{"commitInfo":{}}\n')
    adds = [action["add"] for action in map(json.loads, text.splitlines()) if "add" in action]
    names = ("path", "size", "partitionValues", "modificationTime", "dataChange", "stats")
    handle = place.handle()
    handle.create_write_transaction(
        [AddAction(*(each[name] for name in names)) for each in adds], "append", handle.schema(), partition_by=["date"]
    )
    table = place.table()
    assert table.open(SHARD) == Position("9", 0)
    table.append(arrived([7, 8, 9, 10]), as_they_are)
    assert place.numbers() == list(range(1, 11))
    # The same log with an entry that is missing in earnest: a later one that begins before the position.
    place.store.replace(entry_key(4), text)
    with pytest.raises(SinkError, match=r"4.json: it continues clicks, shardId-0+ from 4.0, and the entries before it"):
        place.table().open(SHARD)


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


def test_an_entry_that_continues_from_no_position(place: DeltaPlace) -> None:
    written(place, (1, 4), (5, 6))
    text = place.store.read(entry_key(2), 1 << 20)
    assert text is not None
    place.store.replace(entry_key(2), text.replace(b'"after": "4.0"', b'"after": "four"'))
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
