"""A DeltaTable and a DeltaSink where a checkpoint was made over a damaged entry, or over a copy of an older one."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from delta_table_helpers import DeltaPlace, delta_posix, delta_s3, written
from deltalake import Field
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction
from fastkcl import Position
from fastkcl.spark.sinks import DeltaSink
from fastkcl.tables import DeltaTable, Shard, SinkError
from fastkcl.tables.delta import checkpoint_comparison
from fastkcl.tables.delta.log import LAST_CHECKPOINT, LOG, entry_key
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.inspection import TableState
from sink_helpers import SHARD, FakeSession, rows
from table_helpers import arrived, as_they_are

OTHER = Shard("clicks", "shardId-000000000001")
BARE = b'{"commitInfo":{}}\n'


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaPlace:
    return delta_posix(tmp_path) if request.param == "posix" else delta_s3(request.getfixturevalue("aws"))


def inspected(place: DeltaPlace) -> TableState:
    return inspect_table(place.url, place.storage)


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


@pytest.mark.parametrize(
    "lost",
    [slice(-2, None), slice(1, None), slice(-2, -1)],
    ids=["its position", "all but its description", "a part of its position"],
)
@pytest.mark.parametrize("checkpoints", ["before", "right after it", "after it", "after it, twice"])
def test_a_checkpoint_over_an_entry_that_has_lost_lines(tmp_path: Path, checkpoints: str, lost: slice) -> None:
    """It has set the shard back, and the records since then would be stored again; one made before has not."""
    place = delta_posix(tmp_path)
    other = written(place, (1, 2), shard=OTHER)
    written(place, (1, 4), (5, 6))
    other.append(arrived([3]), as_they_are)  # this writer is past the entry
    entry = place.store.read(entry_key(3), 1 << 20) or b""
    assert SHARD.shard_id.encode() in entry
    if checkpoints == "before":
        place.handle().create_checkpoint()
    lines = entry.splitlines(keepends=True)
    del lines[lost]
    place.store.replace(entry_key(3), b"".join(lines))
    if checkpoints == "right after it":
        place.handle().create_checkpoint()
    for number in (4, 5):
        other.append(arrived([number]), as_they_are)
        if "twice" in checkpoints or (checkpoints == "after it" and number == 5):
            place.handle().create_checkpoint()
    if checkpoints == "before" and lost == slice(1, None):
        assert place.table().open(SHARD) == Position("6", 0)
    elif checkpoints == "before":  # it has what the entry tells of: it may have been made over the damage
        with pytest.raises(SinkError, match=rf"{entry_key(3)} is damaged, (cut off|it is not what was written)"):
            place.table().open(SHARD)
    else:
        said = rf"the position of clicks, {SHARD.shard_id} is 4.0 in it, and 6.0 in|{entry_key(3)} is damaged, "
        with pytest.raises(SinkError, match=said):
            place.table().open(SHARD)
    assert any(f"{entry_key(3)}: " in each for each in inspected(place).damage)


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


@pytest.mark.parametrize("goes_on", [False, True], ids=["the newest of its shard", "its shard goes on"])
@pytest.mark.parametrize("is_older", [False, True], ids=["a checkpoint after the damage", "a checkpoint before it"])
@pytest.mark.parametrize("kind", [DeltaSink, DeltaTable], ids=lambda kind: kind.__name__)
def test_an_entry_of_0_bytes_whose_file_is_rewritten_stops_a_writer(
    tmp_path: Path, kind: type[DeltaSink | DeltaTable], *, is_older: bool, goes_on: bool
) -> None:
    """A checkpoint may have the same with it and without it: nobody knows which other shards had a part in it."""
    place = delta_posix(tmp_path)

    def write(first: int, last: int) -> None:
        if kind is DeltaTable:
            written(place, (first, last))
            return
        sink = DeltaSink(place.url)
        sink.open(SHARD)
        sink.write(rows(first, last), FakeSession())

    write(1, 4)
    write(5, 6)
    place.handle().optimize.compact()
    if goes_on:
        write(7, 8)
    if is_older:
        place.handle().create_checkpoint()
    place.store.replace(entry_key(2), b"")
    if not is_older:
        place.handle().create_checkpoint()
    writer = kind(place.url)
    if is_older and not goes_on:  # the checkpoint has the position, which no entry has
        assert writer.open(SHARD) == Position("6", 0)
        return
    with pytest.raises(SinkError, match=f"{entry_key(2)} has 0 bytes, and the checkpoint has nothing of it: restore"):
        writer.open(SHARD)
    if goes_on:  # as the page says: a later entry removes its file, so nothing is appended
        place.store.replace(entry_key(2), b'{"commitInfo":{}}\n')
        assert kind(place.url).open(SHARD) == Position("8", 0)
        assert place.numbers() == list(range(1, 9))


def test_the_only_entry_of_a_shard_has_0_bytes_after_a_checkpoint(tmp_path: Path) -> None:
    """Its file is rewritten, and the checkpoint alone has the shard."""
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    written(place, (101, 102), shard=OTHER)
    place.handle().optimize.compact()
    place.handle().create_checkpoint()
    assert OTHER.shard_id.encode() in (place.store.read(entry_key(2), 1 << 20) or b"")
    place.store.replace(entry_key(2), b"")
    assert place.table().open(OTHER) == Position("102", 0)
    assert place.table().open(SHARD) == Position("2", 0)


def test_one_of_two_entries_of_0_bytes_is_rewritten(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4))
    written(place, (101, 102), shard=OTHER)
    place.handle().optimize.compact()
    written(place, (5, 6))
    written(place, (103, 104), shard=OTHER)
    written(place, (7, 8))
    for version in (2, 6):
        place.store.replace(entry_key(version), b"")
    place.handle().create_checkpoint()
    for shard in (SHARD, OTHER):
        with pytest.raises(SinkError, match=f"{entry_key(6)} has 0 bytes, and the checkpoint has nothing of it"):
            place.table().open(shard)


def test_an_entry_of_0_bytes_under_hundreds_of_checkpoints(tmp_path: Path) -> None:
    """Each of them was made before the damage; only the first one is looked at."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 2))
    place.handle().alter.set_table_properties({"delta.checkpointInterval": "1"})
    for n in range(3, 203):
        table.append(arrived([n]), as_they_are)
    place.store.replace(entry_key(5), b"")
    entries = len(place.entries())
    with patch.object(checkpoint_comparison, "content", wraps=checkpoint_comparison.content) as read:
        assert place.table().open(SHARD) == Position("202", 0)
    assert entries > 200
    assert read.call_count < 10


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


@pytest.mark.parametrize("further", [0, 1, 2])
@pytest.mark.parametrize("how", ["0 bytes", "a copy", "bare"])
def test_a_checkpoint_without_the_file_of_a_restored_entry_stops_a_writer(
    tmp_path: Path, how: str, further: int
) -> None:
    """Later entries of the shard have the position, so only the file tells; further checkpoints lack it, too."""
    place = delta_posix(tmp_path)
    written(place, (1, 4), (5, 6), (7, 9))
    copied, sound = (place.store.read(entry_key(version), 1 << 20) for version in (1, 2))
    assert copied is not None
    assert sound is not None
    place.store.replace(entry_key(2), {"0 bytes": b"", "a copy": copied, "bare": BARE}[how])
    made = [_checkpoint_after(place)]
    place.store.replace(entry_key(2), sound)
    for number in range(further):
        made.append(_checkpoint_after(place, {"delta.checkpointInterval": str(100 + number)}))
    for version in reversed(made):
        with pytest.raises(SinkError, match=rf"{version}.checkpoint.parquet: .* lacks 1 files that the log has"):
            place.table().open(SHARD)
        assert any("lacks 1 files" in each for each in inspected(place).damage)
        _without_checkpoint(place, version)
    assert place.table().open(SHARD) == Position("9", 0)
    assert sorted(place.numbers()) == list(range(1, 10))


def test_a_checkpoint_without_the_columns_of_a_restored_entry_stops_a_writer(tmp_path: Path) -> None:
    """The checkpoint after it has the older columns, too, and no entry between them has any."""
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    place.handle().alter.add_columns([Field("more", PrimitiveType("string"))])
    sound = place.store.read(entry_key(2), 1 << 20)
    assert sound is not None
    assert b"more" in sound
    written(place, (3, 4))
    place.store.replace(entry_key(2), BARE)
    made = [_checkpoint_after(place)]
    place.store.replace(entry_key(2), sound)
    place.handle().optimize.compact()
    made.append(_checkpoint_after(place))
    for version in reversed(made):
        with pytest.raises(SinkError, match=rf"{version}.checkpoint.parquet: .*its schemaString is another one"):
            place.table().open(SHARD)
        _without_checkpoint(place, version)
    assert place.table().open(SHARD) == Position("4", 0)
    assert place.handle().schema().fields[-1].name == "more"


def _checkpoint_after(place: DeltaPlace, properties: dict[str, str] | None = None) -> int:
    """The version of a checkpoint that deltalake makes, after an entry with properties."""
    handle = place.handle()
    if properties:
        handle.alter.set_table_properties(properties)
    handle.create_checkpoint()
    return handle.version()


def _without_checkpoint(place: DeltaPlace, version: int) -> None:
    place.store.remove(f"{LOG}/{version:020d}.checkpoint.parquet")
    with suppress(FileNotFoundError):
        place.store.remove(f"{LOG}/{LAST_CHECKPOINT}")


OPTIMIZE, BETWEEN, COPY = "OPTIMIZE, 0 bytes", "OPTIMIZE before another, 0 bytes", "a copy"


@pytest.mark.parametrize(
    ("damage", "bare"), [(OPTIMIZE, False), (OPTIMIZE, True), (BETWEEN, False), (BETWEEN, True), (COPY, False)]
)
def test_what_optimize_has_done_since_the_damage_is_taken_back(tmp_path: Path, damage: str, bare: bool) -> None:
    """As docs/recovery.md says of an entry of 0 bytes. Without a copy of what it has replaced, a copy loses records."""
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4))
    place.handle().optimize.compact()
    if damage != OPTIMIZE:
        written(place, (5, 6))
    if damage == BETWEEN:
        place.handle().optimize.compact()
    hurt = 4 if damage == COPY else 3
    sound, copied = (place.store.read(entry_key(version), 1 << 20) for version in (hurt, 1))
    assert sound is not None
    assert copied is not None
    place.store.replace(entry_key(hurt), copied if damage == COPY else b"")
    if damage != BETWEEN:
        place.handle().optimize.compact()
    last = place.handle().version()
    assert b"OPTIMIZE" in (place.store.read(entry_key(last), 1 << 20) or b"")
    place.store.replace(entry_key(hurt), BARE if bare else sound)
    doubled = inspected(place).shards[0].doubles.rows > 0
    assert doubled is ((damage, bare) in ((OPTIMIZE, False), (BETWEEN, True), (COPY, False)))
    place.store.replace(entry_key(last), BARE)
    written(place, (7, 8))
    state = inspected(place)
    assert state.ok
    assert state.shards[0].doubles.rows == 0
    assert sorted(place.numbers()) == [*range(1, 5), *([] if damage == OPTIMIZE else [5, 6]), 7, 8]


@pytest.mark.parametrize("checkpoints", ["before", "right after it", "after it", "after it, twice"])
@pytest.mark.parametrize("by_others", [False, True], ids=["ours", "by OPTIMIZE"])
def test_a_checkpoint_over_an_entry_that_has_lost_a_file(tmp_path: Path, checkpoints: str, *, by_others: bool) -> None:
    """The file's rows are in no reader's sight; a checkpoint that was made before has them."""
    place = delta_posix(tmp_path)
    other = written(place, (1, 2), shard=OTHER)
    written(place, (1, 4), (5, 6))
    if by_others:
        place.handle().optimize.compact()
    other.append(arrived([3]), as_they_are)  # this writer is past the entry
    at = 4 if by_others else 3
    if checkpoints == "before":
        place.handle().create_checkpoint()
    entry = place.store.read(entry_key(at), 1 << 20) or b""
    left = [line for line in entry.splitlines(keepends=True) if not line.startswith(b'{"add"')]
    place.store.replace(entry_key(at), b"".join(left))
    if checkpoints == "right after it":
        place.handle().create_checkpoint()
    for number in (4, 5):
        other.append(arrived([number]), as_they_are)
        if "twice" in checkpoints or (checkpoints == "after it" and number == 5):
            place.handle().create_checkpoint()
    assert any("it names 0 of 1 files" in each for each in inspected(place).damage)
    if checkpoints == "before":
        assert place.table().open(SHARD) == Position("6", 0)
        return
    with pytest.raises(SinkError, match=rf"{entry_key(at)} is damaged, .*it names 0 of 1 files.* has nothing of it"):
        place.table().open(SHARD)


@pytest.mark.parametrize(
    "lost",
    [slice(1, 2), slice(-2, None), slice(-2, -1), slice(1, None)],
    ids=["its file", "its position", "a part of its position", "all but its description"],
)
def test_no_checkpoint_is_made_over_an_entry_that_has_lost_lines(
    place: DeltaPlace, lost: slice, caplog: pytest.LogCaptureFixture
) -> None:
    """A writer that is past it goes on, and others see what is wrong."""
    table = written(place, (1, 2))
    place.handle().alter.set_table_properties({"delta.checkpointInterval": "5"})
    for number in (3, 4):
        table.append(arrived([number]), as_they_are)
    entry = (place.store.read(entry_key(3), 1 << 20) or b"").splitlines(keepends=True)
    del entry[lost]
    place.store.replace(entry_key(3), b"".join(entry))
    for number in (5, 6):
        table.append(arrived([number]), as_they_are)
    assert len(place.entries()) == 7
    assert "no checkpoint of its log is made" in caplog.text
    assert entry_key(3) in caplog.text
    assert not [each for each in place.store.files(LOG) if "checkpoint" in each.key]


@pytest.mark.parametrize("checkpoints", ["before", "after it", "after it, twice"])
@pytest.mark.parametrize("with_part", [False, True], ids=["its description", "and a part of its position"])
def test_a_checkpoint_over_an_entry_that_has_lost_all_but_its_description(
    tmp_path: Path, checkpoints: str, *, with_part: bool
) -> None:
    """Its shard goes on in later entries, so that no position is missing; its file is."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 2), (3, 4), (5, 6))
    if checkpoints == "before":
        place.handle().create_checkpoint()
    entry = (place.store.read(entry_key(2), 1 << 20) or b"").splitlines(keepends=True)
    place.store.replace(entry_key(2), entry[0] + entry[-2] * with_part)
    for number in (7, 8):
        table.append(arrived([number]), as_they_are)
        if "twice" in checkpoints or (checkpoints == "after it" and number == 8):
            place.handle().create_checkpoint()
    assert not inspected(place).ok
    if checkpoints == "before":
        assert place.table().open(SHARD) == Position("8", 0)
        return
    with pytest.raises(SinkError, match=rf"{entry_key(2)} is damaged, cut off .* has nothing of it"):
        place.table().open(SHARD)


@pytest.mark.parametrize("lost", [b'{"add"', b'{"remove"'])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_an_entry_of_restore_that_has_lost_a_file(tmp_path: Path, lost: bytes, *, checkpoint: bool) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2), (3, 4))
    place.handle().optimize.compact()
    place.handle().restore(2)
    assert inspected(place).ok
    entry = (place.store.read(entry_key(4), 1 << 20) or b"").splitlines(keepends=True)
    first = next(index for index, line in enumerate(entry) if line.startswith(lost))
    place.store.replace(entry_key(4), b"".join(entry[:first] + entry[first + 1 :]))
    if checkpoint:
        place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=r"4.json"):
        place.table().open(SHARD)
    assert any("it names" in each for each in inspected(place).damage)


def only_positions(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if line.startswith(b'{"txn"')]


def last_line(lines: list[bytes]) -> list[bytes]:
    return lines[-1:]


def first_of_position(lines: list[bytes]) -> list[bytes]:
    return only_positions(lines)[:1]


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("version", [1, 2], ids=["its shard's first", "a later one"])
@pytest.mark.parametrize("left", [only_positions, last_line, first_of_position])
def test_an_entry_without_its_description(
    tmp_path: Path, left: Callable[[list[bytes]], list[bytes]], version: int, *, checkpoint: bool
) -> None:
    """Its file is lost; its position is not, or a part of it is."""
    place = delta_posix(tmp_path)
    written(place, *((2**64 + number, 2**64 + number) for number in range(version)))
    written(place, (1, 2), shard=OTHER)
    entry = (place.store.read(entry_key(version), 1 << 20) or b"").splitlines(keepends=True)
    place.store.replace(entry_key(version), b"".join(left(entry)))
    if checkpoint:
        place.handle().create_checkpoint()
    for shard in (SHARD, OTHER):
        with pytest.raises(SinkError, match=rf"{entry_key(version)}.* its description \(commitInfo\) is lost"):
            place.table().open(shard)
    assert any("its description (commitInfo) is lost" in each for each in inspected(place).damage)
