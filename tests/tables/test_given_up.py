"""A note of records that were given up excuses a checkpoint after them, and no loss of commits before them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import DeltaTable, ParquetTable, SinkError, shard_table, storage
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.given_up import GivenUp, noted, text_of, upto_of
from fastkcl.tables.iceberg.head import IcebergHead
from fastkcl.tables.parquet.chain import name_after
from fastkcl.tables.shard_table import ShardTable
from fastkcl.tables.store import DeniedError, StoreError
from iceberg_helpers import sql_posix
from sink_helpers import SHARD, FakeSession, rows
from table_helpers import arrived, as_they_are

SIX, EIGHT, NINE, TWELVE = (Position(str(number), 0) for number in (6, 8, 9, 12))


def by_sink(sink: Any, numbers: range) -> None:
    sink.open(SHARD)
    sink.write(rows(numbers.start, numbers.stop - 1), FakeSession(1))


def by_table(table: Any, numbers: range) -> None:
    table.open(SHARD)
    table.append(arrived(numbers), as_they_are)


def newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.name)


def lose_a_parquet_sinks(root: Path) -> None:
    newest(root / "_commits", "clicks/*/after-6.0").unlink()
    newest(root / "stream=clicks", "shard=*/6.0-*").unlink()


KINDS: dict[str, tuple[Any, Callable[[Any, range], None], Callable[[Path], None]]] = {
    "ParquetSink": (ParquetSink, by_sink, lose_a_parquet_sinks),
    "DeltaSink": (DeltaSink, by_sink, lambda root: newest(root, "_delta_log/*.json").unlink()),
    "ParquetTable": (ParquetTable, by_table, lambda root: newest(root, "stream=clicks/*/*/after-*").unlink()),
    "DeltaTable": (DeltaTable, by_table, lambda root: newest(root, "_delta_log/*.json").unlink()),
}


def started(table: Any, checkpoint: Position) -> ShardTable[Any]:
    """As a child does."""
    return ShardTable(table, lambda *_: checkpoint, SHARD, legacy=False, dropped=lambda _: None, checkpoint=checkpoint)


def child(kind: str, root: Path, checkpoint: Position | None) -> ShardTable[Any]:
    """One that can write."""
    make, write, _ = KINDS[kind]
    table = make(root)

    def append(rows: Any, _: int) -> Position:
        first, last = (int(each.sequence_number) for each in (rows.first_position, rows.last_position))
        write(table, range(first, last + 1))
        return Position(str(last), 0)

    return ShardTable(table, append, SHARD, legacy=False, dropped=lambda _: None, checkpoint=checkpoint)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_lost_before_a_note(tmp_path: Path, kind: str) -> None:
    make, write, lose = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    assert inspect_table(str(tmp_path)).ok
    lose(tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after the table's position: .* up to 6/0"):
        started(make(tmp_path), TWELVE)
    (state,) = inspect_table(str(tmp_path)).shards
    assert any(
        "were given up, the table has had those up to 9/0 then or later, and it has those up to 6/0" in each
        for each in state.damage
    )


@pytest.mark.parametrize("kind", KINDS)
def test_later_notes_and_commits(tmp_path: Path, kind: str) -> None:
    make, write, _ = KINDS[kind]
    table = make(tmp_path)
    table.open(SHARD)
    table.give_up(Position("3", 0))
    started(make(tmp_path), Position("3", 0))
    write(make(tmp_path), range(4, 7))
    started(make(tmp_path), Position("6", 0)).before_checkpoint(NINE)
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    write(make(tmp_path), range(13, 16))
    started(make(tmp_path), Position("15", 0))
    assert inspect_table(str(tmp_path)).ok


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_lost_and_has_what_was_given_up(tmp_path: Path, kind: str, is_restarted: bool) -> None:
    """No checkpoint was made after the giving up, so the records came again, and were stored."""
    make, write, _ = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    running = child(kind, tmp_path, NINE)
    running.before_checkpoint(TWELVE)
    if is_restarted:
        running = child(kind, tmp_path, NINE)
    running.store(arrived(range(10, 13)), 1)
    running.before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    lose_after_nine(kind, tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after the table's position: .* up to 9/0"):
        started(make(tmp_path), TWELVE)
    assert not inspect_table(str(tmp_path)).ok


def lose_after_nine(kind: str, root: Path) -> None:
    if kind == "ParquetSink":
        newest(root / "_commits", "clicks/*/after-9.0").unlink()
        newest(root / "stream=clicks", "shard=*/9.0-*").unlink()
    else:
        KINDS[kind][2](root)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_lost_and_has_a_part_of_it(tmp_path: Path, kind: str) -> None:
    """The other part is given up again."""
    make, write, lose = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    started(make(tmp_path), SIX).before_checkpoint(TWELVE)
    running = child(kind, tmp_path, SIX)
    running.store(arrived(range(7, 9)), 1)
    running.before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    lose(tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after the table's position: .* up to 6/0"):
        started(make(tmp_path), TWELVE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("upto", [SIX, TWELVE])
def test_records_that_are_given_up_again_after_a_loss(tmp_path: Path, kind: str, upto: Position) -> None:
    """docs/recovery.md: the lease's checkpoint was set to the table's position, and records are read again."""
    make, write, lose = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    lose(tmp_path)
    started(make(tmp_path), SIX).before_checkpoint(upto if upto > SIX else EIGHT)
    started(make(tmp_path), upto)
    assert inspect_table(str(tmp_path)).ok


@pytest.mark.parametrize("kind", KINDS)
def test_a_note_whose_sync_has_failed_is_written_again(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, write, _ = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    real, synced = storage.sync_folder, list[Path]()

    def fails(folder: Path) -> None:
        if "given_up" in str(folder) and SHARD.shard_id in str(folder / "*" / SHARD.shard_id):
            raise OSError(5, "Input/output error", str(folder))
        real(folder)

    def syncs(folder: Path) -> None:
        synced.append(folder)
        real(folder)

    running = started(make(tmp_path), SIX)
    monkeypatch.setattr(storage, "sync_folder", fails)
    with pytest.raises(OSError, match="Input/output"):
        running.before_checkpoint(TWELVE)
    monkeypatch.setattr(storage, "sync_folder", syncs)
    running.before_checkpoint(TWELVE)
    (note,) = [path for path in tmp_path.rglob("*given_up/**/*") if path.is_file()]
    assert note.parent in synced


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_whose_answer_was_lost(tmp_path: Path, kind: str) -> None:
    """Its records were given up before; the note follows it before the checkpoint all the same."""
    make, write, _ = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), NINE).before_checkpoint(TWELVE)
    table = make(tmp_path)

    def append(rows: Any, _: int) -> Position:
        write(table, range(10, 13))
        raise OSError("its answer was lost")

    running = ShardTable(table, append, SHARD, legacy=False, dropped=lambda _: None, checkpoint=NINE)
    rows = arrived(range(10, 13))
    with pytest.raises(OSError, match="its answer was lost") as raised:
        running.store(rows, 1)
    assert running.has(rows, raised.value)
    running.before_checkpoint(TWELVE)
    lose_after_nine(kind, tmp_path)
    with pytest.raises(SinkError, match="the checkpoint 12/0 lies after the table's position"):
        started(make(tmp_path), TWELVE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_zombie_takes_nothing_from_its_successors_note(tmp_path: Path, kind: str) -> None:
    make, write, _ = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    zombie = started(make(tmp_path), SIX)
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), NINE).before_checkpoint(Position("20", 0))
    zombie.before_checkpoint(TWELVE)  # its checkpoint is refused then
    started(make(tmp_path), Position("20", 0))
    assert inspect_table(str(tmp_path)).ok


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_while_a_note_is_written(
    tmp_path: Path, kind: str, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it leaves is nobody's note, and no shard."""
    make, write, _ = KINDS[kind]
    write(make(tmp_path), range(1, 7))
    if not is_first:
        started(make(tmp_path), SIX).before_checkpoint(EIGHT)
    running = started(make(tmp_path), SIX)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(storage, "rename", dies)
        patch.setattr(storage, "unlink", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            running.before_checkpoint(TWELVE)
    started(make(tmp_path), SIX if is_first else EIGHT).before_checkpoint(TWELVE)
    started(make(tmp_path), TWELVE)
    assert inspect_table(str(tmp_path)).ok


def test_a_full_disk_keeps_no_child_with_a_note_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, write, _ = KINDS["ParquetTable"]
    write(make(tmp_path), range(1, 7))
    started(make(tmp_path), SIX).before_checkpoint(EIGHT)

    def full(path: Path, _: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(storage, "write_new", full)
    started(make(tmp_path), EIGHT).before_checkpoint(EIGHT)


def test_a_note_of_an_earlier_version_learns_the_position(tmp_path: Path) -> None:
    make, write, lose = KINDS["DeltaTable"]
    write(make(tmp_path), range(1, 7))
    note = tmp_path / "_given_up" / "clicks" / SHARD.shard_id
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"upto": ["12", 0]}))
    write(make(tmp_path), range(7, 10))
    started(make(tmp_path), TWELVE).before_checkpoint(NINE)
    lose(tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after"):
        started(make(tmp_path), TWELVE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_beside_a_write_waits_for_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what one thread reads and the other one writes, each would say that somebody has replaced the table."""
    monkeypatch.setattr(shard_table, "_WAIT_SECONDS", 0.01)
    make, write, _ = KINDS[kind]
    table = make(tmp_path)
    write(table, range(1, 10))
    writes, may_end = threading.Event(), threading.Event()

    def append(*_: Any) -> Position:
        writes.set()
        assert may_end.wait(30)
        write(table, range(13, 16))
        return Position("15", 0)

    running = ShardTable(table, append, SHARD, legacy=False, dropped=lambda _: None, checkpoint=NINE)
    looks: list[str] = []
    for name in ("open", "give_up", "gone_on"):
        call = getattr(table, name)
        monkeypatch.setattr(table, name, lambda *values, name=name, call=call: (looks.append(name), call(*values))[1])
    writer = threading.Thread(target=running.store, args=(arrived(range(13, 16)), 1))
    writer.start()
    assert writes.wait(30)
    assert not running.before_checkpoint(TWELVE)
    assert "no checkpoint at 12/0 until the write under way has ended" in caplog.text
    caplog.clear()
    monkeypatch.setattr(shard_table, "_WAIT_SECONDS", 3600)
    assert not running.before_checkpoint(TWELVE)  # at once: this write has been waited for
    assert (looks, caplog.text) == ([], "")
    may_end.set()
    writer.join(30)
    assert running.before_checkpoint(TWELVE)
    assert running.before_checkpoint(Position("15", 0))
    started(make(tmp_path), Position("15", 0))


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_of_what_is_stored_waits_for_no_later_write(tmp_path: Path, kind: str) -> None:
    """A new shard, whose writes follow each other without a pause, got no checkpoint."""
    make, write, _ = KINDS[kind]
    table = make(tmp_path)
    writes, may_end = threading.Event(), threading.Event()

    def append(rows: Any, _: int) -> Position:
        first, last = (int(each.sequence_number) for each in (rows.first_position, rows.last_position))
        if first > 1:
            writes.set()
            assert may_end.wait(30)
        write(table, range(first, last + 1))
        return Position(str(last), 0)

    running = ShardTable(table, append, SHARD, legacy=False, dropped=lambda _: None)
    running.store(arrived(range(1, 10)), 1)
    writer = threading.Thread(target=running.store, args=(arrived(range(10, 13)), 1))
    writer.start()
    assert writes.wait(30)
    assert running.before_checkpoint(NINE)
    may_end.set()
    writer.join(30)
    assert running.before_checkpoint(TWELVE)


def test_a_role_that_must_not_change_a_namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note from before the table is there; the table has one of its own from then on."""
    place = sql_posix(tmp_path)
    first = place.table()
    first.open(SHARD)
    first.give_up(TWELVE)

    def refused(*_: object) -> None:
        raise DeniedError("note in the namespace: ForbiddenError")

    def unreachable(*_: object) -> None:
        raise StoreError("note in the namespace: 503")

    monkeypatch.setattr(IcebergHead, "note_in_namespace", refused)
    with pytest.raises(StoreError, match="ForbiddenError"):
        first.give_up(Position("13", 0))
    by_table(table := place.table(), range(1, 10))
    running = started(table, NINE)
    with monkeypatch.context() as away:
        away.setattr(IcebergHead, "note_in_namespace", unreachable)
        with pytest.raises(StoreError, match="503"):  # which passes: the note has to follow
            running.before_checkpoint(NINE)
    assert running.before_checkpoint(NINE)
    assert table.given_up() == TWELVE
    by_table(place.table(), range(13, 16))
    assert started(place.table(), Position("15", 0)).before_checkpoint(Position("15", 0))


def test_marks_of_an_earlier_version_become_a_note(tmp_path: Path) -> None:
    make, write, lose = KINDS["ParquetTable"]
    write(make(tmp_path), range(1, 7))
    write(make(tmp_path), range(7, 10))
    folder = tmp_path / "_fastkcl" / "given_up" / "stream=clicks" / f"shard={SHARD.shard_id}"
    folder.mkdir(parents=True)
    (folder / ".".join(name_after(each).removesuffix(".parquet") for each in (TWELVE, SIX))).touch()
    started(make(tmp_path), TWELVE).before_checkpoint(NINE)
    lose(tmp_path)
    with pytest.raises(SinkError, match=r"the checkpoint 12/0 lies after"):
        started(make(tmp_path), TWELVE)


@pytest.mark.parametrize("what", ["damaged", "a folder", "a FIFO", "a link that leads nowhere", "too large"])
def test_marks_do_not_come_back_when_the_note_is_damaged(tmp_path: Path, what: str) -> None:
    make, write, _ = KINDS["ParquetTable"]
    write(make(tmp_path), range(1, 7))
    folder = tmp_path / "_fastkcl" / "given_up" / "stream=clicks" / f"shard={SHARD.shard_id}"
    folder.mkdir(parents=True)
    (folder / ".".join(name_after(each).removesuffix(".parquet") for each in (TWELVE, SIX))).touch()
    write(make(tmp_path), range(7, 13))
    started(make(tmp_path), SIX).before_checkpoint(TWELVE)
    note = folder / "note"
    note.unlink()
    if what == "a folder":
        note.mkdir()
    elif what == "a FIFO":
        os.mkfifo(note)
    elif what == "a link that leads nowhere":
        note.symlink_to("nowhere")
    else:
        note.write_text("{}" if what == "damaged" else " " * (2 << 20))
    with pytest.raises(SinkError, match="note: (a damaged|no) note .*: remove it, with its folder"):
        started(make(tmp_path), TWELVE).before_checkpoint(TWELVE)


def test_a_note_of_an_earlier_version_says_no_position() -> None:
    found = noted(json.dumps({"upto": ["12", 0]}).encode(), "here")
    assert found == GivenUp(None, TWELVE)
    assert upto_of(found, None) == TWELVE


@pytest.mark.parametrize("after", [None, Position("9", None), NINE])
def test_what_a_note_says(after: Position | None) -> None:
    assert noted(text_of(GivenUp(after, TWELVE)), "here") == GivenUp(after, TWELVE)
