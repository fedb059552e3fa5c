"""A Delta table that a worker writes itself: each record once; on POSIX and on S3."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_table_helpers import DeltaPlace, calls_of, counted, delta_posix, delta_s3, written
from deltalake.schema import PrimitiveType
from fastkcl import Position
from fastkcl.local_aws import LocalAws
from fastkcl.spark.sinks import DeltaSink
from fastkcl.tables import DeltaTable, ParquetTable, S3Storage, Shard, SinkError, WriteCancelledError
from fastkcl.tables.delta import checkpoint as checkpoint_module
from fastkcl.tables.delta import head as head_module
from fastkcl.tables.delta import table as module
from fastkcl.tables.delta.actions import about, information, lines, transactions
from fastkcl.tables.delta.log import LAST_CHECKPOINT, entry_key
from fastkcl.tables.delta.snapshot import Snapshot
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.store import StoreError
from sink_helpers import SHARD, FakeSession
from sink_helpers import rows as sink_rows
from table_helpers import DAY, NOON, arrived, as_they_are
from waiting import PATIENCE

OTHER = Shard("clicks", "shardId-000000000001")
SESSION: Any = FakeSession()


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaPlace:
    """Somewhere for a table: a folder, and a bucket of local AWS."""
    return delta_posix(tmp_path) if request.param == "posix" else delta_s3(request.getfixturevalue("aws"))


# ---- one writer -------------------------------------------------------------------------------------------------


def test_a_life(place: DeltaPlace) -> None:
    table = place.table()
    assert table.open(SHARD) is None
    assert table.append(arrived(range(1, 4)), as_they_are) == Position("3", 0)
    assert table.append(arrived(range(2, 11)), as_they_are) == Position("10", 0)
    assert place.table().open(SHARD) == Position("10", 0)
    assert place.numbers() == list(range(1, 11))
    handle = place.handle()
    assert handle.version() == 2
    assert handle.count() == 10  # by the statistics in the log
    assert handle.metadata().partition_columns == ["date"]
    assert [name.rpartition("-")[0] for name in place.files()] == [
        "date=2026-11-22/after-3.0",
        "date=2026-11-22/after-start",
    ]
    read = place.read()
    assert read.schema.names[-3:] == ["stream", "shard", "date"]
    assert set(read["date"].to_pylist()) == {date(2026, 11, 22)}
    assert set(read["stream"].to_pylist()) == {"clicks"}
    about = [commit["fastkcl"] for commit in handle.history() if "fastkcl" in commit]
    assert [(each["after"], each["upto"], each["rows"]) for each in about] == [("3.0", "10.0", 7), ("start", "3.0", 3)]


def test_what_comes_again_is_dropped(place: DeltaPlace) -> None:
    table = written(place, (1, 10))
    assert table.append(arrived(range(5, 11)), as_they_are) == Position("10", 0)
    assert table.append(arrived(range(5, 16)), as_they_are) == Position("15", 0)
    assert place.numbers() == list(range(1, 16))
    assert len(place.entries()) == 3


def test_shards_and_streams_have_their_own_positions(place: DeltaPlace) -> None:
    shards = [Shard(stream, shard) for stream in ("clicks", "007", "ü-1") for shard in ("shardId-0", "shardId-1")]
    for shard in shards:
        table = written(place, (1, 3), shard=shard, partition_by=("stream", "shard", "date"))
        assert table.open(shard) == Position("3", 0)
    assert {record[:2] for record in place.records()} == {(shard.stream, shard.shard_id) for shard in shards}
    assert place.records().total() == 18


def test_legacy_positions_and_sub_sequence_numbers(place: DeltaPlace) -> None:
    table = written(place)
    assert table.append(arrived([1, 1, 2], legacy=True), as_they_are) == Position("2", None)
    assert place.table().open(SHARD) == Position("2", None)
    table.append(arrived([7] * 12, subs=range(12)), as_they_are)
    assert place.table().open(SHARD) == Position("7", 11)
    table.append(arrived([7] * 14, subs=range(14)), as_they_are)
    assert place.numbers() == [1, 1, 2] + [7] * 14


def test_rows_that_a_transformation_leaves_nothing_of_move_the_position(place: DeltaPlace) -> None:
    table = written(place, (1, 3))
    table.append(arrived(range(4, 7)), lambda rows: rows.table().slice(0, 0))
    assert place.table().open(SHARD) == Position("6", 0)
    assert place.numbers() == [1, 2, 3]


def test_what_is_not_wanted_is_not_written(place: DeltaPlace) -> None:
    table = written(place, (1, 3))
    rows = arrived(range(4, 7))
    rows._cancelled = lambda: True
    with pytest.raises(WriteCancelledError):
        table.append(rows, as_they_are)
    assert place.numbers() == [1, 2, 3]


def test_days(place: DeltaPlace) -> None:
    """One commit has a file for each day; who comes late in a run, or without a time, lies in the newer day."""
    table = written(place)
    table.append(arrived([1, 2, 3, 4, 5], [None, NOON, NOON + DAY, NOON, None]), as_they_are)
    table.append(arrived([6, 7], [NOON, NOON + 3 * DAY]), as_they_are)
    table.append(arrived([8], [None]), as_they_are)
    assert place.days() == {"2026-11-22": [1, 2, 6], "2026-11-23": [3, 4, 5], "2026-11-25": [7], "None": [8]}
    assert len(place.entries()) == 4
    assert place.table().open(SHARD) == Position("8", 0)


def test_an_aggregate_is_not_parted_at_midnight(place: DeltaPlace) -> None:
    table = written(place)
    table.append(arrived([1, 2, 2, 2], [NOON, NOON, NOON + DAY, NOON + DAY], legacy=True), as_they_are)
    assert place.days() == {"2026-11-22": [1], "2026-11-23": [2, 2, 2]}


@pytest.mark.parametrize("columns", [(), ("stream",), ("shard", "date"), ("stream", "shard", "date")])
def test_partitions(tmp_path: Path, columns: Any) -> None:
    place = delta_posix(tmp_path)
    written(place, (1, 3), partition_by=columns)
    written(place, (4, 6))  # it goes on with its own
    assert place.handle().metadata().partition_columns == list(columns)
    assert place.numbers() == list(range(1, 7))
    assert ("date" in place.read().column_names) == ("date" in columns)
    with pytest.raises(SinkError, match=r"partitioned by .*, not by \['shard'\]"):
        place.table(partition_by=["shard"]).open(SHARD)


def test_requests_a_commit(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at each version: the file, the head's entry and the next one, the entry, and `_last_checkpoint`."""
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 1000)
    table = written(place, *((number, number) for number in range(1, 6)))
    calls = calls_of(table._store, monkeypatch)
    for number in range(6, 9):
        calls.clear()
        table.append(arrived([number]), as_they_are)
        # On a disk also whether the head's entry is there yet.
        assert calls == ["create", "read", "read", "create", "read", *(["read"] if place.storage is None else [])]


def test_requests_a_commit_at_version_90(aws: LocalAws) -> None:
    """On the wire, with a commit of another shard between each two."""
    place = delta_s3(aws)
    written(place, (1, 1))
    filling = transactions(Shard("orders", "shardId-0"), Position("1", 0))
    for version in range(2, 88):
        told = about(Shard("orders", "shardId-0"), Position("1", 0), Position("1", 0), 0)
        place.store.create(entry_key(version), lines([information(["date"], told), *filling]))
    with counted(aws.url) as (url, requests):
        table = DeltaTable(place.url, storage=S3Storage(endpoint=url, access_key="local", secret_key="local"))
        assert table.open(SHARD) == Position("1", 0)
        other = written(place, shard=OTHER)
        each = []
        for number in range(2, 8):
            requests.clear()
            table.append(arrived([number]), as_they_are)
            each.append(len(requests))
            other.append(arrived([number]), as_they_are)
    assert each == [5, 6, 6, 6, 6, 6]
    assert place.handle().version() == 99


# ---- several writers --------------------------------------------------------------------------------------------


def test_a_zombie_is_refused(place: DeltaPlace) -> None:
    zombie = written(place, (1, 3))
    written(place, (1, 3), (4, 8))
    assert zombie.append(arrived(range(4, 7)), as_they_are) == Position("8", 0)
    assert zombie.append(arrived(range(7, 11)), as_they_are) == Position("10", 0)
    assert place.numbers() == list(range(1, 11))


def between(table: DeltaTable, monkeypatch: pytest.MonkeyPatch, *happens: Callable[[], object]) -> None:
    """Let these happen, one each time, when the position was compared and the entry is not made yet."""
    commit, left = table._head.commit, list(happens)

    def interrupted(*arguments: Any) -> bool:
        if left:
            left.pop(0)()
        return commit(*arguments)

    monkeypatch.setattr(table._head, "commit", interrupted)


def test_a_zombie_is_refused_at_the_commit_itself(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie = written(place, (1, 3))
    successor = written(place, (1, 3))
    between(zombie, monkeypatch, lambda: successor.append(arrived(range(4, 9)), as_they_are))
    assert zombie.append(arrived(range(4, 7)), as_they_are) == Position("8", 0)
    assert place.numbers() == list(range(1, 9))


class HeadAfterTheComparison(DeltaTable):
    """Spoiled: its entry follows a head that is newer than the position that was compared."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def _commit(self, staged: Any, snapshot: Snapshot) -> bool:
        self.meanwhile()
        self._head.move_on()
        return super()._commit(staged, snapshot)


@pytest.mark.parametrize("kind", [DeltaTable, HeadAfterTheComparison])
def test_a_head_opened_after_the_comparison_would_double(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[DeltaTable]
) -> None:
    place = delta_posix(tmp_path)
    zombie, successor = kind(place.url, share_commits=False), written(place, (1, 3))
    zombie.open(SHARD)
    left = [lambda: successor.append(arrived(range(4, 7)), as_they_are)]
    if kind is DeltaTable:
        between(zombie, monkeypatch, *left)
    else:
        monkeypatch.setattr(kind, "meanwhile", lambda _: left and left.pop()(), raising=False)
    # Whoever reads the spoiled entry is told that it does not continue from the table's position.
    with nullcontext() if kind is DeltaTable else pytest.raises(SinkError, match=r"it continues clicks, .* from 3\.0"):
        zombie.append(arrived(range(4, 9)), as_they_are)
    doubled = [] if kind is DeltaTable else [4, 5, 6]
    assert place.numbers() == sorted([*range(1, 9), *doubled])


def test_other_shards_are_no_conflict(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = written(place, (1, 3)), written(place, (1, 3), shard=OTHER)
    others = [lambda number=number: other.append(arrived([number]), as_they_are) for number in range(4, 7)]
    between(table, monkeypatch, *others)
    pauses: list[float] = []
    table._pause = pauses.append
    makes: list[int] = []
    table.append(arrived(range(4, 7)), lambda rows: (makes.append(1), rows.table())[1])
    assert len(pauses) == 3
    assert len(makes) == 1  # what is staged stays good
    assert place.numbers() == sorted([*range(1, 7)] * 2)


def test_six_writers_at_once(place: DeltaPlace) -> None:
    """Each believes that it owns the shard."""
    errors: list[BaseException] = []

    def live(who: int) -> None:
        try:
            table = place.table()
            barrier.wait(PATIENCE)
            table.open(SHARD)
            first = 1
            while first <= 24:
                last = min(24, first + (who + first) % 5)
                table.append(arrived(range(first, last + 1)), as_they_are)
                first = last + 1
        except BaseException as error:
            errors.append(error)

    barrier = threading.Barrier(6)
    threads = [threading.Thread(target=live, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert place.numbers() == list(range(1, 25))


def test_an_answer_that_was_lost(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats the request, and is told that there is something: its own file, or its own entry."""
    table = written(place, (1, 3))
    create = table._store.create
    monkeypatch.setattr(table._store, "create", lambda key, body: create(key, body) and create(key, body))
    table.append(arrived(range(4, 7)), as_they_are)
    assert place.numbers() == list(range(1, 7))
    assert len(place.entries()) == 3


@pytest.mark.parametrize("happened", [True, False])
def test_a_request_of_which_nobody_knows(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, happened: bool) -> None:
    table = written(place, (1, 3))
    create = table._store.create

    def lost(key: str, body: bytes) -> bool:
        if "_delta_log" in key:
            _ = happened and create(key, body)
            raise StoreError("no answer")
        return create(key, body)

    with monkeypatch.context() as patch:
        patch.setattr(table._store, "create", lost)
        with pytest.raises(StoreError):
            table.append(arrived(range(4, 7)), as_they_are)
    assert table.open(SHARD) == Position("6" if happened else "3", 0)
    table.append(arrived(range(4, 9)), as_they_are)
    assert place.numbers() == list(range(1, 9))


def test_a_refusal_of_nothing_is_tried_again(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """409: another request for it was under way, and has failed. But not for ever."""
    table = written(place, (1, 3))
    create, left = table._store.create, [5]

    def refusing(key: str, body: bytes) -> bool:
        left[0] -= 1
        return create(key, body) if left[0] < 0 else False

    monkeypatch.setattr(table._store, "create", refusing)
    pauses: list[float] = []
    table._pause = pauses.append
    left[0] = 2  # of the file, which is put under another name then
    table.append(arrived(range(4, 7)), as_they_are)
    assert place.numbers() == list(range(1, 7))
    monkeypatch.setattr(table._store, "create", lambda key, body: create(key, body) if "after" in key else False)
    with pytest.raises(StoreError, match="refuses to create an entry of the log 30 times, and there is nothing"):
        table.append(arrived(range(7, 9)), as_they_are)


def test_a_file_that_was_staged_yesterday_is_staged_again(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(place, (1, 3))
    now = module.running_seconds()
    between(table, monkeypatch, lambda: written(place, (1, 2), shard=OTHER))
    table._pause = lambda _: monkeypatch.setattr(module, "running_seconds", lambda: now + 24 * 3600)
    makes: list[int] = []
    table.append(arrived(range(4, 7)), lambda rows: (makes.append(1), rows.table())[1])
    assert len(makes) == 2
    assert place.numbers() == [1, 1, 2, 2, 3, 4, 5, 6]


# ---- DeltaSink, and others' work --------------------------------------------------------------------------------


def test_a_delta_sink_and_a_delta_table_write_one_table(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    sink: Any = DeltaSink(place.url)
    sink.open(SHARD)
    sink.write(sink_rows(1, 3), SESSION)
    table = place.table()
    assert table.open(SHARD) == Position("3", 0)
    table.append(arrived(range(2, 7)), as_they_are)
    assert sink.write(sink_rows(4, 8), SESSION) == Position("8", 0)
    table.append(arrived(range(7, 11)), as_they_are)
    assert place.numbers() == list(range(1, 11))
    table.give_up(Position("20", 0))
    sink.open(SHARD)
    assert sink.given_up() == Position("20", 0)
    assert inspect_table(place.url).ok


def test_others_work_on_the_table(place: DeltaPlace) -> None:
    table = written(place, (1, 3), (4, 6))
    place.handle().optimize.compact()
    table.append(arrived(range(7, 9)), as_they_are)
    place.handle().alter.add_columns([deltalake.Field("note", PrimitiveType("string"))])
    table.append(arrived(range(9, 11)), as_they_are)
    place.handle().create_checkpoint()
    table.append(arrived([11]), as_they_are)
    place.handle().vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.append(arrived([12]), as_they_are)
    place.handle().delete("sequenceNumber = '2'")
    table.append(arrived([13]), as_they_are)
    assert place.numbers() == [1, *range(3, 14)]
    assert place.table().open(SHARD) == Position("13", 0)


def test_checkpoints_each_hundredth_commit(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 4)
    table = written(place, *((number, number) for number in range(1, 11)))
    names = [each.key.rpartition("/")[2] for each in place.store.files("_delta_log")]
    assert [name for name in names if "checkpoint" in name] == [
        *(f"{version:020d}.checkpoint.parquet" for version in (4, 8)),
        "_last_checkpoint",
    ]
    again = place.table()
    assert again.open(SHARD) == Position("10", 0)
    assert again._head.snapshot == table._head.snapshot  # as it was moved on, and as it was opened
    assert place.numbers() == list(range(1, 11))
    handle = place.handle()
    assert handle.version() == 10
    handle.cleanup_metadata()


def test_a_checkpoint_that_fails_does_not_matter(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 2)
    table = written(place, (1, 1))

    def fails(key: str, body: bytes) -> None:
        raise StoreError("503")

    monkeypatch.setattr(table._store, "replace", fails)
    table.append(arrived([2]), as_they_are)
    assert "no checkpoint of its log was made" in caplog.text
    assert place.numbers() == [1, 2]


@pytest.mark.parametrize("interval", ["0", "x", "2"])
def test_an_interval_of_checkpoints_that_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, interval: str
) -> None:
    place = delta_posix(tmp_path)
    deltalake.DeltaTable.create(place.url, schema(), partition_by=["date"])
    edited(Path(place.url), "metaData", {"configuration": {"delta.checkpointInterval": interval}})
    written(place, (1, 2), (3, 4))
    assert place.numbers() == [1, 2, 3, 4]
    assert ("no checkpoint" in caplog.text) is (interval == "x")


def test_the_log_is_cleaned_up(place: DeltaPlace) -> None:
    """Entries that a checkpoint has are gone: the head is read again. A name that is free there counts for nothing."""
    table, sleeper = written(place, (1, 3)), written(place, (1, 3))
    table.append(arrived(range(4, 7)), as_they_are)
    place.handle().create_checkpoint()
    for name in place.entries():
        place.store.remove(f"_delta_log/{name}")
    assert sleeper.append(arrived(range(4, 9)), as_they_are) == Position("8", 0)
    table.append(arrived(range(7, 11)), as_they_are)
    assert place.numbers() == list(range(1, 11))


@pytest.mark.parametrize("kept", [0, 1], ids=["all of it", "up to the sleeper's next version"])
def test_a_commit_into_a_log_that_is_cleaned_up_meanwhile(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    table, sleeper = written(place, (1, 3)), written(place, (1, 3))

    def clean_up() -> None:
        table.append(arrived(range(4, 7)), as_they_are)
        table.append(arrived(range(7, 9)), as_they_are)
        place.handle().create_checkpoint()
        entries = place.entries()
        for name in entries[: len(entries) - kept]:
            place.store.remove(f"_delta_log/{name}")
        if place.storage is None and kept == 0:  # on a disk not even the file that names the checkpoint is needed
            place.store.remove(f"_delta_log/{LAST_CHECKPOINT}")

    between(sleeper, monkeypatch, clean_up)
    assert sleeper.append(arrived(range(4, 12)), as_they_are) == Position("11", 0)
    assert place.numbers() == list(range(1, 12))
    assert place.entries() == [f"{version:020d}.json" for version in range(4 - kept, 5)]
    assert place.table().open(SHARD) == Position("11", 0)


def test_a_commit_into_a_log_while_it_is_cleaned_up(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake removes entries in any order: here the next version's is gone, and that before it not yet."""
    table, sleeper = written(place, (1, 3)), written(place, (1, 3))

    def clean_up() -> None:
        table.append(arrived(range(4, 7)), as_they_are)
        table.append(arrived(range(7, 9)), as_they_are)
        place.handle().create_checkpoint()
        for version in (0, 2):
            place.store.remove(entry_key(version))

    between(sleeper, monkeypatch, clean_up)
    assert sleeper.append(arrived(range(4, 7)), as_they_are) == Position("8", 0)
    assert place.numbers() == list(range(1, 9))
    assert place.entries() == [f"{version:020d}.json" for version in (1, 3)]
    assert place.table().open(SHARD) == Position("8", 0)


def test_a_checkpoint_right_after_a_commit_after_a_clean_up(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry counts, though that before it is gone."""
    written(place, (1, 3)), written(place, (1, 2), shard=OTHER)
    place.handle().create_checkpoint()
    table, other = place.table(), place.table()
    table.open(SHARD), other.open(OTHER)
    for name in place.entries():
        place.store.remove(f"_delta_log/{name}")
    read, left = type(table._head._store).read, [None]

    def checkpointed(store: Any, key: str, most: int) -> bytes | None:
        if key.endswith(LAST_CHECKPOINT) and left and place.entries():
            left.pop()
            other.append(arrived([3]), as_they_are)
            place.handle().create_checkpoint()
        return read(store, key, most)

    with monkeypatch.context() as patch:
        patch.setattr(type(table._head._store), "read", checkpointed)
        assert table.append(arrived([4, 5]), as_they_are) == Position("5", 0)
    assert place.entries() == [f"{version:020d}.json" for version in (3, 4)]
    assert place.table().open(SHARD) == Position("5", 0)


@pytest.mark.parametrize("kept", range(3))
def test_a_commit_without_files_into_a_log_that_is_cleaned_up(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """A transformation has left nothing of the records; a clean-up has taken a day at least."""
    table, sleeper = written(place, (1, 3)), written(place, (1, 3))

    def clean_up() -> None:
        table.append(arrived(range(4, 7)), as_they_are)
        table.append(arrived(range(7, 9)), as_they_are)
        place.handle().create_checkpoint()
        for version in {0: range(3), 1: (0, 2), 2: (2,)}[kept]:
            place.store.remove(entry_key(version))

        monkeypatch.setattr(head_module, "time", SimpleNamespace(time=lambda: time.time() + 86400))

    between(sleeper, monkeypatch, clean_up)
    assert sleeper.append(arrived(range(4, 7)), lambda rows: rows.table().slice(0, 0)) == Position("8", 0)
    assert place.numbers() == list(range(1, 9))
    assert entry_key(2).rpartition("/")[2] not in place.entries()
    assert place.table().open(SHARD) == Position("8", 0)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_clean_up_between_the_reading_of_an_entry_and_its_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_open: bool
) -> None:
    place = delta_posix(tmp_path)
    table, other = written(place, (1, 2)), written(place, (1, 2), shard=OTHER)
    settle, left = type(place.store).settle, [None]

    def cleaned_up(store: Any, key: str, *others: str) -> None:
        if left:
            left.pop()
            other.append(arrived([5]), as_they_are)
            place.handle().create_checkpoint()
            for name in place.entries()[:-1]:
                place.store.remove(f"_delta_log/{name}")
        settle(store, key, *others)

    other.append(arrived([3, 4]), as_they_are)
    if not is_open:
        table = place.table()
    with monkeypatch.context() as patch:
        patch.setattr(type(place.store), "settle", cleaned_up)
        if not is_open:
            assert table.open(SHARD) == Position("2", 0)
        assert table.append(arrived([3, 4]), as_they_are) == Position("4", 0)
    assert not left
    assert place.table().open(OTHER) == Position("5", 0)
    assert place.numbers() == [1, 1, 2, 2, 3, 3, 4, 4, 5]


@pytest.mark.parametrize("has_files", [False, True])
def test_a_checkpoint_by_others_right_after_a_commit(
    place: DeltaPlace, monkeypatch: pytest.MonkeyPatch, *, has_files: bool
) -> None:
    """The entry is one of the log, also if it has no files."""
    table, other = written(place, (1, 2)), written(place, (1, 2), shard=OTHER)
    create, left = type(table._head._store).create, [None]

    def followed(store: Any, key: str, body: bytes) -> bool:
        done = create(store, key, body)
        if left and key.startswith("_delta_log"):
            left.pop()
            other.append(arrived([3]), as_they_are)
            place.handle().create_checkpoint()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(type(table._head._store), "create", followed)
        transform = as_they_are if has_files else lambda rows: rows.table().slice(0, 0)
        assert table.append(arrived([3, 4]), transform) == Position("4", 0)
    assert entry_key(3).rpartition("/")[2] in place.entries()
    assert place.table().open(SHARD) == Position("4", 0)


def test_a_file_that_is_rewritten_right_after_its_commit(place: DeltaPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint has not the file, but what OPTIMIZE has made of it: the entry stays."""
    table = written(place, (1, 2), (3, 4))
    create, left = type(table._head._store).create, [None]

    def optimized(store: Any, key: str, body: bytes) -> bool:
        done = create(store, key, body)
        if left and key.startswith("_delta_log"):
            left.pop()
            place.handle().optimize.compact()
            place.handle().create_checkpoint()
        return done

    with monkeypatch.context() as patch:
        patch.setattr(type(table._head._store), "create", optimized)
        assert table.append(arrived([5, 6]), as_they_are) == Position("6", 0)
    assert entry_key(3).rpartition("/")[2] in place.entries()
    assert place.table().open(SHARD) == Position("6", 0)
    assert place.numbers() == list(range(1, 7))


# ---- columns ----------------------------------------------------------------------------------------------------


def priced(rows: Any) -> pa.Table:
    table = rows.table()
    return table.append_column("price", pa.array([1.5] * table.num_rows))


def test_a_column_that_the_table_does_not_have(place: DeltaPlace) -> None:
    table = written(place, (1, 3))
    files = len(place.files())
    with pytest.raises(SinkError, match=r'has no column price: evolve="add", or drop it in transform'):
        table.append(arrived(range(4, 7)), priced)
    assert len(place.files()) == files
    evolving = place.table(evolve="add")
    evolving.open(SHARD)
    evolving.append(arrived(range(4, 7)), priced)
    table.append(arrived(range(7, 9)), as_they_are)
    assert place.read().sort_by("sequenceNumber")["price"].to_pylist() == [None] * 3 + [1.5] * 3 + [None] * 2
    again = place.table(evolve="add")
    again.open(SHARD)
    with pytest.raises(SinkError, match="its column price is double, and string was to be written"):
        again.append(arrived([9]), lambda rows: rows.table().append_column("price", pa.array(["x"])))
    with pytest.raises(SinkError, match="it has a column price, and Price was to be written"):
        again.append(arrived([9]), lambda rows: rows.table().append_column("Price", pa.array([1.0])))
    assert place.numbers() == list(range(1, 9))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([1], pa.duration("s")), "its type .*none of Delta's"),
        (pa.array([1], pa.timestamp("ns", "UTC")), "timestamp_nanos is none of Delta's"),
        (pa.nulls(1), "void is none of Delta's"),
        (pa.array([200], pa.uint8()), "uint8 as Delta's int8"),
    ],
)
def test_types_that_delta_has_not(tmp_path: Path, column: pa.Array, said: str) -> None:
    table = written(delta_posix(tmp_path))
    with pytest.raises(SinkError, match=f"column x: .*{said}"):
        table.append(arrived([1]), lambda rows: rows.table().append_column("x", column))
    assert not (tmp_path / "table" / "_delta_log").exists()


def test_types_that_are_converted(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    columns = {
        "seconds": pa.array([1], pa.timestamp("s", "Europe/Berlin")),
        "words": pa.array(["x"]).dictionary_encode(),
        "large": pa.array(["y"], pa.large_string()),
        "small": pa.array([100], pa.uint8()),
    }

    def make(rows: Any) -> pa.Table:
        table = rows.table()
        for name, column in columns.items():
            table = table.append_column(name, column)
        return table

    written(place).append(arrived([1]), make)
    (row,) = place.read().select(["words", "large", "small", "seconds"]).to_pylist()
    assert (row["words"], row["large"], row["small"], row["seconds"].timestamp()) == ("x", "y", 100, 1)


# ---- tables that are refused ------------------------------------------------------------------------------------


def schema(*more: deltalake.Field) -> deltalake.Schema:
    kinds = {"data": "binary", "partitionKey": "string", "sequenceNumber": "string", "subSequenceNumber": "long"}
    kinds |= {"approximateArrivalTimestamp": "timestamp", "stream": "string", "shard": "string", "date": "date"}
    return deltalake.Schema([*(deltalake.Field(name, PrimitiveType(kind)) for name, kind in kinds.items()), *more])


def edited(folder: Path, action: str, change: dict[str, Any]) -> None:
    path = folder / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for each in actions:
        each.get(action, {}).update(change)
    path.write_text("".join(f"{json.dumps(each)}\n" for each in actions))


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, dict[str, Any]] | None, str]] = {
    "not null": ({"schema": schema(deltalake.Field("n", PrimitiveType("long"), False))}, None, "n is NOT NULL"),
    "other partitions": ({"partition_by": ["partitionKey"]}, None, "and not only by stream, shard, date"),
    "forgetful": (
        {"configuration": {"delta.setTransactionRetentionDuration": "interval 7 days"}},
        None,
        "would make it forget the positions",
    ),
    "features": (
        {},
        ("protocol", {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}),
        "features that are unknown here: rowTracking",
    ),
    "newer": ({}, ("protocol", {"minReaderVersion": 4, "minWriterVersion": 8}), "its protocol, 4 and 8, is newer"),
    "mapped": ({}, ("metaData", {"configuration": {"delta.columnMapping.mode": "name"}}), "other names in its files"),
    "constraint": ({}, ("metaData", {"configuration": {"delta.constraints.late": "1 < 2"}}), "its constraint late"),
}


@pytest.mark.parametrize(("options", "edit", "why"), REFUSED.values(), ids=REFUSED)
def test_a_table_whose_rules_nobody_would_keep(tmp_path: Path, options: Any, edit: Any, why: str) -> None:
    place = delta_posix(tmp_path)
    deltalake.DeltaTable.create(place.url, **({"schema": schema(), "partition_by": ["date"]} | options))
    if edit is not None:
        edited(Path(place.url), *edit)
    with pytest.raises(SinkError, match=why):
        written(place, (1, 3))
    assert place.entries() == [f"{0:020d}.json"]
    assert not list(Path(place.url).rglob("*.parquet"))


def test_a_table_made_by_others_may_have_more_columns(place: DeltaPlace) -> None:
    store: Any = place.store
    options = None if place.storage is None else store.library_options()
    more = deltalake.Field("note", PrimitiveType("string"))
    deltalake.DeltaTable.create(place.url, schema(more), partition_by=["date"], storage_options=options)
    written(place, (1, 3))
    assert place.numbers() == [1, 2, 3]


def test_tables_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "sink" / "_commits").mkdir(parents=True)
    with pytest.raises(SinkError, match="is a ParquetSink's: give DeltaTable another folder"):
        DeltaTable(tmp_path / "sink").open(SHARD)
    ParquetTable(tmp_path / "table").open(SHARD)
    with pytest.raises(SinkError, match="is a ParquetTable's"):
        DeltaTable(tmp_path / "table").open(SHARD)


# ---- identity and damage ----------------------------------------------------------------------------------------


def test_another_table_in_its_place(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    table = written(place, (1, 3))
    Path(place.url).rename(tmp_path / "before")
    with pytest.raises(SinkError, match="the table was removed"):
        table.append(arrived(range(4, 7)), as_they_are)
    written(place, (1, 2), (3, 5))
    for call in (lambda: table.append(arrived(range(4, 7)), as_they_are), lambda: table.open(SHARD)):
        with pytest.raises(SinkError, match=r"is another table now \(id .*, was .*\): start again"):
            call()
    assert place.numbers() == [1, 2, 3, 4, 5]


def test_a_table_that_went_back(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    table = written(place, (1, 3))
    shutil.copytree(place.url, tmp_path / "copy")
    table.append(arrived(range(4, 7)), as_they_are)
    shutil.rmtree(place.url)
    shutil.copytree(tmp_path / "copy", place.url)
    with pytest.raises(SinkError, match="its log had the version 2, and ends at 1 now: entries are gone"):
        table.append(arrived(range(7, 9)), as_they_are)
    written(place, (1, 3), (4, 4), (5, 8))
    for _ in range(2):
        with pytest.raises(SinkError, match="is another entry than the one that this writer has seen"):
            table.append(arrived(range(9, 11)), as_they_are)
        with pytest.raises(SinkError, match="is another entry than the one that this writer has seen"):
            table.open(SHARD)
    assert place.numbers() == list(range(1, 9))


def test_a_table_that_is_restored(place: DeltaPlace) -> None:
    table = written(place, (1, 3), (4, 6))
    place.handle().restore(1)
    for _ in range(2):
        with pytest.raises(SinkError, match=r"version 3 has set the table back .*RESTORE.* to go on after 6\.0"):
            table.append(arrived(range(7, 9)), as_they_are)
    written(place, (7, 9))
    assert place.numbers() == [1, 2, 3, 7, 8, 9]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "damaged, 0 bytes"),
        (b'{"commitInfo":{}', "cut off"),
        (b'{"txn":{"appId":7}}', "its txn has no appId"),
        (b'{"metaData":{"id":"x"}}', "its metaData has no format"),
        (
            b'{"commitInfo":{}}\n{"txn":{"appId":"fastkcl/clicks/shardId-000000000000/sequence-number/0","version":-1}}',
            r"damaged: pieces \[-1",
        ),
    ],
)
def test_an_entry_that_is_damaged(tmp_path: Path, content: bytes, said: str) -> None:
    place = delta_posix(tmp_path)
    table = written(place, (1, 3))
    (Path(place.url) / "_delta_log" / f"{2:020d}.json").write_bytes(content)
    for call in (lambda: table.append(arrived(range(4, 7)), as_they_are), lambda: place.table().open(SHARD)):
        with pytest.raises(SinkError, match=said):
            call()


def test_an_entry_that_is_missing(place: DeltaPlace) -> None:
    written(place, (1, 3), (4, 6))
    place.store.remove(f"_delta_log/{1:020d}.json")
    with pytest.raises(SinkError, match=r"0001\.json: missing, and there are later ones"):
        place.table().open(SHARD)


def test_a_damaged_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aws: Any) -> None:
    """On POSIX it is set aside, as a power cut leaves it; on S3 nothing of ours can have cut it, and it is named."""
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 4)
    for place in (delta_posix(tmp_path), delta_s3(aws)):
        written(place, *((number, number) for number in range(1, 7)))
        place.store.replace(f"_delta_log/{4:020d}.checkpoint.parquet", b"PAR1 no more PAR1")
        if place.storage is None:
            assert place.table().open(SHARD) == Position("6", 0)
            assert place.numbers() == list(range(1, 7))
        else:
            with pytest.raises(SinkError, match="a damaged checkpoint"):
                place.table().open(SHARD)


# ---- notes, options ---------------------------------------------------------------------------------------------


def test_what_was_given_up_is_noted(place: DeltaPlace) -> None:
    table = written(place, (1, 3))
    assert table.given_up() is None
    for upto in ("9", "10", "7"):
        table.give_up(Position(upto, 0))
    again = place.table()
    again.open(SHARD)
    assert again.given_up() == Position("10", 0)


def test_options_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: Any = "date"
    for wrong in ("date", ["hour"], ["date", "date"]):
        with pytest.raises(ValueError, match="must be some of stream, shard, date, each once"):
            DeltaTable(tmp_path, partition_by=wrong)
    with pytest.raises(ValueError, match="evolve='yes': must be 'refuse' or 'add'"):
        DeltaTable(tmp_path, evolve="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"storage= is for s3:// URLs"):
        DeltaTable(tmp_path, storage=S3Storage())
    with pytest.raises(ValueError, match="DeltaTable needs a folder on a POSIX file system, not gs://"):
        DeltaTable("gs://lake/clicks")
    with pytest.raises(ValueError, match="DeltaTable needs the name of a stream"):
        DeltaTable(tmp_path).open(Shard("", "x"))
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(ValueError, match="AWS_S3_ALLOW_UNSAFE_RENAME is set"):
        DeltaTable("s3://lake/clicks")
