"""`Checkpointer.checkpoint`: its requests, refusals, errors and retries."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import fastkcl
import kcl_helpers
import pytest
from kcl_helpers import Daemon, checkpoint, checkpoint_reply, in_process, process_records, status

Use = Callable[[fastkcl.RecordBatch, fastkcl.Checkpointer], None]


class OneBatch(fastkcl.BatchProcessor):
    """Calls `use` with the first batch, and keeps what comes out."""

    def __init__(self, use: Use) -> None:
        self.use: Use | None = use
        self.caught: BaseException | None = None
        self.checkpointer: fastkcl.Checkpointer | None = None

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        self.checkpointer = checkpointer
        use, self.use = self.use, None
        if use is not None:
            try:
                use(batch, checkpointer)
            except Exception as error:
                self.caught = error


def run_one(
    use: Use, *replies: str | None, line: bytes | None = None, dialect: Any = "auto"
) -> tuple[OneBatch, list[dict[str, Any]], kcl_helpers.Result]:
    """One batch; the daemon answers the checkpoints with the error names given."""
    processor = OneBatch(use)
    sent: list[dict[str, Any]] = []

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(line or process_records(100, 101))
        for reply in replies:
            message = daemon.receive()
            assert message is not None
            sent.append(message)
            daemon.send(checkpoint_reply(reply))
        assert daemon.receive() == status("processRecords")
        daemon.finish()

    return processor, sent, in_process(processor, script, dialect=dialect)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda b, c: c.checkpoint(), checkpoint(None, None)),
        (lambda b, c: c.checkpoint(b[0]), checkpoint("100", 7)),
        (lambda b, c: c.checkpoint(b.last_position), checkpoint("101", 7)),
        (lambda b, c: c.checkpoint(fastkcl.Position("5")), checkpoint("5", None)),
        (lambda b, c: c.checkpoint("100"), checkpoint("100", None)),
        (lambda b, c: c.checkpoint("100", 3), checkpoint("100", 3)),
    ],
)
def test_what_is_sent(use: Use, expected: dict[str, Any]) -> None:
    processor, sent, result = run_one(use, None, line=process_records(100, 101, sub=7))
    assert processor.caught is None
    assert sent == [expected]
    assert result == (0, "")


def test_record_in_the_legacy_dialect() -> None:
    processor, sent, _ = run_one(
        lambda b, c: c.checkpoint(b[1]), None, line=process_records(100, 101, sub=None), dialect="legacy"
    )
    assert processor.caught is None
    assert sent == [{"action": "checkpoint", "checkpoint": "101"}]


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda b, c: c.checkpoint(None, 3), ValueError, "sub"),
        (lambda b, c: c.checkpoint(b[0], 3), ValueError, "a Record has its own sub-sequence number"),
        (lambda b, c: c.checkpoint(b.first_position, 3), ValueError, "a Position has its own"),
        (lambda b, c: c.checkpoint(retries=-1), ValueError, "must not be negative: -1, 1.0"),
        (lambda b, c: c.checkpoint(backoff=-1), ValueError, "must not be negative: 0, -1"),
        (lambda b, c: c.checkpoint(backoff=math.nan), ValueError, "must not be negative: 0, nan"),
        (lambda b, c: c.checkpoint(retries=1.5), TypeError, "retries must be a whole number, not 1.5"),
        (lambda b, c: c.checkpoint("100", 2**70), ValueError, f"has 64 bits at most: {2**70}"),
        (lambda b, c: c.checkpoint("100", 1.5), TypeError, "float"),
        (lambda b, c: c.checkpoint(100), TypeError, "not int"),
        (lambda b, c: c.checkpoint(b"100"), TypeError, "not bytes"),
    ],
)
def test_what_is_refused_before_anything_is_sent(use: Use, error: type[Exception], text: str) -> None:
    processor, sent, result = run_one(use)
    assert type(processor.caught) is error
    assert text in str(processor.caught)
    assert sent == []
    assert result == (0, "")


@pytest.mark.parametrize(
    ("name", "retryable"),
    [
        ("ThrottlingException", True),
        ("KinesisClientLibDependencyException", True),
        ("KinesisClientLibIOException", True),
        ("RuntimeException", True),
        ("ShutdownException", False),
        ("InvalidStateException", False),
        ("IllegalArgumentException", False),
        ("NullPointerException", False),
    ],
)
def test_error_of_the_daemon(name: str, retryable: bool) -> None:
    processor, sent, _ = run_one(lambda b, c: c.checkpoint(), name)
    assert isinstance(processor.caught, fastkcl.CheckpointError)
    assert processor.caught.value == name
    assert processor.caught.retryable is retryable
    assert str(processor.caught).startswith(f"{name}: ")
    assert len(sent) == 1


def test_retries_what_may_be_retried_with_doubled_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("fastkcl.stdio.signals.SignalWatch.sleep", lambda self, seconds: pauses.append(seconds))
    throttled = "ThrottlingException"
    processor, sent, _ = run_one(lambda b, c: c.checkpoint("100", retries=3, backoff=2.0), throttled, throttled, None)
    assert processor.caught is None
    assert sent == [checkpoint("100")] * 3
    assert pauses == [2.0, 4.0]


def test_gives_up_after_the_retries() -> None:
    throttled = "ThrottlingException"
    processor, sent, _ = run_one(lambda b, c: c.checkpoint(retries=1, backoff=0), throttled, throttled)
    assert isinstance(processor.caught, fastkcl.CheckpointError)
    assert len(sent) == 2


def test_does_not_retry_what_cannot_succeed() -> None:
    processor, sent, _ = run_one(lambda b, c: c.checkpoint(retries=5, backoff=0), "ShutdownException")
    assert isinstance(processor.caught, fastkcl.CheckpointError)
    assert len(sent) == 1


def _from_a_thread(batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            checkpointer.checkpoint()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert isinstance(errors[0], fastkcl.LocalProtocolError)


def _twice(batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
    with pytest.raises(fastkcl.RemoteProtocolError):
        checkpointer.checkpoint()
    with pytest.raises(fastkcl.RemoteProtocolError):
        checkpointer.checkpoint()


def test_a_swallowed_error_of_a_thread_ends_the_run() -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(process_records(100))
        assert daemon.receive() is None

    code, stderr = in_process(OneBatch(_from_a_thread), script)
    assert code == 1
    assert "fastkcl: not_allowed: a checkpoint from a thread other than the processor's is not allowed" in stderr


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"hello\n", "fastkcl: json: "),
        (kcl_helpers.LEASE_LOST, "fastkcl: unexpected_message: leaseLost is not allowed in state PROCESSING, where a"),
        (b"", "fastkcl: closed_while_waiting: end of input in state PROCESSING, where a checkpoint waits"),
        (b'{"action":"check', "fastkcl: json: "),
    ],
)
def test_a_swallowed_protocol_error_ends_the_run(answer: bytes, line: str) -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(process_records(100))
        assert daemon.receive() == checkpoint()
        daemon.send(answer)
        daemon.finish()

    code, stderr = in_process(OneBatch(_twice), script)
    assert code == 1
    assert stderr.startswith(line)
    assert stderr.count("\n") == 1


def test_a_reply_that_nobody_asked_for() -> None:
    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.send(checkpoint_reply())
        assert daemon.receive() is None

    code, stderr = in_process(OneBatch(lambda b, c: None), script)
    assert (code, stderr) == (1, "fastkcl: unexpected_message: checkpoint is not allowed in state READY\n")


def test_a_checkpoint_between_requests_ends_the_run() -> None:
    processor = OneBatch(lambda b, c: None)
    errors: list[BaseException] = []

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(100), status("processRecords"))
        assert processor.checkpointer is not None
        try:  # in another thread than the run's, as a background writer would
            processor.checkpointer.checkpoint()
        except fastkcl.LocalProtocolError as error:
            errors.append(error)
        daemon.send(process_records(101))
        assert daemon.receive() is None

    code, stderr = in_process(processor, script)
    assert len(errors) == 1
    assert code == 1
    assert "fastkcl: not_allowed: " in stderr


def test_a_kept_checkpointer_in_lease_lost_ends_the_run() -> None:
    class Keeps(OneBatch):
        def lease_lost(self) -> None:
            assert self.checkpointer is not None
            try:
                self.checkpointer.checkpoint()
            except Exception as error:
                self.caught = error

    processor = Keeps(lambda b, c: None)

    def script(daemon: Daemon) -> None:
        daemon.start()
        daemon.ask(process_records(100), status("processRecords"))
        daemon.send(kcl_helpers.LEASE_LOST)
        assert daemon.receive() is None

    code, stderr = in_process(processor, script)
    assert isinstance(processor.caught, fastkcl.LocalProtocolError)
    assert code == 1
    assert "fastkcl: not_allowed: a checkpoint is not allowed in state LEASE_LOST\n" in stderr
