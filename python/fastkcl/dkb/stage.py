"""`ProcessorStage`: one step of a pipeline, as a program that a supervisor, a shell or a person starts.

    input ─▶ MarkerReader ─▶ WorkerConnection ─▶ process(message or batch) ─▶ results EOP, one write ─▶ output
                                   │ BNC, EOP alone
                                   └──────────────────────────────────────────────────────────────────▶

    class Upper(ProcessorStage):
        def process(self, message):
            self.output(message.content().upper())
            return True

    stage = Upper()
    stage.set_input_message_type("text")
    stage.set_output_message_type("text")
    sys.exit(stage.run())

The return value of process, and the effect on its results:

    True       results of the request are written, then EOP, in one write
    False      results are dropped, EOP alone
    exception  results are dropped, no EOP, the traceback on standard error, exit code 1

In batches process gets a list of messages; with the input type ``"arrow"`` it gets a `fastkcl.dkb.MessageBatch`
instead, whose columns are filled in Rust: data (binary, as it came) and number (int64, of the message in its input).

A message that cannot be read is reported and passed over; it is never given to process. The pipes of the protocol are
private while a stage runs: prints go to standard error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

from fastkcl import DecodeError, ProtocolError
from fastkcl._core import DEFAULT_MAX_MESSAGE_BYTES, MarkerReader, MessageBatch, message_batch
from fastkcl.dkb.arguments import Options, parse_arguments, read_config
from fastkcl.dkb.connection import WorkerConnection
from fastkcl.dkb.errors import StageError
from fastkcl.dkb.files import OutputFile, input_files, output_path
from fastkcl.dkb.log import log
from fastkcl.dkb.messages import JSONMessage, Message, MessageType, message_class
from fastkcl.processing.processor import refuse_deferred_result
from fastkcl.stdio import process, reports
from fastkcl.stdio.descriptors import Descriptors
from fastkcl.stdio.signals import SignalWatch

__all__ = ["Input", "ProcessorStage"]

reports.skip_frames_of("fastkcl.dkb")

Input: TypeAlias = "Message | list[Message] | MessageBatch | None"
"""The argument of process: a message, a batch of them, or None, the trigger of an extraction stage."""

ARROW = "arrow"
_NO_LIMIT = 2**62
DEFAULT_SHUTDOWN_GRACE = 30.0


class _Output(Protocol):
    def write(self, data: bytes) -> None: ...


class ProcessorStage:
    """A stage of a pipeline. Override `process`, or set it to a function of the stage and its input.

    Args:
        description: for ``--help``.
    """

    extract: ClassVar[bool] = False
    """An empty message is not unreadable but the trigger of an extraction: process gets None for it."""
    process: Callable[..., bool]

    def __init__(self, description: str = "") -> None:
        self.CONFIG: dict[str, dict[str, str]] = {}
        """Sections of the file given with ``--config``."""
        self.ARGS: Options | None = None
        """The options of the command line."""
        self._description = description or (type(self).__doc__ or "").partition("\n")[0]
        self._input_class: type[Message] | None = JSONMessage  # None for columns
        self._output_class: type[Message] = JSONMessage
        self._batch_size = 1
        self._max_message_bytes = DEFAULT_MAX_MESSAGE_BYTES
        self._buffer: list[bytes] = []
        self._flushed: list[bytes] = []
        self._stopping = False
        self._connection: WorkerConnection | None = None
        self._out: _Output | None = None

    # The parts of a stage.

    def set_input_message_type(self, message_type: MessageType) -> None:
        """The input type: ``"json"`` (the default), ``"ttl"``, ``"text"``, ``"bytes"``, or ``"arrow"`` for columns.

        Raises:
            ValueError: another type.
        """
        self._input_class = None if message_type == ARROW else message_class(message_type)

    def set_output_message_type(self, message_type: MessageType) -> None:
        """The output type: ``"json"`` (the default), ``"ttl"``, ``"text"`` or ``"bytes"``.

        Raises:
            ValueError: another type.
        """
        self._output_class = message_class(message_type)

    def set_batch_size(self, size: int) -> None:
        """1: message by message; n: batches that the stage asks for; 0: batches that the supervisor ends.

        Raises:
            ValueError: below 0.
        """
        if size < 0:
            raise ValueError(f"batch size {size}: use 0, 1 or more")
        self._batch_size = size

    def configure(self, arguments: Sequence[str] | None = None) -> None:
        """Take the command line.

        Args:
            arguments: without the program's name; None for those of this process.

        Raises:
            SystemExit: they are wrong, which is logged; or ``--help``.
        """
        try:
            self._configure(arguments)
        except StageError as error:
            self.log(str(error), "ERROR")
            raise SystemExit(error.exit_code) from None

    def _configure(self, arguments: Sequence[str] | None) -> None:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments, self._description)
        if options.config is not None:
            self.CONFIG = read_config(options.config)
        if options.batch_size is not None:
            self._batch_size = options.batch_size
        if options.skip:
            self._batch_size = 1
            if self._input_class is not JSONMessage:
                raise StageError("arguments", "--skip: only JSON messages can be marked incomplete", 2)
        if self.extract and self._batch_size != 1:
            raise StageError("arguments", "an extraction stage gets one trigger at a time: --batch-size 1", 2)
        self.ARGS = options

    # For process.

    def output(self, message: object) -> None:
        """Add a result, or a list of them: messages, or contents of the output type.

        Raises:
            TypeError: of another type.
            ValueError: it cannot be written.
        """
        for one in message if isinstance(message, list) else [message]:
            result = one if isinstance(one, Message) else self._output_class(one)
            self._buffer.append(result.write())

    def log(self, text: str, level: str = "INFO") -> None:
        """Write an entry to the log, standard error."""
        log(level, type(self).__name__, text)

    def stop(self) -> None:
        """End after the current request, as if the input had ended there."""
        self._stopping = True

    # The loop, in parts.

    def run(self) -> int:
        """Process everything.

        Returns:
            The exit code: 0 fine, 1 failure, 2 wrong arguments, 3 a config file that cannot be parsed, 128 + n after
            a signal. The reason is in the log.
        """
        try:
            if self.ARGS is None:
                self.configure()
            assert self.ARGS is not None
            if "s" in (self.ARGS.source, self.ARGS.dest):
                if self.ARGS.source == "f":
                    _give_up_standard_input()
                elif os.isatty(0):
                    raise StageError(
                        "arguments", "standard input is a terminal: pipe messages in, or read files with --mode f", 2
                    )
                process.run(self._serve, DEFAULT_SHUTDOWN_GRACE)
            else:
                self._work()
        except StageError as error:
            self.log(str(error), "ERROR")
            return error.exit_code
        except OSError as error:
            self.log(f"input or output failed: {error}", "ERROR")
            return reports.EXIT_FAILURE
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else reports.EXIT_FAILURE
        return reports.EXIT_CLEAN

    def input(self) -> Iterator[Input]:
        """The requests, one after another; each has to be answered with `forward` before the next is asked for.

        Raises:
            ProtocolError: it was not.
            StageError: a file cannot be read or written.
            DecodeError: a message is longer than it may be.
        """
        options = self.ARGS
        assert options is not None, "configure first"
        if options.source == "s":
            out = self._out or OutputFile(output_path(options.output_dir, None, self._output_class.extension))
            yield from self._file_or_stream(self._read_stream, out)
            return
        extension = ".json" if self._input_class is None else self._input_class.extension
        for path in input_files(options.input_dir, options.files, extension):
            if self._stopping:
                return
            out = self._out or OutputFile(output_path(options.output_dir, path, self._output_class.extension))
            yield from self._file_or_stream(lambda path=path: self._read_file(path), out)  # type: ignore[misc]

    def flush_buffer(self) -> None:
        """Let the results so far be written by `forward`."""
        self._flushed += self._buffer
        self._buffer = []

    def clear_buffer(self) -> None:
        """Drop the results that are not flushed."""
        self._buffer = []

    def forward(self) -> None:
        """Answer the request of the moment: its flushed results and EOP, in one write.

        Raises:
            LocalProtocolError: a result holds a marker, or there is no request.
            OSError: writing failed.
        """
        assert self._connection is not None, "there is no request"
        results, self._flushed = self._flushed, []
        self._write(self._connection.send_results(results))

    # Insides.

    def _serve(self, descriptors: Descriptors, signals: SignalWatch) -> None:
        """Work with the protocol's descriptors."""
        assert self.ARGS is not None
        self._descriptors, self._signals = descriptors, signals
        if self.ARGS.dest == "s":
            self._out = descriptors
        self._work()

    def _work(self) -> None:
        try:
            for request in self.input():
                self._process(request)
        except ProtocolError as error:
            self._give_up(str(error))
        except DecodeError as error:
            self._give_up(f"{error}; its beginning: {reports.context(error.context)}")

    def _process(self, request: Input) -> None:
        assert self.ARGS is not None
        here = os.getpid()
        try:
            done = self._skip(request) if self.ARGS.skip else self._call(request)
        except StageError:
            raise
        except Exception as error:
            reports.traceback_lines(reports.traceback_text(error))
            self._give_up(f"process failed with {reports.describe(error)}; the request is not answered")
        if os.getpid() != here:
            self._give_up("a forked child came back into the stage of its parent; end it with os._exit")
        if done:
            self.flush_buffer()
        else:
            self.clear_buffer()
        self.forward()

    def _call(self, request: Input) -> bool:
        own = vars(self).get("process")
        method = getattr(self, "process", None)
        if method is None:
            raise TypeError(f"{type(self).__name__} does not define process(message)")
        result = own(self, request) if own is not None else method(request)
        refuse_deferred_result(f"{type(self).__name__}.process", result)
        if not isinstance(result, bool):
            raise TypeError(f"process returned {result!r}: True writes the results of the request, False drops them")
        return result

    def _skip(self, request: Input) -> bool:
        assert isinstance(request, Message)
        if not isinstance(request.content(), dict):
            raise StageError("message", f"--skip: only a JSON object can be marked incomplete, not {request!r:.200}")
        request.incomplete(True)
        self.output(request)
        return True

    def _file_or_stream(self, requests: Callable[[], Iterator[Input]], out: _Output) -> Iterator[Input]:
        """The requests of one input, answered into `out`, which is finished with it if it is a file."""
        assert self.ARGS is not None
        before, self._out = self._out, out
        markers = self.ARGS.markers
        if "f" in (self.ARGS.source, self.ARGS.dest):  # nobody there to talk with
            markers = markers._replace(end_of_batch=b"", batch_not_complete=b"")
        self._connection = WorkerConnection(markers, self._batch_size)
        self._eob = markers.end_of_batch if self._batch_size != 1 else b""
        try:
            yield from requests()
            if isinstance(out, OutputFile):
                out.finish()
        finally:
            if isinstance(out, OutputFile):
                out.discard()
            self._out = before

    def _read_stream(self) -> Iterator[Input]:
        return self._requests(self._descriptors.read_fd, self._signals)

    def _read_file(self, path: Path) -> Iterator[Input]:
        assert self.ARGS is not None
        assert self._connection is not None
        try:
            if self.ARGS.markers.end_of_message:
                with path.open("rb") as file:
                    yield from self._requests(file.fileno(), None)
                return
            data = path.read_bytes()
        except OSError as error:
            raise StageError("file", f"{path}: cannot be read: {error.strerror}") from None
        self._connection = WorkerConnection(self.ARGS.markers, 1)
        request = message_batch([data]) if self._input_class is None else self._message(data)
        if request is None and not self.extract:
            self._write(self._connection.receive("unreadable"))
            return
        self._connection.receive_messages()
        yield [request] if self._batch_size != 1 and isinstance(request, Message) else request

    def _requests(self, fd: int, signals: SignalWatch | None) -> Iterator[Input]:
        """The arguments of process, from a descriptor; BNC and bare EOPs are written on the way."""
        assert self.ARGS is not None
        connection = self._connection
        assert connection is not None
        reader = MarkerReader(
            fd,
            end_of_message=self.ARGS.markers.end_of_message,
            at_boundary=self._eob or None,
            wakeup_fd=None if signals is None else signals.wakeup_fd,
            max_message_bytes=self._max_message_bytes,
        )
        if signals is not None:
            signals.limit_reads(reader.set_deadline)
        columns = self._input_class is None
        batch: list[Message] = []
        answered = 0  # messages in the columns that the connection knows of
        while connection.state != "CLOSED" and not (self._stopping and connection.state == "IDLE"):
            if signals is not None:
                signals.watch()
            try:
                event = reader.read_run(connection.room or _NO_LIMIT) if columns else reader.read()
            except TimeoutError:
                assert signals is not None
                signals.stop_after_grace(f"in state {connection.state}")
            finally:
                if signals is not None:
                    signals.unwatch()
            if signals is not None:
                signals.check()
            if columns:
                answer = connection.receive_messages(reader.collected - answered)
                answered = reader.collected
            else:
                answer = b""
            if event is None:
                answer += connection.receive("eof")
            elif event.kind == "at_boundary":
                answer += connection.receive("end_of_batch")
            elif event.kind == "truncated":
                rest = event.data or b""
                self._warn(f"{len(rest)} bytes at the end of input without EOM are dropped: {reports.context(rest)}")
                answer += connection.receive("truncated")
            elif event.kind == "message":
                if columns:
                    raise StageError("message", "a batch of more than 2 GiB: use smaller batches")
                assert event.data is not None
                message = self._message(event.data)
                if message is None and self.extract and not event.data:
                    connection.receive_messages()
                    yield None
                    continue
                if message is None:
                    answer = connection.receive("unreadable")
                else:
                    batch.append(message)
                    answer = connection.receive_messages()
            self._write(answer)
            if connection.state in ("PROCESSING", "LAST"):
                yield reader.take_batch() if columns else batch if self._batch_size != 1 else batch[0]
                batch, answered = [], 0

    def _message(self, data: bytes) -> Message | None:
        """The message of these bytes; None, with a warning where it is not a trigger, if it cannot be read."""
        assert self._input_class is not None
        if self.extract and not data:
            return None
        try:
            return self._input_class.read(data)
        except ValueError as error:
            what = f"{self._input_class.type}: {error}"
            self._warn(f"a message of {len(data)} bytes cannot be read as {what}; it begins {reports.context(data)}")
            return None

    def _write(self, data: bytes) -> None:
        if data:
            assert self._out is not None
            self._out.write(data)

    def _warn(self, text: str) -> None:
        self.log(text, "WARN")

    def _give_up(self, text: str) -> NoReturn:
        self.log(text, "ERROR")
        raise SystemExit(reports.EXIT_FAILURE)


def _give_up_standard_input() -> None:
    """Read nothing from it: a stage with files as its source may be started from a terminal."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def contents(request: Input) -> Any:  # noqa: ANN401 - a message's content
    """The content of each message, in the shape of the request."""
    if isinstance(request, list):
        return [message.content() for message in request]
    return request.content() if isinstance(request, Message) else request


def results_of(value: object) -> Iterable[object]:
    """A function's return value, as results: None is none, a list or an iterator is many, anything else is one."""
    if value is None:
        return ()
    return value if isinstance(value, list | Iterator) else (value,)
