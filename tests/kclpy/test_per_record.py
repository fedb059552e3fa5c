"""The per-record processor: when it checkpoints, at which position, and the effect of refused checkpoints and failing
records."""

from __future__ import annotations

import base64
import contextlib
import functools
import inspect
import io
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import checkpointers
import kcl_helpers
import pytest
from clocks import Clock
from fastkcl.kclpy import kcl, messages
from fastkcl.kclpy.checkpoint_error import CheckpointError
from fastkcl.kclpy.per_record import PerRecordProcessor
from fastkcl.kclpy.v3.processor import RecordProcessorBase
from hypothesis import given
from hypothesis import strategies as st
from kcl_helpers import Child, process_records
from paths import PROGRAMS

SHARD = "shardId-000000000007"
# As long as the real ones, where comparing as text or as floating point goes wrong.
BASE = 49590338271490256608559692538361571095921575989136588898
RETRYABLE = [
    "ThrottlingException",
    "KinesisClientLibDependencyException",
    "KinesisClientLibIOException",
    "RuntimeException",
]
FINAL = ["InvalidStateException", "IllegalArgumentException", "NullPointerException"]

Place = tuple[int, int | None]
# With the package's own error.
FakeCheckpointer = functools.partial(checkpointers.FakeCheckpointer, kind=CheckpointError)


class Collector(PerRecordProcessor):
    """Notes what it is given; fails at, or asks for a checkpoint at, the sequence numbers it is told."""

    def __init__(self, *, fails: Iterable[int] = (), answers: dict[int, Any] | None = None, **options: Any) -> None:
        self.clock = Clock(1000.0)
        super().__init__(**{"clock": self.clock, "sleep": self.clock.sleep, **options})
        self.fails = set(fails)
        self.answers = answers or {}
        self.seen: list[tuple[Any, ...]] = []
        self.hooks: list[tuple[Any, ...]] = []
        self.seconds_per_record = 0.0

    def process_record(
        self,
        data: bytes | None,
        partition_key: str,
        sequence_number: int,
        sub_sequence_number: int | None,
        arrival_time: datetime | None,
    ) -> Any:
        self.clock.now += self.seconds_per_record
        if sequence_number in self.fails:
            raise KeyError("poison")
        self.seen.append((data, partition_key, sequence_number, sub_sequence_number, arrival_time))
        return self.answers.get(sequence_number)

    def before_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
        self.hooks.append(("before", sequence_number, sub_sequence_number))

    def after_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
        self.hooks.append(("after", sequence_number, sub_sequence_number))

    @property
    def places(self) -> list[Place]:
        return [each[2:4] for each in self.seen]


def record(place: Place | int, data: bytes = b"x") -> messages.Record:
    sequence_number, sub = (place, 0) if isinstance(place, int) else place
    return messages.Record(
        {
            "data": base64.b64encode(data).decode(),
            "partitionKey": "key",
            "sequenceNumber": str(sequence_number),
            "subSequenceNumber": sub,
            "approximateArrivalTimestamp": 1700000000123,
        }
    )


def feed(processor: PerRecordProcessor, checkpointer: Any, *places: Place | int) -> None:
    """A call of process_records with a record at each place."""
    message = {"action": "processRecords", "records": [record(place) for place in places], "millisBehindLatest": 0}
    messages.ProcessRecordsInput(message).dispatch(checkpointer, processor)


def started(**options: Any) -> Collector:
    processor = Collector(**options)
    start(processor)
    return processor


def start(processor: PerRecordProcessor) -> None:
    message = {"action": "initialize", "shardId": SHARD, "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0}
    messages.InitializeInput(message).dispatch(FakeCheckpointer(), processor)  # type: ignore[arg-type]


def end_shard(processor: PerRecordProcessor, checkpointer: Any) -> None:
    messages.ShardEndedInput({"action": "shardEnded"}).dispatch(checkpointer, processor)


def request_shutdown(processor: PerRecordProcessor, checkpointer: Any) -> None:
    messages.ShutdownRequestedInput({"action": "shutdownRequested"}).dispatch(checkpointer, processor)


def lose_lease(processor: PerRecordProcessor) -> None:
    messages.LeaseLostInput({"action": "leaseLost"}).dispatch(FakeCheckpointer(), processor)  # type: ignore[arg-type]


# ---- what process_record is given -------------------------------------------------------------------------------


def test_a_record_is_given_as_its_values() -> None:
    processor = started()
    given = record((BASE, 3), b"\x00\xff payload")
    message = {"action": "processRecords", "records": [given], "millisBehindLatest": 0}
    messages.ProcessRecordsInput(message).dispatch(FakeCheckpointer(), processor)  # type: ignore[arg-type]
    assert processor.seen == [(b"\x00\xff payload", "key", BASE, 3, given.approximate_arrival_timestamp)]
    assert type(processor.seen[0][2]) is int
    assert processor.seen[0][4] == datetime.fromtimestamp(1700000000.123)


def test_is_a_processor_of_version_3() -> None:
    assert isinstance(started(), RecordProcessorBase)
    assert Collector.version == 3


def test_defaults() -> None:
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(PerRecordProcessor.__init__).parameters.items()
        if name not in ("self", "clock", "sleep")
    }
    assert defaults == {
        "checkpoint_retries": 5,
        "checkpoint_error_sleep_seconds": 5,
        "checkpoint_freq_seconds": 60,
        "records_per_checkpoint": 0,
        "on_record_error": "raise",
    }
    processor = PerRecordProcessor()
    assert {name: getattr(processor, name) for name in defaults} == defaults


def test_the_shard_id_is_kept_whole() -> None:
    assert started().shard_id == SHARD


# ---- when it checkpoints ----------------------------------------------------------------------------------------

# options, answers of process_record, seconds that each record takes, and after which of 6 records it checkpoints
TRIGGERS: list[tuple[dict[str, Any], dict[int, Any], float, list[int]]] = [
    ({}, {}, 1, []),
    ({}, {}, 20, [4]),  # 80 s; 60 s are not more than 60 s
    ({}, {}, 20.001, [3, 6]),
    ({"checkpoint_freq_seconds": 60.5}, {}, 61, [1, 2, 3, 4, 5, 6]),
    ({"checkpoint_freq_seconds": 0}, {}, 1e6, []),
    ({"records_per_checkpoint": 2}, {}, 0, [2, 4, 6]),
    ({"records_per_checkpoint": 1}, {}, 0, [1, 2, 3, 4, 5, 6]),
    ({"records_per_checkpoint": 4, "checkpoint_freq_seconds": 0}, {}, 1e6, [4]),
    ({"records_per_checkpoint": 4, "checkpoint_freq_seconds": 25}, {}, 10, [3, 6]),  # time comes first
    ({"records_per_checkpoint": 2, "checkpoint_freq_seconds": 25}, {}, 10, [2, 4, 6]),  # the count does
    ({}, {2: True, 3: True, 6: True}, 0, [2, 3, 6]),
    ({"checkpoint_freq_seconds": 0}, {5: True}, 0, [5]),
    ({"records_per_checkpoint": 3}, {2: True}, 0, [2, 5]),  # any checkpoint starts the count afresh
    ({"checkpoint_freq_seconds": 25}, {2: True}, 10, [2, 5]),  # and the time
    ({}, {1: 1, 2: "yes", 3: False, 4: None}, 0, []),  # only True itself asks
]


@pytest.mark.parametrize("lists", [[6], [1, 1, 1, 1, 1, 1], [4, 2]], ids=str)
@pytest.mark.parametrize(("options", "answers", "seconds", "expected"), TRIGGERS)
def test_when_it_checkpoints(
    options: dict[str, Any], answers: dict[int, Any], seconds: float, expected: list[int], lists: list[int]
) -> None:
    processor = started(answers={BASE + i: answer for i, answer in answers.items()}, **options)
    processor.seconds_per_record = seconds
    checkpointer = FakeCheckpointer()
    numbers = iter(range(1, 7))
    for size in lists:
        feed(processor, checkpointer, *(BASE + next(numbers) for _ in range(size)))
    assert checkpointer.calls == [(str(BASE + i), 0) for i in expected]
    assert len(processor.seen) == 6


def test_a_checkpoint_comes_before_the_next_record() -> None:
    order: list[str] = []

    class Ordered(PerRecordProcessor):
        def process_record(self, data: Any, partition_key: Any, sequence_number: int, *rest: Any) -> bool:
            order.append(f"record {sequence_number}")
            return True

        def after_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
            order.append(f"checkpoint {sequence_number}")

    processor = Ordered()
    start(processor)
    feed(processor, FakeCheckpointer(), 1, 2)
    assert order == ["record 1", "checkpoint 1", "record 2", "checkpoint 2"]


def test_no_records_are_a_chance_to_checkpoint_what_is_new() -> None:
    processor, checkpointer = started(), FakeCheckpointer()
    processor.clock.now += 100
    feed(processor, checkpointer)
    assert checkpointer.calls == []  # nothing was processed
    feed(processor, checkpointer, 1)
    feed(processor, checkpointer, 2)
    assert checkpointer.calls == [("1", 0)]
    processor.clock.now += 61
    feed(processor, checkpointer)
    processor.clock.now += 61
    feed(processor, checkpointer)
    assert checkpointer.calls == [("1", 0), ("2", 0)]


def test_time_counts_from_initialize() -> None:
    processor, checkpointer = Collector(), FakeCheckpointer()
    processor.clock.now += 3600
    start(processor)
    feed(processor, checkpointer, 1)
    assert checkpointer.calls == []


def test_time_runs_from_the_end_of_a_checkpoint() -> None:
    """With its retries it may take longer than the frequency."""
    processor = started(checkpoint_freq_seconds=10)
    checkpointer = FakeCheckpointer("ThrottlingException", "ThrottlingException", "ThrottlingException")
    processor.clock.now += 11
    feed(processor, checkpointer, 1, 2, 3)
    assert checkpointer.calls == [("1", 0)] * 4


class AsksItself(Collector):
    """Decides by itself, and counts how often it is asked."""

    def __init__(self, *answers: bool, **options: Any) -> None:
        super().__init__(**options)
        self.decisions = list(answers)
        self.asked = 0

    def should_checkpoint(self) -> bool:
        self.asked += 1
        return self.decisions.pop(0) if self.decisions else True


def test_an_own_should_checkpoint_is_asked_once_for_each_list() -> None:
    processor, checkpointer = AsksItself(True, False, True), FakeCheckpointer()
    start(processor)
    feed(processor, checkpointer, 1, 2, 3)
    feed(processor, checkpointer, 4, 5)
    feed(processor, checkpointer)
    assert checkpointer.calls == [("3", 0), ("5", 0)]
    assert processor.asked == 3


def test_one_that_is_set_on_the_object_is_asked_as_often() -> None:
    processor, checkpointer = started(), FakeCheckpointer()
    asked: list[int] = []
    processor.should_checkpoint = lambda: not asked.append(1)  # type: ignore[method-assign,func-returns-value]
    feed(processor, checkpointer, 1, 2, 3)
    assert (checkpointer.calls, asked) == ([("3", 0)], [1])


def test_one_that_extends_ours_looks_at_the_end_of_a_list() -> None:
    class ByTimeOrOften(Collector):
        def should_checkpoint(self) -> bool:
            return super().should_checkpoint() or len(self.seen) == 4

    processor, checkpointer = ByTimeOrOften(records_per_checkpoint=2), FakeCheckpointer()
    start(processor)
    for numbers in ((1, 2, 3), (4,), (5,), (6,)):
        feed(processor, checkpointer, *numbers)
    assert checkpointer.calls == [("3", 0), ("4", 0), ("6", 0)]


def test_an_own_should_checkpoint_is_not_asked_of_a_list_that_is_not_done() -> None:
    processor, checkpointer = AsksItself(fails=[2]), FakeCheckpointer()
    start(processor)
    with pytest.raises(KeyError):
        feed(processor, checkpointer, 1, 2, 3)
    assert (checkpointer.calls, processor.asked) == ([], 0)


def test_a_record_that_asks_does_not_wait_for_the_end_of_its_list() -> None:
    processor, checkpointer = AsksItself(False, True, answers={2: True}), FakeCheckpointer()
    start(processor)
    feed(processor, checkpointer, 1, 2, 3)
    feed(processor, checkpointer, 4)
    assert checkpointer.calls == [("2", 0), ("4", 0)]


def test_an_own_should_checkpoint_does_not_go_on_after_the_lease_has_moved() -> None:
    processor, checkpointer = AsksItself(answers={1: True}), FakeCheckpointer("ShutdownException")
    start(processor)
    feed(processor, checkpointer, 1)
    feed(processor, checkpointer, 2)
    assert checkpointer.calls == [("1", 0)]


@pytest.mark.parametrize(
    "method", ["process_record", "should_checkpoint", "before_checkpoint", "after_checkpoint", "checkpoint"]
)
def test_a_method_that_would_only_make_a_coroutine(method: str) -> None:
    """Nothing is processed, and what was delivered is never checkpointed, whoever goes on after the errors."""

    async def deferred(self: Any, *arguments: object) -> None: ...

    processor, checkpointer = type("Deferred", (Collector,), {method: deferred})(), FakeCheckpointer()
    with pytest.raises(TypeError, match=f"{method}|deferred"):
        start(processor)
    with pytest.raises(TypeError, match="coroutine or generator function"):
        feed(processor, checkpointer, 1)
    request_shutdown(processor, checkpointer)
    assert (processor.seen, checkpointer.calls) == ([], [])


@pytest.mark.parametrize(("method", "calls"), [("should_checkpoint", 1), ("checkpoint", 2), ("before_checkpoint", 3)])
def test_a_method_that_hides_a_coroutine_lets_nothing_be_checkpointed(method: str, calls: int) -> None:
    """What `before_checkpoint` should have flushed is covered by no checkpoint."""

    async def deferred() -> None: ...

    processor, checkpointer = started(records_per_checkpoint=1), FakeCheckpointer()
    setattr(processor, method, lambda *arguments: deferred())
    for call in (
        lambda: feed(processor, checkpointer, 1),
        lambda: request_shutdown(processor, checkpointer),
        lambda: end_shard(processor, checkpointer),
    )[:calls]:
        with pytest.raises(TypeError, match=f"Collector.{method} returned an object of type coroutine"):
            call()
    assert checkpointer.calls == []


def test_an_after_hook_that_hides_a_coroutine_is_an_error() -> None:
    async def deferred() -> None: ...

    processor = started(records_per_checkpoint=1)
    processor.after_checkpoint = lambda *place: deferred()  # type: ignore[assignment,func-returns-value,return-value]
    for call in (lambda: feed(processor, FakeCheckpointer(), 1), lambda: end_shard(processor, FakeCheckpointer())):
        with pytest.raises(TypeError, match="Collector.after_checkpoint returned an object of type coroutine"):
            call()


def test_two_thousand_records_and_an_own_should_checkpoint() -> None:
    """The public examples of easy-kclpy always say yes: a checkpoint for each list, not for each record."""
    with Child(str(PROGRAMS / "kclpy_per_record.py")) as child:
        child.daemon.start()
        for last in (1000, 2000):
            position = kcl_helpers.checkpoint(str(last), 0)
            child.daemon.ask(process_records(*range(last - 999, last + 1)), position, status("processRecords"))
        child.daemon.ask(process_records(), status("processRecords"))
        code, stderr = child.finish()
    assert (code, stderr) == (0, "2000 records\n")


# ---- where it checkpoints ---------------------------------------------------------------------------------------

# The places of a list, and the checkpoints where every record asks for one.
POSITIONS: list[tuple[str, list[Place], list[Place]]] = [
    ("in order", [(1, 0), (2, 0)], [(1, 0), (2, 0)]),
    ("as integers", [(9, 0), (10, 0)], [(9, 0), (10, 0)]),
    ("inside an aggregate", [(1, 0), (1, 9), (1, 10), (2, 0)], [(1, 0), (1, 9), (1, 10), (2, 0)]),
    ("no sub-sequence numbers", [(1, None), (2, None)], [(1, None), (2, None)]),
    (
        "a shared sequence number",
        [(1, None), (2, None), (2, None), (2, None), (3, None)],
        [(1, None), (2, None), (3, None)],
    ),
    ("only shared", [(5, None), (5, None)], [(5, None)]),
    # A daemon does not do this. Were it to, nothing may be passed.
    ("out of order", [(5, 0), (3, 0), (4, 0), (9, 0), (7, 0)], [(5, 0), (9, 0)]),
    ("twice", [(1, 0), (2, 0), (1, 0)], [(2, 0)]),
]


@pytest.mark.parametrize(("places", "expected"), [row[1:] for row in POSITIONS], ids=[row[0] for row in POSITIONS])
def test_where_it_checkpoints(places: list[Place], expected: list[Place]) -> None:
    processor, checkpointer = started(answers=dict.fromkeys(range(20), True)), FakeCheckpointer()
    feed(processor, checkpointer, *places)
    assert checkpointer.calls == [(str(number), sub) for number, sub in expected]
    assert processor.places == places


def test_a_checkpoint_that_is_due_between_records_of_one_number_waits_for_the_last() -> None:
    processor, checkpointer = started(records_per_checkpoint=2), FakeCheckpointer()
    feed(processor, checkpointer, (1, None), (2, None), (2, None), (2, None), (3, None), (4, None))
    assert checkpointer.calls == [("2", None), ("4", None)]


def test_a_request_between_records_of_one_number_waits_for_the_last() -> None:
    class AsksOnce(Collector):
        def process_record(self, *values: Any) -> Any:
            super().process_record(*values)
            return len(self.seen) == 2

    processor, checkpointer = AsksOnce(), FakeCheckpointer()
    start(processor)
    feed(processor, checkpointer, (1, None), (2, None), (2, None), (3, None))
    assert checkpointer.calls == [("2", None)]


def test_a_position_is_not_stored_twice() -> None:
    processor, checkpointer = started(answers={1: True}), FakeCheckpointer()
    feed(processor, checkpointer, 1)
    feed(processor, checkpointer, 1)
    assert checkpointer.calls == [("1", 0)]


# ---- refused checkpoints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RETRYABLE)
def test_a_retryable_error_is_tried_again(name: str, caplog: pytest.LogCaptureFixture) -> None:
    processor, checkpointer = started(answers={1: True}), FakeCheckpointer(*[name] * 4)
    feed(processor, checkpointer, 1)
    assert checkpointer.calls == [("1", 0)] * 5
    assert processor.clock.slept == [5] * 4
    assert processor.hooks == [("before", "1", 0), ("after", "1", 0)]
    assert caplog.text.count(f"{SHARD}: checkpoint refused: {name}") == 4


@pytest.mark.parametrize(("retries", "seconds"), [(1, 5), (2, 0.5), (3, 0)])
def test_the_last_try_is_logged_and_the_position_kept(
    retries: int, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    processor = started(checkpoint_retries=retries, checkpoint_error_sleep_seconds=seconds, records_per_checkpoint=2)
    checkpointer = FakeCheckpointer(*["ThrottlingException"] * retries)
    feed(processor, checkpointer, 1, 2, 3)
    assert checkpointer.calls == [("2", 0)] * retries
    assert processor.clock.slept == [seconds] * (retries - 1)  # none after the last
    assert f"{SHARD}: checkpoint refused {retries} times: ThrottlingException" in caplog.text
    assert processor.hooks == [("before", "2", 0)]
    assert processor.places == [(1, 0), (2, 0), (3, 0)]
    feed(processor, checkpointer, 4)  # the next trigger, not the next record
    assert checkpointer.calls[retries:] == [("4", 0)]
    assert processor.hooks[1:] == [("before", "4", 0), ("after", "4", 0)]


def test_a_throttled_position_is_stored_though_nothing_new_comes() -> None:
    processor, checkpointer = started(), FakeCheckpointer(*["ThrottlingException"] * 5)
    processor.clock.now += 61
    feed(processor, checkpointer, 1)
    feed(processor, checkpointer)
    assert len(checkpointer.calls) == 5
    processor.clock.now += 61
    feed(processor, checkpointer)
    assert checkpointer.calls == [("1", 0)] * 6


@pytest.mark.parametrize("name", FINAL)
def test_other_errors_are_raised_at_once(name: str) -> None:
    processor, checkpointer = started(answers={1: True}), FakeCheckpointer(name)
    with pytest.raises(CheckpointError) as caught:
        feed(processor, checkpointer, 1, 2)
    assert caught.value.value == name
    assert len(checkpointer.calls) == 1
    assert processor.clock.slept == []
    assert processor.hooks == [("before", "1", 0)]


def test_an_error_after_a_retryable_one_is_raised() -> None:
    processor = started(answers={1: True})
    with pytest.raises(CheckpointError, match="InvalidStateException"):
        feed(processor, FakeCheckpointer("ThrottlingException", "InvalidStateException"), 1)
    assert processor.clock.slept == [5]


def test_skipping_records_does_not_skip_errors_of_checkpoints() -> None:
    processor = started(answers={1: True}, on_record_error="skip")
    with pytest.raises(CheckpointError, match="InvalidStateException"):
        feed(processor, FakeCheckpointer("InvalidStateException"), 1, 2)
    assert processor.places == [(1, 0)]


def test_a_moved_lease_ends_the_work(caplog: pytest.LogCaptureFixture) -> None:
    processor, checkpointer = started(answers=dict.fromkeys(range(9), True)), FakeCheckpointer("ShutdownException")
    feed(processor, checkpointer, 1, 2, 3)
    assert f"{SHARD}: checkpoint refused: ShutdownException" in caplog.text
    assert "waiting for leaseLost" in caplog.text
    feed(processor, checkpointer, 4, 5)
    processor.clock.now += 61
    feed(processor, checkpointer)
    request_shutdown(processor, checkpointer)
    lose_lease(processor)
    assert f"{SHARD}: the lease is lost; 4 records were left to its new owner" in caplog.text
    assert processor.places == [(1, 0)]
    assert checkpointer.calls == [("1", 0)]
    assert processor.clock.slept == []
    assert processor.hooks == [("before", "1", 0)]
    start(processor)  # the same object for another lease, as tests do it
    feed(processor, checkpointer, 4)
    assert checkpointer.calls == [("1", 0), ("4", 0)]


def test_a_lease_that_moved_at_the_last_record_is_left_alone() -> None:
    processor, checkpointer = started(answers={1: True}), FakeCheckpointer("ShutdownException")
    feed(processor, checkpointer, 1)
    request_shutdown(processor, checkpointer)
    assert checkpointer.calls == [("1", 0)]
    with pytest.raises(CheckpointError, match="ShutdownException"):
        end_shard(processor, FakeCheckpointer("ShutdownException"))


def test_the_checkpoint_method_tells_whether_it_is_stored() -> None:
    processor = started()
    checkpointer: Any = FakeCheckpointer(None, "ShutdownException")
    assert processor.checkpoint(checkpointer, "17", 2) is True
    assert processor.checkpoint(checkpointer) is False
    assert checkpointer.calls == [("17", 2), (None, None)]
    assert processor.hooks == [("before", "17", 2), ("after", "17", 2), ("before", None, None)]


def test_a_checkpoint_method_of_the_user_is_used() -> None:
    calls: list[tuple[Any, ...]] = []

    class Own(Collector):
        def checkpoint(self, checkpointer: Any, *place: Any) -> Any:
            calls.append(place)

    processor = Own(answers={1: True, 2: True})
    start(processor)
    feed(processor, FakeCheckpointer(), 1)
    feed(processor, FakeCheckpointer(), 1, 2)
    assert calls == [("1", 0), ("2", 0)]


# ---- hooks ------------------------------------------------------------------------------------------------------


def test_a_failing_before_hook_prevents_the_checkpoint() -> None:
    class Failing(Collector):
        def before_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
            raise OSError("disk full")

    processor, checkpointer = Failing(answers={1: True}, on_record_error="skip"), FakeCheckpointer()
    start(processor)
    with pytest.raises(OSError, match="disk full"):
        feed(processor, checkpointer, 1)
    assert checkpointer.calls == []


def test_a_failing_after_hook_is_raised_and_the_position_stands() -> None:
    class Failing(Collector):
        def after_checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> None:
            raise OSError("no commit")

    processor, checkpointer = Failing(answers={1: True}), FakeCheckpointer()
    start(processor)
    with pytest.raises(OSError, match="no commit"):
        feed(processor, checkpointer, 1)
    assert checkpointer.calls == [("1", 0)]


# ---- failing records --------------------------------------------------------------------------------------------


def test_a_failing_record_is_raised_and_never_passed(caplog: pytest.LogCaptureFixture) -> None:
    processor, checkpointer = started(fails={2}, records_per_checkpoint=1), FakeCheckpointer()
    with pytest.raises(KeyError, match="poison"):
        feed(processor, checkpointer, 1, 2, 3)
    assert f"{SHARD}: 2 records from 2/0 on were not processed" in caplog.text
    # where the drop-in has told the daemon that all is well, it goes on
    feed(processor, checkpointer, 4, 5)
    request_shutdown(processor, checkpointer)
    assert processor.places == [(1, 0), (4, 0), (5, 0)]
    assert checkpointer.calls == [("1", 0)]
    with pytest.raises(RuntimeError, match=f"{SHARD}: the shard's end cannot be checkpointed: the record 2/0"):
        end_shard(processor, checkpointer)
    assert checkpointer.calls == [("1", 0)]


def test_what_precedes_a_failing_record_is_checkpointed() -> None:
    for later in (
        lambda processor, checkpointer: feed(processor, checkpointer, 4, 5),
        request_shutdown,
        lambda processor, checkpointer: pytest.raises(RuntimeError, end_shard, processor, checkpointer),
    ):
        processor, checkpointer = started(fails={2}), FakeCheckpointer()
        with pytest.raises(KeyError):
            feed(processor, checkpointer, 1, 2, 3)
        processor.clock.now += 61
        later(processor, checkpointer)  # type: ignore[no-untyped-call]
        assert checkpointer.calls == [("1", 0)]


def test_a_record_that_comes_again_resumes() -> None:
    processor, checkpointer = started(fails={2}, records_per_checkpoint=1), FakeCheckpointer()
    with pytest.raises(KeyError):
        feed(processor, checkpointer, 1, 2, 3)
    with pytest.raises(KeyError):
        feed(processor, checkpointer, 1, 2, 3)
    processor.fails = set()
    feed(processor, checkpointer, 1, 2, 3)
    assert checkpointer.calls == [("1", 0), ("2", 0), ("3", 0)]
    end_shard(processor, checkpointer)
    assert checkpointer.calls[3:] == [(None, None)]


def test_unprocessed_records_can_be_given_up() -> None:
    processor, checkpointer = started(fails={2}, records_per_checkpoint=1), FakeCheckpointer()
    with pytest.raises(KeyError):
        feed(processor, checkpointer, 1, 2, 3)
    processor.pass_unprocessed()
    feed(processor, checkpointer, 4)
    end_shard(processor, checkpointer)
    assert checkpointer.calls == [("1", 0), ("4", 0), (None, None)]


def test_the_records_after_a_raised_checkpoint_error_are_not_passed() -> None:
    processor = started(answers={1: True}, records_per_checkpoint=2)
    checkpointer = FakeCheckpointer("InvalidStateException")
    with pytest.raises(CheckpointError):
        feed(processor, checkpointer, 1, 2, 3)
    feed(processor, checkpointer, 4, 5)
    assert checkpointer.calls == [("1", 0), ("1", 0)]


def test_a_failure_on_the_last_record_of_one_number_holds_all_of_it() -> None:
    class FailsThird(Collector):
        def process_record(self, *values: Any) -> Any:
            if len(self.seen) == 2:
                raise KeyError("poison")
            super().process_record(*values)
            return True

    processor, checkpointer = FailsThird(), FakeCheckpointer()
    start(processor)
    with pytest.raises(KeyError):
        feed(processor, checkpointer, (1, None), (2, None), (2, None))
    assert checkpointer.calls == [("1", None)]


def test_an_invalid_sequence_number_is_not_passed_either() -> None:
    processor, checkpointer = started(records_per_checkpoint=1), FakeCheckpointer()
    bad = record(2)
    bad._sequence_number = "two"
    message = {"action": "processRecords", "records": [record(1), bad], "millisBehindLatest": 0}
    with pytest.raises(ValueError, match="two"):
        messages.ProcessRecordsInput(message).dispatch(checkpointer, processor)  # type: ignore[arg-type]
    feed(processor, checkpointer, 3)
    assert checkpointer.calls == []


def test_a_skipped_record_is_logged_and_counts_as_processed(caplog: pytest.LogCaptureFixture) -> None:
    processor = started(fails={2, 3}, on_record_error="skip", records_per_checkpoint=2)
    checkpointer = FakeCheckpointer()
    feed(processor, checkpointer, 1, (2, 7), (3, None), 4)
    assert processor.places == [(1, 0), (4, 0)]
    assert checkpointer.calls == [("2", 7), ("4", 0)]
    assert f"{SHARD}: record 2/7 is skipped: it counts as processed" in caplog.text
    assert f"{SHARD}: record 3 is skipped" in caplog.text
    assert "KeyError: 'poison'" in caplog.text
    end_shard(processor, checkpointer)
    assert checkpointer.calls[2:] == [(None, None)]


def test_a_value_that_cannot_be_made_is_an_error_of_its_record() -> None:
    """An arrival time that no datetime can hold raises where it is asked for."""
    far = record(1)
    far._timestamp_millis = 10**17
    for mode, seen in (("skip", [(2, 0)]), ("raise", [])):
        processor = started(on_record_error=mode)
        message = {"action": "processRecords", "records": [far, record(2)], "millisBehindLatest": 0}
        given = messages.ProcessRecordsInput(message)
        if mode == "raise":
            with pytest.raises((ValueError, OverflowError, OSError)):
                given.dispatch(FakeCheckpointer(), processor)  # type: ignore[arg-type]
        else:
            given.dispatch(FakeCheckpointer(), processor)  # type: ignore[arg-type]
        assert processor.places == seen


@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_leaving_the_process_is_never_skipped(mode: str) -> None:
    class Leaving(PerRecordProcessor):
        def process_record(self, *values: Any) -> None:
            raise SystemExit(3)

    processor = Leaving(on_record_error=mode)  # type: ignore[arg-type]
    start(processor)
    with pytest.raises(SystemExit):
        feed(processor, FakeCheckpointer(), 1)


# ---- the end of a lease -----------------------------------------------------------------------------------------


def test_a_shards_end_is_checkpointed_with_retries() -> None:
    processor, checkpointer = started(), FakeCheckpointer("ThrottlingException", "ThrottlingException")
    feed(processor, checkpointer, 1)
    end_shard(processor, checkpointer)
    assert checkpointer.calls == [(None, None)] * 3
    assert processor.clock.slept == [5, 5]
    assert processor.hooks == [("before", None, None), ("after", None, None)]


@pytest.mark.parametrize(("name", "tries"), [("ThrottlingException", 5), ("ShutdownException", 1), (FINAL[0], 1)])
def test_a_shards_end_that_cannot_be_checkpointed_is_raised(name: str, tries: int) -> None:
    processor, checkpointer = started(), FakeCheckpointer(*[name] * 9)
    with pytest.raises(CheckpointError, match=name):
        end_shard(processor, checkpointer)
    assert len(checkpointer.calls) == tries
    assert processor.hooks == [("before", None, None)]


def test_shutdown_is_checkpointed_with_retries() -> None:
    processor, checkpointer = started(), FakeCheckpointer("ThrottlingException")
    feed(processor, checkpointer, 1)
    request_shutdown(processor, checkpointer)
    assert checkpointer.calls == [(None, None)] * 2
    assert processor.clock.slept == [5]
    assert processor.hooks == [("before", None, None), ("after", None, None)]


@pytest.mark.parametrize(("name", "tries"), [("ThrottlingException", 5), ("ShutdownException", 1), (FINAL[0], 1)])
@pytest.mark.parametrize("fails", [set(), {2}], ids=["all processed", "one unprocessed"])
def test_a_failure_at_shutdown_is_logged_only(
    name: str, tries: int, fails: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    processor, checkpointer = started(fails=fails), FakeCheckpointer(*[name] * 9)
    try:
        feed(processor, checkpointer, 1, 2)
    except KeyError:
        assert fails
    request_shutdown(processor, checkpointer)
    assert checkpointer.calls == [("1", 0) if fails else (None, None)] * tries
    assert f"{SHARD}: checkpoint refused" in caplog.text
    assert name in caplog.text
    assert ("after", None, None) not in processor.hooks


def test_a_lost_lease_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    processor = started()
    lose_lease(processor)
    assert caplog.messages == [f"{SHARD}: the lease is lost; 0 records were left to its new owner"]
    assert processor.hooks == []


# ---- mistakes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint_retries": 0}, "checkpoint_retries counts the first try too and must be 1 or more: 0"),
        ({"checkpoint_error_sleep_seconds": -1}, "checkpoint_error_sleep_seconds must not be negative: -1"),
        ({"checkpoint_freq_seconds": -0.5}, "checkpoint_freq_seconds must not be negative: -0.5"),
        ({"checkpoint_freq_seconds": float("nan")}, "checkpoint_freq_seconds must not be negative: nan"),
        ({"records_per_checkpoint": -2}, "records_per_checkpoint must not be negative: -2"),
        ({"on_record_error": "ignore"}, "on_record_error must be 'raise' or 'skip', not 'ignore'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        PerRecordProcessor(**options)


def test_arguments_are_keywords_and_known() -> None:
    with pytest.raises(TypeError, match="checkpoint_retries must be a whole number, not 2.5"):
        PerRecordProcessor(checkpoint_retries=2.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="positional"):
        PerRecordProcessor(5)  # type: ignore[misc]
    with pytest.raises(TypeError, match="records_per_chekpoint"):
        PerRecordProcessor(records_per_chekpoint=5)  # type: ignore[call-arg]


class Missing(PerRecordProcessor):
    pass


class Coroutine(PerRecordProcessor):
    async def process_record(self, *values: Any) -> bool:  # type: ignore[override]
        return True


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Missing, "Missing does not define process_record"), (Coroutine, "calling it runs nothing; use a plain def")],
)
@pytest.mark.parametrize("mode", ["raise", "skip"])
def test_a_processor_that_would_process_nothing_is_refused(
    kind: Callable[..., PerRecordProcessor], message: str, mode: str
) -> None:
    """Also when its failing initialize has been passed over: no record may be skipped for that."""
    processor, checkpointer = kind(on_record_error=mode, records_per_checkpoint=1), FakeCheckpointer()
    with pytest.raises(TypeError, match=message):
        start(processor)
    with pytest.raises(TypeError, match=message):
        feed(processor, checkpointer, 1)
    assert checkpointer.calls == []


# ---- served to a daemon -----------------------------------------------------------------------------------------


def serve(processor: PerRecordProcessor, lines: Sequence[dict[str, Any]], **options: Any) -> tuple[list[Any], str]:
    """Run a dialogue in text files; what was written to the daemon, and to the error file."""
    written, errors = io.StringIO(), io.StringIO()
    given = io.StringIO("".join(json.dumps(line) + "\n" for line in lines))
    kcl.KCLProcess(processor, given, written, errors, **options).run()
    return [json.loads(line) for line in written.getvalue().splitlines() if line], errors.getvalue()


def wire_records(*places: Place) -> dict[str, Any]:
    records = [
        {
            "data": "aGVsbG8=",
            "partitionKey": "k",
            "sequenceNumber": str(number),
            "approximateArrivalTimestamp": 1700000000123,
            "subSequenceNumber": sub,
            "action": "record",
        }
        for number, sub in places
    ]
    return {"action": "processRecords", "records": records, "millisBehindLatest": 0}


INITIALIZE = {"action": "initialize", "shardId": SHARD, "sequenceNumber": "TRIM_HORIZON", "subSequenceNumber": 0}
STORED = {"action": "checkpoint", "sequenceNumber": None, "subSequenceNumber": None, "error": None}


def status(action: str) -> dict[str, Any]:
    return {"action": "status", "responseFor": action}


def test_a_whole_life_on_the_wire() -> None:
    processor = Collector(answers={BASE + 1: True})
    written, errors = serve(
        processor,
        [
            INITIALIZE,
            wire_records((BASE, 0), (BASE + 1, 2), (BASE + 2, 0)),
            STORED,
            {"action": "shutdownRequested"},
            STORED,
            {"action": "shardEnded"},
            STORED | {"error": "ThrottlingException"},
            STORED,
        ],
    )
    end = {"action": "checkpoint", "sequenceNumber": None, "subSequenceNumber": None}
    assert written == [
        status("initialize"),
        {"action": "checkpoint", "sequenceNumber": str(BASE + 1), "subSequenceNumber": 2},
        status("processRecords"),
        end,
        status("shutdownRequested"),
        end,
        end,
        status("shardEnded"),
    ]
    assert errors == ""
    local = datetime.fromtimestamp(1700000000.123)
    assert processor.seen == [(b"hello", "k", BASE + i, sub, local) for i, sub in ((0, 0), (1, 2), (2, 0))]


def test_the_legacy_dialect_gets_sequence_numbers_only() -> None:
    def legacy(*numbers: int) -> dict[str, Any]:
        keys = ("data", "partitionKey", "sequenceNumber", "approximateArrivalTimestamp")
        records = wire_records(*((number, None) for number in numbers))["records"]
        return {"action": "processRecords", "records": [{key: each[key] for key in keys} for each in records]}

    processor = Collector(answers=dict.fromkeys(range(9), True))
    written, errors = serve(
        processor,
        [
            {"action": "initialize", "shardId": SHARD},
            legacy(1, 2, 2, 3),
            *[{"action": "checkpoint", "checkpoint": "1", "error": None}] * 3,
            {"action": "shutdown", "reason": "ZOMBIE"},
        ],
    )
    assert written == [
        status("initialize"),
        *({"action": "checkpoint", "checkpoint": number} for number in ("1", "2", "3")),
        status("processRecords"),
        status("shutdown"),
    ]
    assert errors == ""
    assert processor.places == [(1, None), (2, None), (2, None), (3, None)]


POISONED = [INITIALIZE, wire_records((1, 0), (2, 0), (3, 0)), wire_records((4, 0)), {"action": "shutdownRequested"}]


def test_a_raised_error_is_left_to_on_error_skip() -> None:
    processor = Collector(fails={2})
    written, errors = serve(processor, [*POISONED, STORED], on_error="skip")
    assert written == [
        status("initialize"),
        status("processRecords"),
        status("processRecords"),
        {"action": "checkpoint", "sequenceNumber": "1", "subSequenceNumber": 0},
        status("shutdownRequested"),
    ]
    assert "KeyError: 'poison'" in errors


def test_a_raised_error_is_left_to_on_error_stop() -> None:
    processor = Collector(fails={2})
    written = io.StringIO()
    given = io.StringIO("".join(json.dumps(line) + "\n" for line in POISONED))
    with pytest.raises(SystemExit, match="^1$"):
        kcl.KCLProcess(processor, given, written, io.StringIO(), on_error="stop").run()
    assert [json.loads(line) for line in written.getvalue().splitlines() if line] == [status("initialize")]
    assert processor.places == [(1, 0)]


def test_a_dead_letter_frees_what_was_left(tmp_path: Path) -> None:
    """The whole list is stored, so nothing is lost when checkpoints pass it, and the shard can end."""
    end = {"action": "shardEnded"}
    processor = Collector(fails={2})
    written, errors = serve(processor, [*POISONED[:3], end, STORED], dead_letter=tmp_path / "letters")
    assert written == [
        status("initialize"),
        status("processRecords"),
        status("processRecords"),
        {"action": "checkpoint", "sequenceNumber": None, "subSequenceNumber": None},
        status("shardEnded"),
    ]
    assert processor.places == [(1, 0), (4, 0)]
    assert len(list((tmp_path / "letters").iterdir())) == 1
    assert "KeyError: 'poison'" in errors


def test_a_hidden_coroutine_is_an_error() -> None:
    class Hidden(PerRecordProcessor):
        def process_record(self, *arguments: Any) -> Any:
            async def work() -> None:
                pass

            return work()

    written, errors = serve(Hidden(), [INITIALIZE, wire_records((1, 0)), {"action": "shutdownRequested"}])
    assert [line["action"] for line in written] == ["status"] * 3
    assert "process_record returned an object of type coroutine" in errors


# ---- never past an unprocessed record ---------------------------------------------------------------------------


class Watched(PerRecordProcessor):
    """Fails when it is told to, and keeps account of what was delivered and processed."""

    def __init__(self, script: Iterable[str], **options: Any) -> None:
        clock = Clock(1000.0)
        super().__init__(clock=clock, sleep=clock.sleep, **options)
        self.script = iter(script)
        self.delivered: list[Place] = []
        self.passed: list[Place] = []
        self.lease_moved = False

    def process_record(self, data: Any, partition_key: Any, number: int, sub: int | None, arrival_time: Any) -> bool:
        assert not self.lease_moved
        what = next(self.script, "ok")
        if what == "fail":
            if self.on_record_error == "skip":
                self.passed.append((number, sub))
            raise KeyError("poison")
        self.passed.append((number, sub))
        return what == "ask"

    def open_places(self) -> list[tuple[int, int]]:
        """Delivered records that were not processed, with repetitions."""
        left = list(self.delivered)
        for place in self.passed:
            left.remove(place)
        return [(number, sub or 0) for number, sub in left]


class WatchingCheckpointer:
    """Refuses as it is told to; asserts for every request that nothing unprocessed lies at or before it."""

    def __init__(self, processor: Watched, errors: Iterable[str | None]) -> None:
        self.processor = processor
        self.errors = iter(errors)
        self.stored = (0, 0)

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        left = self.processor.open_places()
        assert not self.processor.lease_moved or sequence_number is None
        if sequence_number is None:
            assert sub_sequence_number is None
            assert left == []
            at = max(((number, sub or 0) for number, sub in self.processor.delivered), default=(0, 0))
        else:
            at = (int(sequence_number), sub_sequence_number or 0)
            assert all(place > at for place in left)
            assert (at[0], sub_sequence_number) in self.processor.delivered
            assert at > self.stored
        error = next(self.errors, None)
        if error is not None:
            self.processor.lease_moved |= error == "ShutdownException"
            raise CheckpointError(error)
        self.stored = at


@st.composite
def shards(draw: st.DrawFn) -> list[list[Place]]:
    """Lists of records of one shard: aggregates or not, with sub-sequence numbers or without."""
    legacy = draw(st.booleans())
    places: list[Place] = []
    number = 8
    for size in draw(st.lists(st.integers(1, 3), max_size=12)):
        number += draw(st.integers(1, 5))
        places += [(number, None if legacy else sub) for sub in range(size)]
    lists: list[list[Place]] = []
    start = 0
    cuts = draw(st.lists(st.integers(0, len(places)), max_size=5))
    for end in [*sorted(cuts), len(places)]:
        # What KCL makes of one aggregate comes in one list.
        while legacy and 0 < end < len(places) and places[end] == places[end - 1]:
            end += 1
        lists.append(places[start:end])
        start = max(start, end)
    return lists


@given(
    lists=shards(),
    shuffle=st.none() | st.randoms(use_true_random=False),
    script=st.lists(st.sampled_from(["ok", "ok", "ok", "ask", "fail"]), max_size=40),
    errors=st.lists(
        st.sampled_from([None, None, None, *RETRYABLE, "InvalidStateException", "ShutdownException"]), max_size=20
    ),
    per_checkpoint=st.integers(0, 4),
    mode=st.sampled_from(["raise", "skip"]),
    shutdown=st.booleans(),
)
def test_no_checkpoint_is_ever_behind_an_unprocessed_record(
    lists: list[list[Place]],
    shuffle: Any,
    script: list[str],
    errors: list[str | None],
    per_checkpoint: int,
    mode: Any,
    shutdown: bool,
) -> None:
    processor = Watched(script, on_record_error=mode, records_per_checkpoint=per_checkpoint, checkpoint_retries=2)
    checkpointer: Any = WatchingCheckpointer(processor, errors)
    start(processor)
    logging.disable()  # what is said about each failure

    try:
        for places in lists:
            if shuffle is not None:
                shuffle.shuffle(places)
            processor.delivered += places
            with contextlib.suppress(KeyError, CheckpointError):
                feed(processor, checkpointer, *places)
        checkpointer.errors = iter([])
        if shutdown:
            request_shutdown(processor, checkpointer)
        if processor.open_places():
            with pytest.raises(RuntimeError):
                end_shard(processor, checkpointer)
        else:
            end_shard(processor, checkpointer)
            last = max(((number, sub or 0) for places in lists for number, sub in places), default=(0, 0))
            assert checkpointer.stored == last
    finally:
        logging.disable(logging.NOTSET)
