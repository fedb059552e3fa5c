"""A DeltaTable where others made a checkpoint over an entry of which readers pass over a part: blanks, unknown actions.

Without the checkpoint each writer stops at the entry. deltalake's `create_checkpoint` says nothing, and has what is
left.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, combinations
from pathlib import Path

import pyarrow as pa
import pytest
from delta_table_helpers import DeltaPlace, delta_posix, written
from fastkcl import Position
from fastkcl.tables import DeltaTable, Shard, SinkError
from fastkcl.tables.delta.log import entry_key
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import find_orphans
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are

OTHER = Shard("clicks", "shardId-000000000001")
AT = 2
"""The version of the damaged entry; after it comes one of each shard, or nothing."""


def table_of(folder: Path, *, is_newest: bool) -> DeltaPlace:
    """Two shards, and an entry that is to be damaged: lines of commitInfo, add, and two of txn."""
    place = delta_posix(folder)
    written(place, (1, 2), shard=OTHER)
    written(place, (3, 4))
    if not is_newest:
        written(place, (5, 6))
        written(place, (7, 8), shard=OTHER)
    assert [line[:6] for line in entry_of(place, AT)] == [b'{"comm', b'{"add"', b'{"txn"', b'{"txn"']
    return place


def entry_of(place: DeltaPlace, version: int) -> list[bytes]:
    return (place.store.read(entry_key(version), 1 << 20) or b"").splitlines(keepends=True)


def damaged(place: DeltaPlace, damage: Callable[[int, bytes], bytes]) -> None:
    """A line of the entry each, by its number."""
    lines = [damage(number, line) for number, line in enumerate(entry_of(place, AT))]
    place.store.replace(entry_key(AT), b"".join(lines))


def position(place: DeltaPlace) -> Position | None:
    """From which a writer goes on; None if it stops."""
    try:
        return place.table().open(SHARD)
    except SinkError:
        return None


PARTS = list(chain.from_iterable(combinations(range(4), count) for count in (1, 2, 3, 4)))


@pytest.mark.parametrize("is_newest", [False, True], ids=["in the middle", "the newest"])
@pytest.mark.parametrize("filler", [b" ", b"\n"], ids=["spaces", "ends of lines"])
def test_lines_that_were_overwritten_by_blanks(tmp_path: Path, filler: bytes, *, is_newest: bool) -> None:
    """Each set of the four lines."""
    for number, parts in enumerate(PARTS):
        place = table_of(tmp_path / str(number), is_newest=is_newest)
        damaged(place, lambda at, line, parts=parts: filler * (len(line) - 1) + b"\n" if at in parts else line)
        place.handle().create_checkpoint()
        assert position(place) is None, parts
        assert any(entry_key(AT) in each for each in inspect_table(place.url, place.storage).damage), parts


@pytest.mark.parametrize("checkpoints", [1, 2])
@pytest.mark.parametrize("is_newest", [False, True], ids=["in the middle", "the newest"])
def test_actions_whose_names_were_damaged(tmp_path: Path, checkpoints: int, *, is_newest: bool) -> None:
    """One byte of each; readers pass over an action that they do not know."""
    for number, parts in enumerate(PARTS):
        place = table_of(tmp_path / str(number), is_newest=is_newest)
        damaged(place, lambda at, line, parts=parts: line.replace(b'":', b'_":', 1) if at in parts else line)
        place.handle().create_checkpoint()
        if checkpoints == 2:
            written_by_others(place)
            place.handle().create_checkpoint()
        assert position(place) is None, parts
        assert any(entry_key(AT) in each for each in inspect_table(place.url, place.storage).damage), parts


@pytest.mark.parametrize("checkpoints", [1, 2])
@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [line.replace(b'"version": 4', b'"version": 3') for line in lines],
        lambda lines: [line.replace(b'"numRecords', b'"nullRecords') for line in lines],
        lambda lines: [lines[0], lines[1].replace(b"after-", b"after_"), *lines[2:]],
        lambda lines: [lines[0].replace(b'"rows": 2', b'"rows": 1'), *lines[1:]],
    ],
    ids=["another position", "other statistics", "another file", "another description"],
)
def test_an_entry_of_other_values(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], checkpoints: int
) -> None:
    """Each value is one that an entry may have; its digest tells."""
    place = table_of(tmp_path, is_newest=True)
    made = change(entry_of(place, AT))
    assert made != entry_of(place, AT)
    place.store.replace(entry_key(AT), b"".join(made))
    with pytest.raises(SinkError, match=f"{AT}.json: damaged, it is not what was written"):
        place.table().open(SHARD)
    for number in range(checkpoints):
        if number:
            written_by_others(place)
        place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=f"{AT}.json is damaged, it is not what was written"):
        place.table().open(SHARD)
    assert any(entry_key(AT) in each for each in inspect_table(place.url, place.storage).damage)


def test_an_entry_that_loses_all_but_its_description_under_a_running_writer(tmp_path: Path) -> None:
    """Others make a checkpoint over it, the writer goes on, and they make another one."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 2), (3, 4), (5, 6))
    damaged(place, lambda at, line: line if at == 0 else b"")
    place.handle().create_checkpoint()
    table.append(arrived([7]), as_they_are)
    place.handle().create_checkpoint()
    assert position(place) is None


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_new_column_that_is_lost(tmp_path: Path, *, checkpoint: bool) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 2))
    table = DeltaTable(place.url, evolve="add")
    table.open(SHARD)
    table.append(arrived([3]), lambda rows: as_they_are(rows).append_column("cents", pa.array([1])))
    assert entry_of(place, AT)[1].startswith(b'{"metaData"')
    damaged(place, lambda at, line: b"" if at == 1 else line)
    if checkpoint:
        place.handle().create_checkpoint()
    assert position(place) is None
    assert not inspect_table(place.url, place.storage).ok


@pytest.mark.parametrize("checkpoints", [0, 1, 2])
@pytest.mark.parametrize("is_newest", [False, True], ids=["in the middle", "the newest"])
@pytest.mark.parametrize("filler", [b" ", b""], ids=["blanks", "nothing"])
@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (b'"fastkcl:', b"date="),
        (b'"fastkcl:', b"after-"),
        (b'"Append', b'"date": "20'),
        (b'"fastkcl:', b'"appId": "fastkcl/'),
    ],
)
def test_a_range_from_a_text_of_the_description_into_one_of_another_action(
    tmp_path: Path, begin: bytes, end: bytes, filler: bytes, checkpoints: int, *, is_newest: bool
) -> None:
    """The rest is sound JSON; the digest is in the range."""
    place = table_of(tmp_path, is_newest=is_newest)
    whole = b"".join(entry_of(place, AT))
    first, last = whole.index(begin) + 3, whole.index(end) + len(end)
    place.store.replace(entry_key(AT), whole[:first] + filler * (last - first) + whole[last:])
    for number in range(checkpoints):
        if number:
            written_by_others(place)
        place.handle().create_checkpoint()
    assert position(place) is None
    assert any(entry_key(AT) in each for each in inspect_table(place.url, place.storage).damage)
    with pytest.raises(SinkError, match="nothing is called an orphan"):
        find_orphans(place.url)


@pytest.mark.parametrize("checkpoints", [1, 2])
@pytest.mark.parametrize("is_newest", [False, True], ids=["in the middle", "the newest"])
@pytest.mark.parametrize("control", [b"\n", b"\t", b"\r", b"\0"], ids=repr)
def test_a_control_character_within_a_name_or_over_two_lines(
    tmp_path: Path, control: bytes, checkpoints: int, *, is_newest: bool
) -> None:
    """JSON does not allow it within a text. deltalake does, and makes a checkpoint of the rest."""
    for number in range(2):
        place = table_of(tmp_path / str(number), is_newest=is_newest)
        whole = b"".join(entry_of(place, AT))
        first, last = whole.index(b'"add"') + 2, whole.index(b'"add"') + 3
        if number:
            first, last = whole.index(b'"sha256": "') + 15, whole.index(b'"path": "') + 15
        place.store.replace(entry_key(AT), whole[:first] + control * (last - first) + whole[last:])
        assert position(place) is None
        for made in range(checkpoints):
            if made:
                written_by_others(place)
            place.handle().create_checkpoint()
        assert position(place) is None


def test_an_editor_leaves_the_end_of_a_line(tmp_path: Path) -> None:
    """Nothing is lost by it."""
    for number, change in enumerate(
        (lambda text: text[:-1], lambda text: text + b"\n", lambda text: text.replace(b"\n", b"\r\n"))
    ):
        place = table_of(tmp_path / str(number), is_newest=True)
        place.store.replace(entry_key(AT), change(b"".join(entry_of(place, AT))))
        assert position(place) == Position("4", 0)
        assert inspect_table(place.url, place.storage).ok


def test_shared_commits_that_lose_their_description_and_a_file(tmp_path: Path) -> None:
    """A file of one of two shards."""
    place = table_of(tmp_path, is_newest=True)
    mine, other = (entry_of(place, version) for version in (AT, 1))
    place.store.replace(entry_key(AT), b"".join([mine[1], *mine[2:], *other[2:]]))
    place.handle().create_checkpoint()
    assert position(place) is None


def written_by_others(place: DeltaPlace) -> None:
    """An entry that has none of our actions."""
    place.handle().alter.set_table_properties({"delta.logRetentionDuration": "interval 40 days"})


def test_a_line_that_was_overwritten_by_blanks(tmp_path: Path) -> None:
    """The word for it."""
    place = table_of(tmp_path, is_newest=False)
    damaged(place, lambda at, line: b" " * len(line) if at == 1 else line)
    place.handle().create_checkpoint()
    with pytest.raises(SinkError, match=rf"{entry_key(AT)} is damaged, it names 0 of 1 files"):
        place.table().open(SHARD)


@pytest.mark.parametrize("checkpoints", [1, 2, 3])
@pytest.mark.parametrize("version", [1, 2])
def test_a_checkpoint_over_a_copy_of_the_entry_that_makes_the_table(
    tmp_path: Path, version: int, checkpoints: int
) -> None:
    place = table_of(tmp_path, is_newest=False)
    place.store.replace(entry_key(version), place.store.read(entry_key(0), 1 << 20) or b"")
    for number in range(checkpoints):
        if number:
            written_by_others(place)
        place.handle().create_checkpoint()
    assert not inspect_table(place.url, place.storage).ok
    for shard in (SHARD, OTHER):
        with pytest.raises(SinkError, match=rf"{entry_key(version)} makes the table, and is not its first entry"):
            place.table().open(shard)
