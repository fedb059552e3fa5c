"""Shared commits of one host: one entry of the log for several shards, and a folder that is not believed."""

from __future__ import annotations

import json
import logging
import os
import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import DeltaPlace, delta_posix, delta_s3
from fastkcl import Position
from fastkcl.tables import DeltaTable, Shard
from fastkcl.tables.base import SinkError
from fastkcl.tables.delta.group import add_action, checked, files_of, sizes_of
from fastkcl.tables.group import Answer, Member, Outcome, Request, Turn, choose
from fastkcl.tables.group_folder import FolderError, Meeting, PosixFolder, bytes_of, request_of
from table_helpers import arrived, as_they_are
from waiting import PATIENCE, wait_until

SHARDS = [Shard("clicks", f"shardId-{number:012}") for number in range(6)]
SHARD = SHARDS[0]
KEY = "date=2026-11-22/after-3.0-000000000000000000000001.parquet"
ADD = add_action(KEY, {"date": "2026-11-22"}, 100, 2, 1_700_000_000_000)
REQUEST = Request(
    "0" * 24, "table-1", SHARD, Position("3", 0), Position("5", 0), 2, files_of([ADD], [{"name": "data"}], ["date"])
)


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> DeltaPlace:
    return delta_posix(tmp_path) if request.param == "posix" else delta_s3(request.getfixturevalue("aws"))


# ---- decisions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waited", "outcome", "locked", "turn"),
    [
        (0.0, None, False, Turn.WAIT),
        (2.9, None, False, Turn.WAIT),
        (3.0, None, False, Turn.ALONE),
        (9.0, None, True, Turn.COMMIT),
        (0.0, Outcome.AGAIN, True, Turn.COMMIT),
        (0.0, Outcome.COMMITTED, True, Turn.LOOK),
        (9.0, Outcome.PASSED, False, Turn.LOOK),
        (0.0, Outcome.REFUSED, True, Turn.ALONE),
    ],
)
def test_turns(waited: float, outcome: Outcome | None, locked: bool, turn: Turn) -> None:
    answer = None if outcome is None else Answer(REQUEST.id, outcome)
    assert Member(100.0).turn(100.0 + waited, answer, locked=locked) is turn


def test_one_request_a_shard_is_chosen() -> None:
    def position(shard: Shard) -> Position | None:
        if shard == SHARDS[2]:
            raise SinkError("damaged")
        return Position("3", 0)

    requests = [
        REQUEST,
        replace(REQUEST, id="twin", upto=Position("9", 0)),
        replace(REQUEST, id="other", shard=SHARDS[1]),
        replace(REQUEST, id="old", shard=SHARDS[3], after=None),
        replace(REQUEST, id="damaged", shard=SHARDS[2]),
        replace(REQUEST, id="elsewhere", shard=SHARDS[4], table="table-2"),
    ]
    chosen, answers = choose(requests, "table-1", position)
    assert [each.id for each in chosen] == [REQUEST.id, "other"]
    assert {each.id: each.outcome for each in answers} == {
        "twin": Outcome.AGAIN,
        "old": Outcome.PASSED,
        "damaged": Outcome.REFUSED,
        "elsewhere": Outcome.REFUSED,
    }


# ---- what others leave ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("each_way")
def test_a_sound_request_is_taken() -> None:
    assert request_of(bytes_of(REQUEST))[1] == REQUEST
    assert checked(REQUEST, ["date"]) == [{"name": "data"}]


def changed(**new: Any) -> Request:
    return replace(REQUEST, files=files_of([{"add": {**ADD["add"], **new}}], [], ["date"]))


@pytest.mark.parametrize(
    "request_",
    [
        changed(path="../elsewhere/after-3.0-000000000000000000000001.parquet"),
        changed(path="date=2026-11-22/../../after-3.0-000000000000000000000001.parquet"),
        changed(path="s3://other/after-3.0-000000000000000000000001.parquet"),
        changed(path="/etc/passwd"),
        changed(path=KEY.replace("3.0", "4.0")),
        changed(path=KEY + "%00"),
        changed(partitionValues={"date": "2026-11-23"}),
        changed(partitionValues={"date": "../.."}),
        changed(partitionValues={}),
        changed(size=-1),
        changed(size=True),
        changed(size=1 << 40),
        changed(stats="[" * 100_000),
        changed(stats='{"numRecords": -2}'),
        changed(dataChange=False),
        changed(deletionVector={}),
        replace(REQUEST, files=files_of([ADD, ADD], [], ["date"])),
        replace(REQUEST, files=files_of([{"remove": {}}], [], ["date"])),
        replace(REQUEST, files=files_of([ADD], [], ["shard"])),
        replace(REQUEST, files=None),
        replace(REQUEST, files=[1]),
    ],
)
def test_hostile_requests_are_refused(request_: Request) -> None:
    with pytest.raises(ValueError, match=r".+"):
        checked(request_, ["date"])


def spoiled(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A request with a digest that is right, as a later version or somebody else might leave it."""
    from fastkcl.tables import group_folder

    value = json.loads(bytes_of(REQUEST).partition(b"\n")[2])
    change(value)
    return group_folder._sealed(value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes_of(REQUEST)[:-1],
        bytes_of(REQUEST).replace(b"clicks", b"clocks"),
        spoiled(lambda value: value.update(wall=value["wall"] - 3700)),
        spoiled(lambda value: value.update(running=value["running"] - 3700)),
        spoiled(lambda value: value.update(boot="another")),
        spoiled(lambda value: value.update(wall="now")),
        spoiled(lambda value: value.update(rows=0)),
        spoiled(lambda value: value.update(upto="3.0")),
        spoiled(lambda value: value.update(upto="start")),
        spoiled(lambda value: value.update(after="x")),
        spoiled(lambda value: value.update(id="../lock")),
        spoiled(lambda value: value.update(stream="")),
        spoiled(lambda value: value.pop("files")),
    ],
)
def test_damaged_and_old_requests_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        request_of(body)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("clock", ["wall", "running"])
def test_old_requests_are_refused_by_either_clock(clock: str) -> None:
    """Where there is no id of the system's start, too."""
    request_of(spoiled(lambda value: value.update({clock: value[clock] - 3500})))
    with pytest.raises(ValueError, match="older than an hour"):
        request_of(spoiled(lambda value: value.update({clock: value[clock] - 3700})))


def meeting_of(place: DeltaPlace, do: Callable[[Meeting], Any]) -> Any:
    with PosixFolder(place.store.identity).opened() as meeting:
        return do(meeting)


def test_rubbish_in_the_folder_is_passed_over_and_removed(tmp_path: Path, runtime: Path) -> None:
    place = delta_posix(tmp_path)
    opened(place, SHARD).append(arrived([1, 2]), as_they_are)
    (folder,) = (runtime / "fastkcl").iterdir()
    (folder / f"{'1' * 24}.request").write_bytes(b"rubbish")
    (folder / f"{'2' * 24}.request").symlink_to("/etc/passwd")
    os.mkfifo(folder / f"{'3' * 24}.request")
    old = folder / f"{'4' * 24}.answer"
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    opened(place, SHARD).append(arrived([3]), as_they_are)
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert place.numbers() == [1, 2, 3]


# ---- commits ----------------------------------------------------------------------------------------------------


def opened(place: DeltaPlace, shard: Shard, **options: Any) -> DeltaTable:
    table = place.table(share_commits=True, **options)
    table.open(shard)
    return table


def test_one_entry_commits_what_others_have_left(place: DeltaPlace) -> None:
    """Also a request whose child has died; of a zombie and its successor one."""
    tables = [opened(place, shard) for shard in SHARDS[:3]]
    for table in tables:
        table.append(arrived([1, 2, 3]), as_they_are)
    before = len(place.entries())

    def left(table: DeltaTable, numbers: list[int]) -> Request:
        snapshot = table._moved_on([])
        staged = table._stage(arrived(numbers), as_they_are)
        return staged.request(snapshot.id, table._shard_opened)

    requests = [left(tables[1], [4]), left(tables[1], [4, 5]), left(tables[2], [4, 5])]
    for request in requests:
        meeting_of(place, lambda meeting, request=request: meeting.leave(request))
    tables[0].append(arrived([4]), as_they_are)
    assert len(place.entries()) == before + 1
    told = place.handle().history(1)[0]["fastkcl"]
    assert [(each["shard"], each["upto"]) for each in told][0] == (SHARD.shard_id, "4.0")
    assert len(told) == 3
    answers = [meeting_of(place, lambda meeting, each=each: meeting.answer(each.id)) for each in requests]
    assert sorted("none" if each is None else each.outcome.value for each in answers) == [
        "committed",
        "committed",
        "none",
    ]
    assert tables[2].append(arrived([4, 5, 6]), as_they_are) == Position("6", 0)
    assert tables[1].append(arrived([4, 5, 6]), as_they_are) == Position("6", 0)
    assert place.numbers() == sorted([1, 2, 3, 4] + [1, 2, 3, 4, 5, 6] * 2)


def left_by(place: DeltaPlace, table: DeltaTable, numbers: list[int]) -> tuple[Request, str]:
    """The request that a child has left, and its file."""
    snapshot = table._moved_on([])
    request = table._stage(arrived(numbers), as_they_are).request(snapshot.id, table._shard_opened)
    meeting_of(place, lambda meeting: meeting.leave(request))
    (key,) = sizes_of(request)
    return request, key


@pytest.mark.parametrize("body", [None, b"PAR1"], ids=["gone", "cut off"])
def test_a_request_of_a_dead_child_whose_file_is_gone_is_not_committed(place: DeltaPlace, body: bytes | None) -> None:
    """VACUUM has taken it, or the table was restored from a copy: its records are delivered again."""
    tables = [opened(place, shard) for shard in SHARDS[:3]]
    for table in tables:
        table.append(arrived([1, 2, 3]), as_they_are)
    lost, key = left_by(place, tables[1], [4, 5])
    whole, _ = left_by(place, tables[2], [4])
    place.store.remove(key)
    if body is not None:
        place.store.create(key, body)
    tables[0].append(arrived([4]), as_they_are)
    answer = meeting_of(place, lambda meeting: meeting.answer(lost.id))
    assert answer.outcome is Outcome.REFUSED
    assert f"{key}: it has {'no' if body is None else 4} bytes now, and had" in answer.why
    assert meeting_of(place, lambda meeting: meeting.answer(whole.id)).outcome is Outcome.COMMITTED
    assert place.numbers() == sorted([1, 2, 3, 4] * 2 + [1, 2, 3])
    assert opened(place, SHARDS[1]).append(arrived([4, 5]), as_they_are) == Position("5", 0)
    assert place.numbers() == sorted([1, 2, 3, 4] * 2 + [1, 2, 3, 4, 5])


def test_a_child_whose_file_is_gone_while_it_waits_writes_it_again(place: DeltaPlace) -> None:
    table = opened(place, SHARD)
    table.append(arrived([1, 2, 3]), as_they_are)
    made: list[Any] = []

    def wait(meeting: Meeting) -> None:
        lock = meeting.lock()
        assert lock is not None
        with lock:
            thread.start()
            (request,) = wait_until(meeting.requests, "the child's request")
            (key,) = sizes_of(request)
            place.store.remove(key)
            meeting.reply(Answer(request.id, Outcome.REFUSED, "its file is gone"))

    def append() -> None:
        made.append(table.append(arrived([4, 5]), as_they_are))

    thread = threading.Thread(target=append)
    meeting_of(place, wait)
    thread.join(PATIENCE)
    assert made == [Position("5", 0)]
    assert place.numbers() == [1, 2, 3, 4, 5]


def test_six_shards_at_once(place: DeltaPlace) -> None:
    opened(place, SHARD)
    errors: list[BaseException] = []

    def live(shard: Shard) -> None:
        try:
            table = opened(place, shard)
            barrier.wait(PATIENCE)
            for number in range(1, 13, 2):
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
    assert place.numbers() == sorted([*range(1, 13)] * 6)
    assert len(place.entries()) < 1 + 36  # some were together


@pytest.mark.parametrize("fault", ["held", "file", "open to others", "another user's", "full"])
def test_a_folder_that_is_of_no_use(
    tmp_path: Path, runtime: Path, fault: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place = delta_posix(tmp_path)
    table = opened(place, SHARD)
    assert table._combiner is not None
    times = iter(range(0, 1000, 2))
    table._combiner.clock = lambda: float(next(times))  # 2 s between two looks
    if fault == "file":
        (runtime / "fastkcl").write_bytes(b"")
    elif fault == "open to others":
        (runtime / "fastkcl").mkdir(mode=0o755)
    elif fault == "another user's":
        user = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
    elif fault == "full":
        monkeypatch.setattr(PosixFolder, "opened", full)
    with ExitStack() as stack:
        if fault == "held":
            meeting = stack.enter_context(PosixFolder(place.store.identity).opened())
            assert stack.enter_context(meeting.lock())
        with caplog.at_level(logging.WARNING, "fastkcl"):
            table.append(arrived([1, 2]), as_they_are)
            table.append(arrived([3]), as_they_are)
    assert place.numbers() == [1, 2, 3]
    assert sum("commits alone" in record.message for record in caplog.records) == (fault != "held")


def test_a_fork_of_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    with PosixFolder(str(tmp_path)).opened() as meeting:
        held = meeting.lock()
        assert held is not None
        assert meeting.lock() is None
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads
            process = os.fork()
        if process == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        held.close()
        again = meeting.lock()
        os.close(writer)
        os.close(reader)
        os.waitpid(process, 0)
        assert again is not None
        again.close()


def full(_: object) -> Any:
    raise FolderError("[Errno 28] No space left on device")


def test_new_columns_are_added_alone(tmp_path: Path) -> None:
    place = delta_posix(tmp_path)
    opened(place, SHARD).append(arrived([1]), as_they_are)
    table = opened(place, SHARD, evolve="add")
    table.append(arrived([2]), lambda rows: rows.table().append_column("n", [[1]]))
    assert place.read()["n"].to_pylist().count(1) == 1
    with pytest.raises(SinkError, match="has no column m"):
        opened(place, SHARD).append(arrived([3]), lambda rows: rows.table().append_column("m", [[1]]))
