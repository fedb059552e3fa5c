"""Shared commits of an Iceberg table: one snapshot for several shards, and requests that are not believed."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.tables import IcebergTable, Shard, SinkError
from fastkcl.tables.group import Answer, Outcome, Request
from fastkcl.tables.group_folder import Meeting, PosixFolder, bytes_of, request_of
from fastkcl.tables.iceberg.group import IcebergCommitter, sizes_of
from iceberg_helpers import IcebergPlace, every_place, sql_posix, written
from table_helpers import NOON, arrived, as_they_are
from waiting import PATIENCE, wait_until

SHARDS = [Shard("clicks", f"shardId-{number:012}") for number in range(6)]
SHARD = SHARDS[0]


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture(params=["sql", "sql-s3", "glue", "rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergPlace]:
    with every_place(request, tmp_path) as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> IcebergPlace:
    return sql_posix(tmp_path)


def opened(place: IcebergPlace, shard: Shard, *runs: tuple[int, int], **options: Any) -> IcebergTable:
    return written(place, *runs, shard=shard, share_commits=True, **options)


def staged(table: IcebergTable, numbers: list[int]) -> Request:
    """The request of a child that has not come further."""
    rows = arrived(numbers, [NOON] * len(numbers))
    made = table._storable(rows.table())
    return table._stage(rows, made, table._columns(made.schema))


def meeting_of(table: IcebergTable, do: Callable[[Meeting], Any]) -> Any:
    with PosixFolder(table._head.identity).opened() as meeting:
        return do(meeting)


# ---- commits ----------------------------------------------------------------------------------------------------


def test_one_snapshot_commits_what_others_have_left(place: IcebergPlace) -> None:
    """Also a request whose child has died; of a zombie and its successor one."""
    tables = [opened(place, shard, (1, 3)) for shard in SHARDS[:3]]
    before = len(place.handle().metadata.snapshots)
    requests = [staged(tables[1], [4]), staged(tables[1], [4, 5]), staged(tables[2], [4, 5])]
    for request in requests:
        meeting_of(tables[0], lambda meeting, request=request: meeting.leave(request))
    tables[0].open(SHARD)
    assert tables[0].append(arrived([4]), as_they_are) == Position("4", 0)
    handle = place.handle()
    assert len(handle.metadata.snapshots) == before + 1
    snapshot = handle.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    told = json.loads(snapshot.summary.additional_properties["fastkcl"])
    assert [(each["shard"], each["upto"]) for each in told][0] == (SHARD.shard_id, "4.0")
    assert len(told) == 3
    answers = [meeting_of(tables[0], lambda meeting, each=each: meeting.answer(each.id)) for each in requests]
    outcomes = sorted("none" if each is None else each.outcome.value for each in answers)
    assert outcomes == ["committed", "committed", "none"]
    assert tables[2].append(arrived([4, 5, 6]), as_they_are) == Position("6", 0)
    assert tables[1].append(arrived([4, 5, 6]), as_they_are) == Position("6", 0)
    assert place.numbers() == sorted([1, 2, 3, 4] + [1, 2, 3, 4, 5, 6] * 2)


def test_a_request_of_a_dead_child_whose_file_is_gone_is_not_committed(place: IcebergPlace) -> None:
    """The table was restored from a copy, or an engine has cleaned up: its records are delivered again."""
    tables = [opened(place, shard, (1, 3)) for shard in SHARDS[:3]]
    lost, whole = staged(tables[1], [4, 5]), staged(tables[2], [4])
    for request in (lost, whole):
        meeting_of(tables[0], lambda meeting, request=request: meeting.leave(request))
    (path,) = sizes_of(lost)
    tables[1]._table.io.delete(path)
    tables[0].open(SHARD)
    assert tables[0].append(arrived([4]), as_they_are) == Position("4", 0)
    answer = meeting_of(tables[0], lambda meeting: meeting.answer(lost.id))
    assert answer.outcome is Outcome.REFUSED
    assert f"{path}: it has no bytes now, and had" in answer.why
    assert meeting_of(tables[0], lambda meeting: meeting.answer(whole.id)).outcome is Outcome.COMMITTED
    assert place.numbers() == sorted([1, 2, 3, 4] * 2 + [1, 2, 3])
    assert tables[1].append(arrived([4, 5]), as_they_are) == Position("5", 0)
    assert place.numbers() == sorted([1, 2, 3, 4] * 2 + [1, 2, 3, 4, 5])


def test_a_child_whose_file_is_gone_while_it_waits_writes_it_again(local: IcebergPlace) -> None:
    table = opened(local, SHARD, (1, 3))
    made: list[Any] = []

    def wait(meeting: Meeting) -> None:
        lock = meeting.lock()
        assert lock is not None
        with lock:
            thread.start()
            (request,) = wait_until(meeting.requests, "the child's request")
            (path,) = sizes_of(request)
            Path(path.removeprefix("file://")).unlink()
            meeting.reply(Answer(request.id, Outcome.REFUSED, "its file is gone"))

    def append() -> None:
        made.append(table.append(arrived([4, 5]), as_they_are))

    thread = threading.Thread(target=append)
    meeting_of(table, wait)
    thread.join(PATIENCE)
    assert made == [Position("5", 0)]
    assert local.numbers() == [1, 2, 3, 4, 5]


def test_six_shards_at_once(local: IcebergPlace) -> None:
    opened(local, SHARD)._storable(arrived([1]).table())  # makes the table
    errors: list[BaseException] = []

    def live(shard: Shard) -> None:
        try:
            table = opened(local, shard)
            barrier.wait(PATIENCE)
            for number in range(1, 9, 2):
                table.append(arrived([number, number + 1]), as_they_are)
        except BaseException as error:
            errors.append(error)

    barrier = threading.Barrier(len(SHARDS))
    threads = [threading.Thread(target=live, args=(shard,)) for shard in SHARDS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert local.numbers() == sorted([*range(1, 9)] * 6)
    assert len(local.handle().metadata.snapshots) < 24  # some were together


@pytest.mark.parametrize("fault", ["held", "file", "another user's"])
def test_a_folder_that_is_of_no_use(
    local: IcebergPlace, runtime: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = opened(local, SHARD, (1, 3))
    assert table._combiner is not None
    times = iter(range(0, 1000, 2))
    table._combiner.clock = lambda: float(next(times))  # 2 s between two looks
    with ExitStack() as stack:
        if fault == "file":
            (runtime / "fastkcl").rename(runtime / "aside")
            (runtime / "fastkcl").write_bytes(b"")
        elif fault == "another user's":
            user = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: user + 1)
        else:
            meeting = stack.enter_context(PosixFolder(table._head.identity).opened())
            assert stack.enter_context(meeting.lock())
        with caplog.at_level(logging.WARNING, "fastkcl"):
            table.append(arrived([4, 5]), as_they_are)
            table.append(arrived([6]), as_they_are)
    assert local.numbers() == [1, 2, 3, 4, 5, 6]
    assert sum("commits alone" in record.message for record in caplog.records) == (fault != "held")


def test_new_columns_are_added_alone(local: IcebergPlace) -> None:
    opened(local, SHARD, (1, 1))
    waits = opened(local, SHARDS[1], (1, 1))
    left = staged(waits, [2])
    meeting_of(waits, lambda meeting: meeting.leave(left))
    table = opened(local, SHARD, evolve="add")
    before = len(local.handle().metadata.snapshots)
    table.append(arrived([2]), lambda rows: rows.table().append_column("n", [[1]]))
    assert len(local.handle().metadata.snapshots) == before + 1
    assert local.read()["n"].to_pylist().count(1) == 1
    assert local.numbers() == [1, 1, 2]
    with pytest.raises(SinkError, match="has no column m"):
        opened(local, SHARD).append(arrived([3]), lambda rows: rows.table().append_column("m", [[1]]))
    assert waits.append(arrived([2]), as_they_are) == Position("2", 0)


# ---- what others leave ------------------------------------------------------------------------------------------


def changed(request: Request, **new: Any) -> Request:
    """With something else in its file."""
    (file,) = request.files["files"]
    return replace(request, files={**request.files, "files": [{**file, **new}]})


HOSTILE: dict[str, Callable[[Request], Request]] = {
    "elsewhere": lambda each: changed(each, path="/etc/after-3.0-000000000000000000000001.parquet"),
    "up": lambda each: changed(each, path=path_of(each).replace("/arrival_day", "/x/../arrival_day")),
    "another name": lambda each: changed(each, path=path_of(each).replace("after-3.0", "after-4.0")),
    "escaped": lambda each: changed(each, path=path_of(each) + "%00"),
    "another partition": lambda each: changed(each, partition=["00000000"]),
    "no partition": lambda each: changed(each, partition=[]),
    "no size": lambda each: changed(each, size=-1),
    "a truth": lambda each: changed(each, size=True),
    "too large": lambda each: changed(each, size=1 << 40),
    "no rows": lambda each: changed(each, records=0),
    "more": lambda each: changed(each, more=1),
    "bounds": lambda each: changed(each, lower_bounds=[[1, "no"]]),
    "no path": lambda each: changed(each, path=3),
    "twice": lambda each: replace(each, files={**each.files, "files": each.files["files"] * 2}),
    "columns": lambda each: replace(each, files={**each.files, "columns": [[99, "x", "string"]]}),
    "no columns": lambda each: replace(each, files={**each.files, "columns": 7}),
    "spec": lambda each: replace(each, files={**each.files, "spec": 7}),
    "no files": lambda each: replace(each, files=None),
    "a list": lambda each: replace(each, files=[1]),
    "another table": lambda each: replace(each, table="another"),
}


def path_of(request: Request) -> str:
    path: str = request.files["files"][0]["path"]
    return path


def test_hostile_requests_are_refused(local: IcebergPlace) -> None:
    own, other = opened(local, SHARD, (1, 3)), opened(local, SHARDS[1], (1, 3))
    own.open(SHARD)
    sound = request_of(bytes_of(staged(other, [4, 5])))[1]
    spoiled = [replace(spoil(sound), id=name) for name, spoil in HOSTILE.items()]
    answers = IcebergCommitter(own._head, lambda: None).commit([staged(own, [4]), *spoiled, sound])
    outcomes = {each.id: each.outcome for each in answers[1:-1]}
    assert outcomes == dict.fromkeys(HOSTILE, Outcome.REFUSED)
    assert [answers[0].outcome, answers[-1].outcome] == [Outcome.COMMITTED] * 2
    assert local.numbers() == sorted([1, 2, 3, 4] + [1, 2, 3, 4, 5])
