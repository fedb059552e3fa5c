"""The promises of a host to a processor: a KCL dialogue and a shard of a stream alike; and the ends of a run."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import fastkcl
import pytest
from fastkcl.kcl import Connection
from fastkcl.kcl.dialogue import Dialogue
from fastkcl.kinesis.checkpoints.base import Place
from fastkcl.kinesis.shard_host import ShardHost
from fastkcl.processing.failures import FailurePolicy, ProcessorError
from fastkcl.stdio.descriptors import Descriptors
from fastkcl.stdio.signals import SignalWatch
from kcl_helpers import INITIALIZE, TIMEOUT, Daemon, checkpoint_reply, process_records, status

if TYPE_CHECKING:
    from fastkcl.processing.host import Host

SEQUENCE_NUMBERS = (100, 101)


@contextlib.contextmanager
def kcl_host(*answers: str | None) -> Iterator[Host]:
    """A dialogue in which a batch is open; the daemon answers checkpoints by these names of errors."""
    child_read, daemon_write = os.pipe()
    daemon_read, child_write = os.pipe()
    daemon = Daemon(daemon_write, daemon_read)

    def answer() -> None:
        for name in answers:
            message = daemon.receive()
            assert message is not None
            assert message["action"] == "checkpoint"
            daemon.send(checkpoint_reply(name))

    with SignalWatch(30) as signals:
        dialogue = Dialogue(Connection(), Descriptors(child_read, child_write), signals, 1 << 20)
        daemon.send(INITIALIZE)
        dialogue.receive()
        dialogue.send_status()
        assert daemon.receive() == status("initialize")
        daemon.send(process_records(*SEQUENCE_NUMBERS))
        dialogue.receive()
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield dialogue
        thread.join(TIMEOUT)
        assert not thread.is_alive()
    daemon.close()
    for fd in (child_read, child_write):
        os.close(fd)


@contextlib.contextmanager
def stream_host(*answers: str | None) -> Iterator[Host]:
    """A shard of a stream with a batch delivered; checkpoints fail by these names of errors."""
    reader: Any = SimpleNamespace(shard_id="shardId-000000000000", lost=False)
    left = list(answers)

    def commit(place: Place) -> None:
        name = left.pop(0)
        reader.lost = name == "ShutdownException"
        if name == "KinesisClientLibDependencyException":
            raise OSError("away")

    host = ShardHost(reader, commit)
    message = fastkcl.decode_line(process_records(*SEQUENCE_NUMBERS))
    assert isinstance(message, fastkcl.ProcessRecords)
    host.deliver(message.batch, Place(str(SEQUENCE_NUMBERS[-1])))
    yield host
    assert left == []


HOSTS = [kcl_host, stream_host]


@pytest.mark.parametrize("make", HOSTS)
@pytest.mark.parametrize("at", [(None, None), ("100", 0), ("101", 0)])
def test_a_checkpoint_is_stored(make: Any, at: tuple[str | None, int | None]) -> None:
    with make(None) as host:
        assert host.checkpoint(*at) is None
        host.check()


@pytest.mark.parametrize("make", HOSTS)
@pytest.mark.parametrize("name", ["ShutdownException", "KinesisClientLibDependencyException"])
def test_a_checkpoint_is_refused_by_name(make: Any, name: str) -> None:
    with make(name) as host:
        with pytest.raises(fastkcl.CheckpointError) as refused:
            fastkcl.Checkpointer(host).checkpoint()
        host.check()
    assert refused.value.value == name


@pytest.mark.parametrize("make", HOSTS)
def test_a_checkpoint_is_tried_again(make: Any) -> None:
    with make("KinesisClientLibDependencyException", None) as host:
        fastkcl.Checkpointer(host).checkpoint(retries=1, backoff=0)


@pytest.mark.parametrize("make", HOSTS)
def test_a_checkpoint_of_another_thread_is_not_allowed(make: Any) -> None:
    with make() as host:
        made: list[fastkcl.Checkpointer] = []
        thread = threading.Thread(target=lambda: made.append(fastkcl.Checkpointer(host)))
        thread.start()
        thread.join()
        with pytest.raises(fastkcl.LocalProtocolError, match="a thread other than the processor's"):
            made[0].checkpoint()


@pytest.mark.parametrize("make", HOSTS)
@pytest.mark.parametrize("method", ["process_batch", "shard_ended", "shutdown_requested"])
def test_a_failed_method_may_be_called_again(make: Any, method: str) -> None:
    with make() as host:
        assert host.may_retry(method, 0, 0)


def test_a_stream_that_stops_calls_only_its_shutdown_again() -> None:
    with stream_host() as host:
        assert isinstance(host, ShardHost)
        host.stop()
        assert not host.may_retry("process_batch", 60, 0)
        assert host.may_retry("shutdown_requested", 0, 0)


class Patient:
    """A host that stores everything, and lets a method be called again so often."""

    def __init__(self, retries: int) -> None:
        self.retries = retries

    def check(self) -> None: ...

    def checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> str | None:
        return None

    def not_allowed(self, what: str) -> NoReturn:
        raise fastkcl.LocalProtocolError("not_allowed", what, "")

    def back_off(self, seconds: float, attempt: int) -> None: ...

    def may_retry(self, method: str, seconds: float, attempt: int) -> bool:
        self.retries -= 1
        return self.retries >= 0


CONTEXT = fastkcl.ShardContext(
    stream=None, shard_id="shardId-7", sequence_number=None, sub_sequence_number=None, dialect="modern"
)


@pytest.mark.parametrize(
    ("allowed", "calls", "last"),
    [(5, 3, "user_error: shard_ended failed with ValueError: boom"), (1, 2, "retry: "), (0, 1, "retry: ")],
)
def test_a_run_ends_by_an_exception_of_the_policy(allowed: int, calls: int, last: str) -> None:
    """Whoever must not call again ends with no more than was reported."""
    made, reports = [], []

    def fails() -> None:
        made.append(1)
        raise ValueError("boom")

    report: Callable[[str], None] = reports.append
    policy = FailurePolicy(on_error="stop", retries=2, backoff=0, dead_letter=None, report=report)
    with pytest.raises(ProcessorError) as ended:
        policy.call(fails, "shard_ended", Patient(allowed), CONTEXT)
    assert ended.value.__cause__ is None
    assert len(made) == calls
    assert reports[-1].startswith(last)
