"""The decorator form: when it checkpoints, and the effect of refused checkpoints."""

from __future__ import annotations

import functools
from typing import Any

import fastkcl
import pytest
from checkpointers import FakeCheckpointer
from clocks import Clock
from kcl_helpers import (
    LEASE_LOST,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Daemon,
    checkpoint,
    checkpoint_reply,
    in_process,
    process_records,
    status,
)

DONE = status("processRecords")


def batch(*sequence_numbers: int) -> fastkcl.RecordBatch:
    message = fastkcl.decode_line(process_records(*sequence_numbers))
    assert isinstance(message, fastkcl.ProcessRecords)
    return message.batch


def moved_by_hand(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """`time.monotonic` of the module."""
    clock = Clock(1000.0)
    monkeypatch.setattr("fastkcl.processing.function.time.monotonic", clock)
    return clock


def started(seen: list[int], interval: float | None = None) -> Any:
    def keep(batch: fastkcl.RecordBatch) -> None:
        seen.append(len(batch))

    function = fastkcl.processor(keep) if interval is None else fastkcl.processor(checkpoint_interval=interval)(keep)
    function.initialize(
        fastkcl.ShardContext(
            stream=None, shard_id="shardId-7", sequence_number="1", sub_sequence_number=0, dialect="modern"
        )
    )
    return function


def test_checkpoints_at_most_every_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = moved_by_hand(monkeypatch)
    seen: list[int] = []
    function, checkpointer = started(seen), FakeCheckpointer()
    for seconds, checkpoints in [(0, 1), (5, 1), (4.9, 1), (0.2, 2), (9, 2), (1.1, 3)]:
        clock.now += seconds
        function.process_batch(batch(1, 2), checkpointer)
        assert checkpointer.asked == [None] * checkpoints
    assert seen == [2] * 6


def test_an_empty_batch_is_a_chance_to_checkpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = moved_by_hand(monkeypatch)
    seen: list[int] = []
    function, checkpointer = started(seen), FakeCheckpointer()
    function.process_batch(batch(), checkpointer)
    assert checkpointer.asked == []  # nothing was processed
    function.process_batch(batch(1), checkpointer)
    function.process_batch(batch(2), checkpointer)
    assert checkpointer.asked == [None] * 1
    clock.now += 10
    function.process_batch(batch(), checkpointer)
    assert checkpointer.asked == [None] * 2
    clock.now += 10
    function.process_batch(batch(), checkpointer)
    assert checkpointer.asked == [None] * 2  # nothing new
    assert seen == [1, 1]


def test_a_retryable_refusal_is_logged_and_tried_again_at_the_next_request(caplog: pytest.LogCaptureFixture) -> None:
    function, checkpointer = started([]), FakeCheckpointer("ThrottlingException")
    function.process_batch(batch(1), checkpointer)
    assert "shardId-7: checkpoint refused: ThrottlingException" in caplog.text
    function.process_batch(batch(), checkpointer)
    assert checkpointer.asked == [None] * 2


def test_a_lost_lease_stops_the_work_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []
    function, checkpointer = started(seen, 0), FakeCheckpointer("ShutdownException")
    function.process_batch(batch(1), checkpointer)
    assert "shardId-7: checkpoint refused: ShutdownException" in caplog.text
    assert "waiting for leaseLost" in caplog.text
    function.process_batch(batch(2, 3), checkpointer)
    function.shutdown_requested(checkpointer)
    function.lease_lost()
    assert "shardId-7: 2 records that came after the lease had moved were left to its new owner" in caplog.text
    assert seen == [1]
    assert checkpointer.asked == [None] * 1
    with pytest.raises(fastkcl.CheckpointError, match="ShutdownException"):
        function.shard_ended(FakeCheckpointer("ShutdownException"))


@pytest.mark.parametrize("name", ["InvalidStateException", "IllegalArgumentException", "NullPointerException"])
def test_other_refusals_are_raised(name: str) -> None:
    with pytest.raises(fastkcl.CheckpointError, match=name):
        started([]).process_batch(batch(1), FakeCheckpointer(name))


def test_shard_end_and_shutdown_retry() -> None:
    function, checkpointer = started([], 1e9), FakeCheckpointer()
    function.process_batch(batch(1), checkpointer)
    function.process_batch(batch(2), checkpointer)
    assert checkpointer.retries == [0]
    function.shutdown_requested(checkpointer)
    function.shard_ended(checkpointer)
    assert checkpointer.retries == [0, 2, 5]


def test_shutdown_with_nothing_new_needs_no_checkpoint() -> None:
    function, checkpointer = started([], 0), FakeCheckpointer()
    function.process_batch(batch(1), checkpointer)
    function.shutdown_requested(checkpointer)
    assert checkpointer.asked == [None] * 1


def test_a_failing_function_is_not_checkpointed() -> None:
    @fastkcl.processor
    def fails(batch: fastkcl.RecordBatch) -> None:
        raise KeyError("poison")

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(process_records(1))
        assert daemon.receive() is None

    code, stderr = in_process(fails, script)
    assert code == 1
    assert "KeyError: 'poison'" in stderr
    assert "fastkcl/kcl" not in stderr  # the traceback begins in user code
    assert "fastkcl/processing" not in stderr


@pytest.mark.parametrize(
    ("line", "name"), [(SHARD_ENDED, "shardEnded"), (b'{"action":"shutdown","reason":"TERMINATE"}\n', "shutdown")]
)
def test_a_whole_life(line: bytes, name: str) -> None:
    seen: list[int] = []

    @fastkcl.processor(checkpoint_interval=1e9)
    def count(batch: fastkcl.RecordBatch) -> None:
        seen.append(len(batch))

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(1, 2), checkpoint(), DONE)
        daemon.ask(process_records(3), DONE)
        daemon.ask(process_records(), DONE)
        daemon.ask(SHUTDOWN_REQUESTED, checkpoint(), status("shutdownRequested"))
        daemon.ask(line, checkpoint(), status(name))
        daemon.finish()

    assert in_process(count, script) == (0, "")
    assert seen == [2, 1]


def test_a_throttled_checkpoint_on_the_wire() -> None:
    function = fastkcl.processor(lambda batch: None)

    def script(daemon: Daemon) -> None:
        daemon.start()
        for error in ("ThrottlingException", None):
            daemon.send(process_records(1))
            assert daemon.receive() == checkpoint()
            daemon.send(checkpoint_reply(error))
            assert daemon.receive() == DONE
        daemon.ask(process_records(2), DONE)
        daemon.ask(LEASE_LOST, status("leaseLost"))
        daemon.finish()

    assert in_process(function, script).exit == 0


def test_is_still_the_function() -> None:
    @fastkcl.processor
    def size(batch: fastkcl.RecordBatch) -> int:
        """How many."""
        return len(batch)

    assert size(batch(1, 2, 3)) == 3
    assert size.__doc__ == "How many."
    assert isinstance(size, fastkcl.BatchProcessor)


async def _coroutine(batch: fastkcl.RecordBatch) -> None: ...


def _generator(batch: fastkcl.RecordBatch) -> Any:
    yield batch


async def _async_generator(batch: fastkcl.RecordBatch) -> Any:
    yield batch


class _Callable:
    async def __call__(self, batch: fastkcl.RecordBatch) -> None: ...


class _Awaitable:
    def __await__(self) -> Any: ...


@pytest.mark.parametrize("function", [_coroutine, _generator, _async_generator])
def test_refuses_what_would_not_run(function: Any) -> None:
    with pytest.raises(TypeError, match="calling it runs nothing"):
        fastkcl.processor(function)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (functools.partial(_coroutine), "coroutine"),
        (functools.partial(_generator), "generator"),
        (functools.partial(_async_generator), "async_generator"),
        (_Callable(), "coroutine"),
        (lambda batch: _coroutine(batch), "coroutine"),
        (lambda batch: _Awaitable(), "_Awaitable"),
    ],
)
def test_a_hidden_coroutine_is_neither_checkpointed_nor_answered(function: Any, kind: str) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(process_records(1))
        assert daemon.receive() is None

    code, stderr = in_process(fastkcl.processor(checkpoint_interval=0)(function), script)
    assert code == 1
    assert f" returned an object of type {kind}, which nobody runs or waits for" in stderr
    assert "no status was sent" in stderr
    assert "never awaited" not in stderr


def test_any_other_result_is_dropped() -> None:
    function, checkpointer = fastkcl.processor(lambda batch: iter([len(batch)])), FakeCheckpointer()
    function.process_batch(batch(1), checkpointer)  # type: ignore[arg-type]
    assert checkpointer.asked == [None] * 1


def test_refuses_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="must not be negative: -1"):
        fastkcl.processor(checkpoint_interval=-1)(lambda batch: None)
    with pytest.raises(TypeError, match="decorates a function of one batch, not 5"):
        fastkcl.processor(5)  # type: ignore[call-overload]
