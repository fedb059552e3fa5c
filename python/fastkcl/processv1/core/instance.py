"""One running stitch as its core holds it: a process, its queue of messages, and its state.

    Core ── put ──▶ queue ──▶ writer thread ──▶ stdin of the process
    Core ◀── on_message, on_error ◀── StitchDecoder ◀── stdout of the process

A stitch that does not read fills its own queue and nobody else's: data beyond it is dropped and counted, heartbeats go
missing, and its health falls. A frame that cannot be read is counted; the next one is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, Full, Queue
from threading import Event, Lock, Thread

from fastkcl._core import DecodeError, FromStitchMessage, StitchDecoder, ToStitchMessage
from fastkcl.processv1.arguments import Arguments
from fastkcl.processv1.core.health import Health, Heartbeats
from fastkcl.processv1.groups import GroupName
from fastkcl.stdio.child import ChildProcess

_QUEUE = 1000
"""Messages that wait for a stitch to read them."""
_PATIENCE = 1.0
"""Seconds for the output that a process has left in its pipes at its end."""


@dataclass(frozen=True, slots=True)
class StitchSpec:
    """A stitch to start.

    Attributes:
        command: program and arguments that come before the core's; no shell.
        instance_id: the stitch's id, one of its kind in a core.
        application: of which application it is, and so on.
        component: of which component.
        version: of which version.
        custom_arguments: those after ``--``.
        data_dir: its own folder; made if it is not there.
        environment: variables beside those of this process.
    """

    command: Sequence[str]
    instance_id: str
    application: str = "App"
    component: str = "Stitch"
    version: str = "1"
    custom_arguments: Sequence[str] = ()
    data_dir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> GroupName:
        """The group of its version."""
        return GroupName(self.application, self.component, self.version)

    def argv(self, node: str) -> list[str]:
        """The whole command line, as a core of that node writes it."""
        core = {
            "coreid": node,
            "corepid": str(os.getpid()),
            "instanceid": self.instance_id,
            "application": self.application,
            "component": self.component,
            "version": self.version,
            "groupname": str(self.group),
            "datadir": self.data_dir,
            "channel": "Stdio",
            "serializer": "Json",
        }
        return [*self.command, *Arguments(core, self.custom_arguments).to_argv()]


@dataclass(frozen=True, slots=True)
class InstanceReport:
    """The state of a stitch.

    Attributes:
        instance_id: its id.
        health: green, yellow or red, by its heartbeats: also of a process that has ended.
        running: whether its process is there.
        exit_code: how it ended, negative for a signal; None while it runs.
        heartbeats_sent: how many.
        heartbeats_missed: how many since the last that was answered.
        received: messages of data that it got.
        sent: messages of data that it sent.
        dropped: messages of data that it did not read in time.
        acknowledged: messages that it acknowledged.
        failed: messages that it failed.
        bad_frames: frames of its that could not be read.
    """

    instance_id: str
    health: Health
    running: bool
    exit_code: int | None
    heartbeats_sent: int
    heartbeats_missed: int
    received: int
    sent: int
    dropped: int
    acknowledged: int
    failed: int
    bad_frames: int


class _Output:
    """A stitch's output: frames, to messages."""

    def __init__(
        self, on_message: Callable[[FromStitchMessage], None], on_error: Callable[[DecodeError], None]
    ) -> None:
        self._decoder = StitchDecoder(direction="from_stitch")
        self._on_message = on_message
        self._on_error = on_error
        self.ended = Event()

    def take(self, data: bytes) -> bool:
        """Take output as it comes, nothing at its end; a message whose frame has no end is one, too."""
        self._decoder.feed(data)
        while self._hand_over(lambda: next(self._decoder, None)):
            pass
        if not data:
            self._hand_over(self._decoder.finish)
            self.ended.set()
        return True

    def _hand_over(self, take: Callable[[], ToStitchMessage | FromStitchMessage | None]) -> bool:
        try:
            message = take()
        except DecodeError as error:
            self._on_error(error)
            return True
        if isinstance(message, FromStitchMessage):
            self._on_message(message)
        return message is not None


class Instance:
    """A stitch that runs.

    Args:
        spec: of the stitch.
        node: the core's node.
        on_message: called with each of its messages, from a separate thread.
        on_log: called with each line about it, from any thread.

    Raises:
        OSError: the program cannot be started, or its folder not be made.
    """

    def __init__(
        self,
        spec: StitchSpec,
        node: str,
        on_message: Callable[[FromStitchMessage], None],
        on_log: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.heartbeats = Heartbeats()
        self._on_message = on_message
        self._on_log = on_log
        self._lock = Lock()
        self._counts = dict.fromkeys(("received", "sent", "dropped", "acknowledged", "failed", "bad_frames"), 0)
        self._exit_code: int | None = None
        self._queue: Queue[bytes | None] = Queue(_QUEUE)
        if spec.data_dir:
            os.makedirs(spec.data_dir, exist_ok=True)  # noqa: PTH103 - a string, as it goes on the command line
        self._output = _Output(self._take, self._refuse)
        environment = {**os.environ, **spec.environment}
        self.process = ChildProcess(spec.argv(node), environment, self._output.take, self._log_stderr)
        self._writer = Thread(target=self._write, name=f"stdin-{self.process.pid}", daemon=True)
        self._writer.start()

    @property
    def exit_code(self) -> int | None:
        """How its process ended; None while it runs."""
        if self._exit_code is None:
            self._exit_code = self.process.wait(0)
        return self._exit_code

    def beat(self) -> None:
        """Send a heartbeat, if it runs; it counts as missed until it is answered."""
        with self._lock:
            number = self.heartbeats.send()
        self._put(ToStitchMessage(id=number, channel_name="_heartbeat", data="", from_stitch_instance_id=""))

    def give(self, message: ToStitchMessage) -> bool:
        """Give it data; false, and counted, if it has not read its earlier data."""
        given = self._put(message)
        self.count("received" if given else "dropped")
        return given

    def ask_to_exit(self, code: int) -> None:
        """Send ``_exit``, then close its input."""
        self._put(ToStitchMessage(id=code, channel_name="_exit", data=""))
        self._end_queue()

    def discard(self) -> None:
        """End the rest of it."""
        self._end_queue()
        if self.exit_code is None:
            self.process.kill_group()
        self._writer.join(_PATIENCE)
        self._output.ended.wait(_PATIENCE)  # its output before its end
        if self._writer.is_alive():  # another process holds its input, and does not read
            self.process.abandon()
            self._writer.join()
        self.process.discard()

    def report(self) -> InstanceReport:
        """Its present state."""
        exit_code = self.exit_code
        with self._lock:
            return InstanceReport(
                instance_id=self.spec.instance_id,
                health=self.heartbeats.health,
                running=exit_code is None,
                exit_code=exit_code,
                heartbeats_sent=self.heartbeats.sent,
                heartbeats_missed=self.heartbeats.missed,
                **self._counts,
            )

    def count(self, what: str) -> None:
        """One more of a report's numbers."""
        with self._lock:
            self._counts[what] += 1

    def _take(self, message: FromStitchMessage) -> None:
        match message.command:
            case "sync":
                with self._lock:
                    known = self.heartbeats.answer(message.id)
                if not known:
                    self._on_log(f"answered heartbeat {message.id}, which was not sent")
            case "ack":
                self.count("acknowledged")
            case "fail":
                self.count("failed")
            case "data":
                self.count("sent")
        self._on_message(message)

    def _refuse(self, error: DecodeError) -> None:
        self.count("bad_frames")
        self._on_log(f"a frame cannot be read: {error}; it is about {error.context[:100]!r}")

    def _log_stderr(self, line: bytes) -> None:
        self._on_log(f"stderr: {line.decode('utf-8', errors='replace')}")

    def _put(self, message: ToStitchMessage) -> bool:
        try:
            self._queue.put_nowait(message.to_frame())
        except Full:
            return False
        return True

    def _end_queue(self) -> None:
        """Nothing more is written; waiting messages give way if there is no room for the end."""
        while True:
            try:
                self._queue.put_nowait(None)
            except Full:
                try:
                    self._queue.get_nowait()
                except Empty:
                    continue
            else:
                return

    def _write(self) -> None:
        while (frame := self._queue.get()) is not None:
            if not self.process.write(frame):
                break
        self.process.close_stdin()
