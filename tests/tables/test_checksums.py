"""One changed digit of what a shard's next writer goes on from is seen: of commit files, footers and notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl import Position
from fastkcl.spark.sinks import ParquetSink, SinkError
from fastkcl.tables import Shard
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.parquet_file import FOOTER_KEY, footer_of, parquet_bytes
from sink_helpers import SHARD, FakeSession, edit_commit, rows, stored
from table_helpers import DAY, NOON, Place, arrived, as_they_are

SESSION: Any = FakeSession()
MEMBERS = {"after", "upto", "rows", "staging", "files"}


def commit_file(table: Path, after: str) -> Path:
    return table / "_commits" / SHARD.stream / SHARD.shard_id / f"after-{after}"


def written(table: Path) -> ParquetSink:
    sink = ParquetSink(table)
    sink.open(SHARD)
    for hundreds in (100, 200, 300, 400):
        sink.write(rows(hundreds, hundreds + 2), SESSION)
    return sink


def damage(url: Path | str, storage: Any = None) -> list[str]:
    state = inspect_table(url, storage)
    assert state.ok == (not state.shards[0].damage)
    return state.shards[0].damage


# ---- a ParquetSink ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("digits", ["400", "602", "403"])
@pytest.mark.parametrize("after", ["302.0", "202.0"])
def test_a_digit_of_a_commit_file(tmp_path: Path, after: str, digits: str) -> None:
    """402 as 602 would drop records that are in no table, 402 as 400 would store some twice."""
    sink = written(tmp_path)
    file = commit_file(tmp_path, after)
    upto = "402" if after == "302.0" else "302"
    file.write_text(file.read_text().replace(f'"{upto}"', f'"{digits}"'))
    (fault,) = damage(tmp_path)
    assert f"after-{after}: a damaged commit file" in fault
    if after == "302.0":
        with pytest.raises(SinkError, match=r"after-302.0: a damaged commit file .*: restore it .*recovery.md"):
            ParquetSink(tmp_path).open(SHARD)
        with pytest.raises(SinkError, match=r"after-302.0: a damaged commit file"):
            sink.write(rows(403, 405), SESSION)


def test_commit_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    """Theirs have no checksum; and they take the members of ours by name, which have stayed."""
    written(tmp_path)
    for file in commit_file(tmp_path, "start").parent.iterdir():
        assert json.loads(file.read_text()).keys() == MEMBERS | {"sha256"}
        edit_commit(file, checksum=False)
        assert json.loads(file.read_text()).keys() == MEMBERS
    assert damage(tmp_path) == []
    sink = ParquetSink(tmp_path)
    assert sink.open(SHARD) == Position("402", 0)
    sink.write(rows(401, 403), SESSION)
    assert stored(tmp_path)[-2:] == [402, 403]
    assert "sha256" in json.loads(commit_file(tmp_path, "402.0").read_text())
    assert damage(tmp_path) == []


def test_a_row_after_the_end_of_an_earlier_versions_commit(tmp_path: Path) -> None:
    written(tmp_path)
    edit_commit(commit_file(tmp_path, "302.0"), checksum=False, upto=["400", 0])
    (fault,) = damage(tmp_path)
    assert "after-302.0: a damaged commit file (it ends at 400/0, and the table has a row of 402/0): restore" in fault


def test_a_digit_of_a_note(tmp_path: Path) -> None:
    sink = written(tmp_path)
    sink.give_up(Position("500", 0))
    file = tmp_path / "_given_up" / SHARD.stream / SHARD.shard_id
    text = file.read_text()
    file.write_text(text.replace("500", "900"))
    assert [fault.count("a damaged note") for fault in damage(tmp_path)] == [1]
    with pytest.raises(SinkError, match="a damaged note .*: remove it"):
        sink.given_up()
    file.write_text(json.dumps({"upto": ["500", 0]}))  # of an earlier version
    assert sink.given_up() == Position("500", 0)
    assert damage(tmp_path) == []


# ---- a ParquetTable ---------------------------------------------------------------------------------------------


def filled(place: Place) -> list[str]:
    """Two days, with a turn between them: the second day's first file continues from where the first day ends."""
    table = place.table()
    table.open(SHARD)
    for hundreds, day in ((100, 0), (200, 0), (300, 1)):
        table.append(arrived(range(hundreds, hundreds + 3), NOON + day * DAY), as_they_are)
    return place.files()


def replaced(place: Place, key: str, change: Callable[[bytes], bytes]) -> None:
    file = place.store.open(key)
    assert file is not None
    with file:
        content = file.read()
    place.store.remove(key)
    assert place.store.create(key, change(content))


def earlier(content: bytes, **changes: Any) -> bytes:
    """A file with a footer of an earlier version."""
    table = pq.read_table(pa.BufferReader(content))
    footer = footer_of(content)
    assert isinstance(footer, bytes)
    members = json.loads(footer) | changes
    del members["sha256"]
    return bytes(parquet_bytes(table.replace_schema_metadata({FOOTER_KEY: b""}), json.dumps(members).encode()))


@pytest.mark.parametrize("digits", ["502", "300"])
def test_a_digit_of_a_footer(place: Place, digits: str) -> None:
    newest = filled(place)[-1]
    replaced(place, newest, lambda content: content.replace(b'"302"', f'"{digits}"'.encode()))
    (fault,) = damage(place.url, place.storage)
    assert f"{newest}: not written by this table's writers, or damaged" in fault
    with pytest.raises(SinkError, match=r"not written by this table's writers, or damaged .*sha256"):
        place.table().open(SHARD)


def test_footers_of_earlier_versions_are_read(place: Place) -> None:
    for key in filled(place):
        replaced(place, key, earlier)
    assert damage(place.url, place.storage) == []
    table = place.table()
    assert table.open(SHARD) == Position("302", 0)
    table.append(arrived(range(302, 305), NOON + DAY), as_they_are)
    assert place.numbers()[-3:] == [302, 303, 304]
    assert damage(place.url, place.storage) == []


def test_a_row_after_the_end_of_an_earlier_versions_file(place: Place) -> None:
    newest = filled(place)[-1]
    replaced(place, newest, lambda content: earlier(content, upto=["300", 0]))
    (fault,) = damage(place.url, place.storage)
    assert f"{newest}: not written by this table's writers, or damaged: it ends at 300/0" in fault
    assert "a row of 302/0" in fault


def test_another_shards_file_in_the_place_of_a_committed_one(tmp_path: Path) -> None:
    """Of as many rows, which lie after the position of the shard."""
    written(tmp_path)
    other = Shard(SHARD.stream, "shardId-000000000007")
    sink = ParquetSink(tmp_path)
    sink.open(other)
    sink.write(rows(900, 902), SESSION)
    assert inspect_table(tmp_path).ok
    (theirs,) = (tmp_path / f"stream={other.stream}/shard={other.shard_id}").glob("**/*00000*.parquet")
    newest = max((tmp_path / f"stream={SHARD.stream}/shard={SHARD.shard_id}").glob("**/*00000*.parquet"))
    newest.write_bytes(theirs.read_bytes())
    state = inspect_table(tmp_path)
    assert not state.ok
    (told,) = state.shards[0].damage
    assert "is another one than was committed (it ends at 402/0, and the table has a row of 90" in told
