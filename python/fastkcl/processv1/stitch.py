"""A stitch on its descriptors: a thread that reads and answers heartbeats, and the methods for a program's messages.

    core ──▶ reader thread ──▶ Connection ──▶ Deliver ──▶ queue ──▶ next_message, `for`, `async for`
                                   │
    core ◀── lock ◀────────────────┴─ Write                ack, fail, send_to… write from any thread

Rules:
- Heartbeats are answered while the program is busy, from the reader thread, which also looks for the core each 10 s.
- Once it is over, a program that waits for a message gets SystemExit, and its ``finally`` runs. One that is busy is
  ended at once, by the rules of the protocol; `receive_exit` gives it 10 s to end by itself.
- Everything on fd 1 is protocol; `print` goes to standard error, which the core may never read: log by `log`.
"""

from __future__ import annotations

import atexit
import select
import sys
import threading
import time
from collections import deque

from fastkcl._core import DEFAULT_MAX_FRAME_BYTES, FromStitchMessage
from fastkcl.processv1.arguments import Arguments
from fastkcl.processv1.batch import batch_of
from fastkcl.processv1.connection import ERROR, EXIT, HEARTBEAT, Connection, Deliver, Write
from fastkcl.processv1.ending import end_now, end_within
from fastkcl.processv1.errors import ArgumentError
from fastkcl.processv1.groups import GroupName, InstanceAddress
from fastkcl.processv1.watch import CoreWatch
from fastkcl.stdio import lossy, reports
from fastkcl.stdio.descriptors import LOST, Descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Literal, Self

    from fastkcl._core import ToStitchMessage
    from fastkcl.processv1.arguments import Parameters
    from fastkcl.processv1.batch import StitchBatch
    from fastkcl.processv1.connection import State

IDLE_SECONDS = 10.0
"""How long `next_message` waits."""
WATCH_SECONDS = 10.0
"""How often the core's process is looked for."""
EXIT_SECONDS = 10.0
"""How long a program may go on after ``_exit``."""
OWN_CHANNELS = frozenset((HEARTBEAT, EXIT, ERROR))
"""Channels whose messages are no data."""
_READER_SECONDS = 1.0
_CHUNK = 64 * 1024
_LARGEST_ID = 2**63 - 1


class Stitch:
    """A worker of a CrossStitch core on standard input and output; for one thread, except the writing methods.

    From here on fd 1 is standard error for everybody else, and fd 0 is at its end. A context manager: leaving it after
    ``_exit`` was shown ends the program with the code that the core has asked for.

    Args:
        argv: the command line without the program; None for this program's.
        receive_heartbeats: show heartbeats, channel ``_heartbeat``; the program answers them with `sync`.
        receive_exit: show ``_exit``; the program has 10 s to end, by leaving the context or asking for another message.
        receive_errors: show frames that cannot be read, channel ``_error``; they are logged in any case.
        max_frame_bytes: bound of one frame.
        drop_stderr: output that does not fit into a full pipe of standard error is dropped and counted, and the program
            goes on; otherwise it waits for a core that may never read it. See `fastkcl.stdio.lossy`.
        descriptors: where to read and write; None to take standard input and output.

    Raises:
        ArgumentError: a name comes twice, or the core wants another channel than standard input and output.
        CoreGoneError: there is no process `corepid`.
        DescriptorsError: standard input or output are no pipes of a core.
        ValueError: `max_frame_bytes` out of range.
    """

    def __init__(
        self,
        argv: Sequence[str] | None = None,
        *,
        receive_heartbeats: bool = False,
        receive_exit: bool = False,
        receive_errors: bool = False,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        drop_stderr: bool = False,
        descriptors: Descriptors | None = None,
    ) -> None:
        arguments = Arguments.parse(sys.argv[1:] if argv is None else argv)
        self._parameters = arguments.parameters
        self._custom_arguments = arguments.custom
        if self._parameters.channel == "Pipe":
            raise ArgumentError(
                "channel",
                "named pipes (channel=Pipe) cannot be made reliable from one side;"
                " let the core start this stitch with channel=Stdio",
            )
        pid = self._parameters.core_pid
        self._watch = CoreWatch(pid) if pid > 0 else None
        self._connection = Connection(
            receive_heartbeats=receive_heartbeats,
            receive_exit=receive_exit,
            receive_errors=receive_errors,
            max_frame_bytes=max_frame_bytes,
        )
        self._descriptors = Descriptors.take() if descriptors is None else descriptors
        self._lost = False
        if drop_stderr:
            lossy.drop_when_full(self._descriptors.write_fd)
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        self._messages: deque[ToStitchMessage] = deque()
        self._futures: list[asyncio.Future[None]] = []
        self._waiting = False
        self._exit_shown = False
        self._closed = False
        self._exit_code: int | None = None
        self._connection.start()
        self._reader = threading.Thread(target=self._run, name="fastkcl-stitch", daemon=True)
        self._reader.start()
        atexit.register(self._await_reader)

    @property
    def parameters(self) -> Parameters:
        """The core's description of itself and of this stitch."""
        return self._parameters

    @property
    def custom_arguments(self) -> tuple[str, ...]:
        """The arguments after ``--`` on the command line."""
        return self._custom_arguments

    @property
    def state(self) -> State:
        """STARTING, RUNNING, STOPPING or EXITED."""
        return self._connection.state

    @property
    def receive_heartbeats(self) -> bool:
        """Whether heartbeats are shown."""
        return self._connection.receive_heartbeats

    @receive_heartbeats.setter
    def receive_heartbeats(self, value: bool) -> None:
        self._connection.receive_heartbeats = value

    @property
    def receive_exit(self) -> bool:
        """Whether ``_exit`` is shown."""
        return self._connection.receive_exit

    @receive_exit.setter
    def receive_exit(self, value: bool) -> None:
        self._connection.receive_exit = value

    @property
    def receive_errors(self) -> bool:
        """Whether frames that cannot be read are shown."""
        return self._connection.receive_errors

    @receive_errors.setter
    def receive_errors(self, value: bool) -> None:
        self._connection.receive_errors = value

    # Messages in

    def next_message(self, timeout: float = IDLE_SECONDS) -> ToStitchMessage | None:
        """Wait for the next message.

        Args:
            timeout: seconds, infinity too.

        Returns:
            The message; None when none came.

        Raises:
            SystemExit: the core has said ``_exit``, or is gone.
        """
        end = time.monotonic() + timeout
        with self._changed:
            self._back_from_exit()
            self._waiting = True
            try:
                while not self._messages and self._exit_code is None:
                    left = end - time.monotonic()
                    if left <= 0:
                        break
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
            finally:
                self._waiting = False
            message = self._take()
        if message is None:
            self._look_for_core()
        return message

    async def next_message_async(self, timeout: float = IDLE_SECONDS) -> ToStitchMessage | None:
        """As `next_message`, without holding up the event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        with self._changed:
            self._back_from_exit()
            message = self._take()
            if message is not None:
                return message
            self._futures.append(future)
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            pass
        finally:
            with self._changed:
                if future in self._futures:
                    self._futures.remove(future)
        with self._changed:
            message = self._take()
        if message is None:
            self._look_for_core()
        return message

    def next_batch(
        self, max_messages: int = 1000, timeout: float = IDLE_SECONDS, *, data: Literal["base64", "text"] = "base64"
    ) -> StitchBatch | ToStitchMessage | None:
        """Wait for a message, and take those that follow it already, as Arrow columns.

        A message whose data is not base64 is not lost silently: it is failed and logged, and the others are the batch.

        Args:
            max_messages: the most to take, at least 1.
            timeout: seconds to wait for the first.
            data: the encoding of the messages' data.

        Returns:
            The batch, perhaps of no rows; a message of the protocol's own channels, if it was asked for, by itself;
            None when none came.

        Raises:
            SystemExit: the core has said ``_exit``, or is gone.
        """
        first = self.next_message(timeout)
        if first is None or first.channel_name in OWN_CHANNELS:
            return first
        messages = [first]
        with self._changed:
            while (
                len(messages) < max_messages and self._messages and self._messages[0].channel_name not in OWN_CHANNELS
            ):
                messages.append(self._messages.popleft())
        batch, refused = batch_of(messages, data)
        for message, error in refused:
            self.fail(message)
            self.log(f"message {message.id} of {message.from_stitch_instance_id} cannot be taken: {error}")
        return batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ToStitchMessage:
        while True:
            message = self.next_message()
            if message is not None:
                return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ToStitchMessage:
        while True:
            message = await self.next_message_async()
            if message is not None:
                return message

    # Messages out

    def ack(self, *messages: ToStitchMessage) -> None:
        """Report to the core that data has been processed.

        Raises:
            SystemExit: the core is gone, as from all that write.
            LocalProtocolError: it is over, as from all that write.
        """
        self._send(*(FromStitchMessage(command="ack", id=message.id) for message in messages))

    def fail(self, *messages: ToStitchMessage) -> None:
        """Report to the core that data could not be processed."""
        self._send(*(FromStitchMessage(command="fail", id=message.id) for message in messages))

    def log(self, *lines: str) -> None:
        """Write lines to the core's log."""
        self._send(FromStitchMessage(command="logs", logs=lines))

    def send_to(self, instance: str, data: str, channel: str | None = None) -> None:
        """Send data to a stitch. There is no report whether it arrives.

        Args:
            instance: its id, or ``node:id``.
            data: any text.
            channel: the channel's name.

        Raises:
            AddressError: `instance` is not an address.
        """
        address = str(InstanceAddress.parse(instance))
        self._send(FromStitchMessage(command="data", data=data, data_channel=channel, to_stitch_instance_id=address))

    def send_to_group(self, name: str | GroupName, data: str) -> None:
        """Send data to all other stitches of a group, who get it with id 0 and without a channel."""
        self._send(FromStitchMessage(command="data", data=data, to_group_name=str(name)))

    def respond(self, message: ToStitchMessage, data: str) -> None:
        """Send data back to who sent `message`, with an id one above its.

        Raises:
            ValueError: it has no sender, or no id above its own.
        """
        sender = message.from_stitch_instance_id
        if not sender:
            raise ValueError(f"message {message.id} has no sender to respond to")
        if message.id == _LARGEST_ID:
            raise ValueError("a response has the id of its message plus one, which 64 bits cannot hold here")
        self._send(FromStitchMessage(command="data", id=message.id + 1, data=data, to_stitch_instance_id=sender))

    def sync(self, heartbeat_id: int) -> None:
        """Answer a heartbeat that was shown."""
        self._send(FromStitchMessage(command="sync", id=heartbeat_id))

    # Its end

    def close(self) -> None:
        """End the talk: the core sees the end of our output. Harmless when done before."""
        with self._changed:
            self._closed = True
        self._descriptors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        with self._changed:
            self._connection.user_returned()
            code = self._connection.exit_code
        self.close()
        if code is not None and kind is None:
            raise SystemExit(code)

    # Inside

    def _send(self, *messages: FromStitchMessage) -> None:
        with self._changed:
            self._check()
            data = b"".join(self._connection.send(message) for message in messages)
        self._write(data)
        with self._changed:
            self._check()

    def _check(self) -> None:
        """Refuse a call that comes too late; the caller has the lock."""
        if self._closed:
            self._connection.not_allowed("anything after close()")
        if self._exit_code is not None:
            raise SystemExit(self._exit_code)

    def _write(self, data: bytes) -> None:
        try:
            with self._write_lock:
                self._descriptors.write(data)
        except OSError:
            self._core_gone()

    def _take(self) -> ToStitchMessage | None:
        """The next message in the queue; the caller has the lock."""
        self._check()
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._exit_shown = message.channel_name == EXIT
        return message

    def _back_from_exit(self) -> None:
        """Who asks for a message after ``_exit`` was shown has returned; the caller has the lock."""
        if self._exit_shown:
            self._connection.user_returned()
            raise SystemExit(self._connection.exit_code)

    def _run(self) -> None:
        """The reader thread; whatever ends it, the program does not wait for ever."""
        try:
            self._read()
        finally:
            self._core_gone()

    def _read(self) -> None:
        fd = self._descriptors.read_fd
        if fd < 0:
            return  # closed before this thread began
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        looked = time.monotonic()
        while not self._closed and self._exit_code is None:
            left = looked + WATCH_SECONDS - time.monotonic()
            ready = poll.poll(max(0.0, left) * 1000)
            if time.monotonic() - looked >= WATCH_SECONDS:
                self._look_for_core()
                looked = time.monotonic()
            if not ready:
                continue
            try:
                data = self._descriptors.read(_CHUNK)
            except OSError:
                data = b""
            with self._changed:
                if data:
                    self._connection.receive_data(data)
                else:
                    self._report_if_lost()
                    self._connection.receive_eof()
            self._handle_events()
            if not data:
                return

    def _look_for_core(self) -> None:
        if self._watch is not None and self._watch.is_gone():
            self._core_gone()

    def _core_gone(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._report_if_lost()
            self._connection.core_gone()
        self._handle_events()

    def _report_if_lost(self) -> None:
        """Report once that this program has closed the descriptors, if it has; the caller has the lock."""
        if self._descriptors.lost and not self._lost:
            self._lost = True
            reports.line(f"descriptors_closed: {LOST}")

    def _handle_events(self) -> None:
        """Act on the connection's events."""
        while True:
            with self._changed:
                event = self._connection.next_event()
                if isinstance(event, Deliver):
                    self._messages.append(event.message)
                    self._wake()
                    if event.message.channel_name == EXIT:
                        end_within(EXIT_SECONDS, self._connection)
            if event is None:
                return
            if isinstance(event, Write):
                self._write(event.data)
            elif not isinstance(event, Deliver):
                self._leave(event.code)

    def _wake(self) -> None:
        """Wake who waits; the caller has the lock."""
        self._changed.notify_all()
        for future in self._futures:
            future.get_loop().call_soon_threadsafe(_finish, future)
        self._futures.clear()

    def _leave(self, code: int) -> None:
        """End the process: by SystemExit where it waits for a message, else at once."""
        with self._changed:
            if self._exit_code is not None or self._closed:
                return
            self._exit_code = code
            polite = self._waiting or bool(self._futures) or threading.current_thread() is threading.main_thread()
            if polite:  # before the main thread wakes: none should start while the interpreter ends
                end_within(EXIT_SECONDS, self._connection)
            self._wake()
        if not polite:
            end_now(code)

    def _await_reader(self) -> None:
        """Let the reader thread end before the interpreter does, where it is about to; Python kills it anywhere."""
        if self._exit_code is not None:
            self._reader.join(_READER_SECONDS)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
