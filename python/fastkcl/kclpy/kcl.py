"""Serves a record processor to the daemon that started this process, as amazon_kclpy.kcl does.

    line or message ─▶ input ─▶ KCLProcess._perform_action ─▶ processor ─▶ KCLProcess._report_done

Input and output can be any text files. If they are the real standard input and output, and no method that reads or
writes lines has been replaced, the Rust reader reads messages instead of `_IOHandler.read_line` and `load_action`. All
other code is the same. FASTKCL_VERBOSE, or the level DEBUG of the logger "fastkcl", logs which of the two is used, and
why.

When the processor raises, the default is that of the original: the error and its traceback are written to the error
file, and then the daemon gets a status. Another line names the records that are skipped by this.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from fastkcl import _core
from fastkcl.checks import check_choice
from fastkcl.kclpy import dispatch, messages
from fastkcl.kclpy.checkpoint_error import CheckpointError
from fastkcl.kclpy.pipe import (
    FORKED,
    GuardedOutput,
    Pipe,
    begin_lines,
    end_broken,
    end_lines,
    leave_lines,
    refuse_broken_lines,
)
from fastkcl.kclpy.v2 import processor as v2processor
from fastkcl.kclpy.v3 import processor as v3processor
from fastkcl.kclpy.variables import DEAD_LETTER_VARIABLE, ON_ERROR_VARIABLE, VERBOSE_VARIABLE
from fastkcl.processing.context import ShardContext
from fastkcl.processing.errors import MOST_REFUSALS, ProtocolError, RemoteProtocolError
from fastkcl.processing.failures import FailurePolicy, ProcessorError, failed, unfinished_shard
from fastkcl.stdio import reports
from fastkcl.stdio.descriptors import DescriptorsError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, NoReturn, TextIO

__all__ = [
    "CheckpointError",
    "Checkpointer",
    "KCLProcess",
    "RecordProcessorBase",
    "dispatch",
    "messages",
    "v2processor",
    "v3processor",
]

_METHODS = {
    "initialize": "initialize",
    "processRecords": "process_records",
    "leaseLost": "lease_lost",
    "shardEnded": "shard_ended",
    "shutdown": "shutdown",
    "shutdownRequested": "shutdown_requested",
}

_WHERE = "where a checkpoint waits for its reply"


class _IOHandler:
    """Reads messages and writes lines, on three text files."""

    def __init__(self, input_file: TextIO, output_file: TextIO, error_file: TextIO) -> None:
        self.input_file = input_file
        self.output_file = output_file
        self.error_file = error_file
        self.dialect: _core.Dialect = "modern"
        """Of our messages; `initialize` shows it."""
        self.failure: Exception | None = None
        """Why the dialogue cannot go on, also where user code has swallowed it."""
        self._stored = False
        """Whether the daemon has stored a checkpoint since this was last set to False."""
        self._output: Pipe | GuardedOutput | None = None

    def write_line(self, line: str) -> None:
        """Write a line, with a line feed before it: text before it must not become a part of it."""
        text = f"\n{line}\n"
        if self._output is not None:
            self._output.write(text)
        else:
            self.output_file.write(text)
            self.output_file.flush()

    def write_error(self, error_message: str) -> None:
        """Write a line to the error file."""
        self.error_file.write(f"{error_message}\n")
        self.error_file.flush()

    def read_line(self) -> str:
        """The next line of the input file, with its line feed; empty at the end."""
        return self.input_file.readline()

    def load_action(self, line: str | bytes) -> Any:
        """The input or checkpoint answer that a line stands for; None for a blank line.

        Raises:
            DecodeError: the line is not a valid message.
            MalformedAction: its action is missing or unknown.
        """
        try:
            message = _core.decode_line(line if isinstance(line, bytes) else _encoded(line))
        except _core.DecodeError as error:
            _raise_as_original(error)
        return None if message is None else self._input_of(message)

    def write_action(self, response: dict[str, Any]) -> None:
        """Write a message as a line of JSON."""
        action = response.get("responseFor")
        if action in _METHODS and response == {"action": "status", "responseFor": action}:
            # The only message that a child must write: importing json would be a tenth of its start.
            self.write_line(f'{{"action": "status", "responseFor": "{action}"}}')
            return
        import json

        self.write_line(json.dumps(response))

    def _receive(self) -> Any:
        """The next input or checkpoint answer; None at the end of input.

        Raises:
            DecodeError: a line is not a valid message.
            MalformedAction: its action is missing or unknown.
            OSError: reading failed.
        """
        if not isinstance(self._output, Pipe):
            while line := self.read_line():
                action = self.load_action(line)
                if action is not None:
                    return action
            return None
        try:
            message = self._output.receive()
        except _core.DecodeError as error:
            _raise_as_original(error)
        return None if message is None else self._input_of(message)

    def _input_of(self, message: _core.Message) -> Any:
        fields: dict[str, Any] = {"action": message.action}
        if isinstance(message, _core.ProcessRecords):
            if dispatch.message_decode is _MESSAGE_DECODE:
                return messages.input_of_batch(message.batch, dispatch._serializers)
            records = _core.kclpy_records(message.batch, messages.Record)
            fields["records"] = [dispatch.message_decode(record._json_dict) for record in records]
            fields["millisBehindLatest"] = message.millis_behind_latest
        if isinstance(message, _core.Initialize):
            self.dialect = message.dialect
            fields["shardId"] = message.shard_id
        if isinstance(message, (_core.Initialize, _core.Checkpoint)):
            fields["sequenceNumber"] = message.sequence_number
            fields["subSequenceNumber"] = message.sub_sequence_number
        if isinstance(message, _core.Checkpoint):
            fields["error"] = message.error
            self._stored = self._stored or message.error is None
        if isinstance(message, _core.Shutdown):
            fields["reason"] = message.reason
        return dispatch.message_decode(fields)


def _encoded(line: str) -> bytes:
    """Text that a file could not decode, and that JSON cannot hold, becomes invalid UTF-8 again."""
    try:
        return line.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogatepass")


def _is_ours(handler: Any) -> bool:
    """Whether a handler is an _IOHandler, and nothing that only passes for one, as a mock with a spec does."""
    return issubclass(type(handler), _IOHandler)


def _fail(handler: Any, error: Exception) -> Exception:
    """Note on any handler why the dialogue cannot go on; the first reason counts."""
    failure = getattr(handler, "failure", None)
    if isinstance(failure, Exception):
        return failure
    handler.failure = error
    return error


def _raise_as_original(error: _core.DecodeError) -> NoReturn:
    """Raise an invalid line as the original does: a MalformedAction where the action is wrong.

    Raises:
        MalformedAction: the action is missing or unknown.
        DecodeError: everything else.
    """
    if error.kind in ("unknown_action", "unknown_reason") or (error.kind, error.field) == ("missing_field", "action"):
        raise dispatch.MalformedAction(str(error)) from error
    raise error


class UnexpectedReplyError(CheckpointError, RemoteProtocolError):
    """A message came where a checkpoint waits for its reply: an InvalidStateException, as the original has it.

    Args:
        what: which message.
    """

    def __init__(self, what: str) -> None:
        RemoteProtocolError.__init__(self, "unexpected_message", what, "PROCESSING")
        self.value = "InvalidStateException"
        self.args = (self.value,)

    def __str__(self) -> str:
        return f"{self.value}: {RemoteProtocolError.__str__(self)}"


class Checkpointer:
    """Asks the daemon to store how far this shard is processed."""

    def __init__(self, io_handler: _IOHandler) -> None:
        self.io_handler = io_handler

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> None:
        """Store a position, so that everything up to it is never delivered again.

        Args:
            sequence_number: None for the end of everything delivered.
            sub_sequence_number: None for 0: the first user record of an aggregate, not the last one. The others come
                again after a restart.

        Raises:
            CheckpointError: the daemon refused; its `value` is the reason. The dialogue goes on.
            ValueError: `sub_sequence_number` without a sequence number, or above 0 with KCL 1.7 and older, which have
                no word for it. Nothing was written.
            UnexpectedReplyError: the daemon answered something else. A CheckpointError too; the run ends.
            RemoteProtocolError: the daemon has gone. The run ends.
            SystemExit: the program has tried ten times more after such an end.
        """
        handler = self.io_handler
        failure = getattr(handler, "failure", None)
        if isinstance(failure, Exception):
            self._refuse(failure)
        if sequence_number is None and sub_sequence_number:  # with 0 as without one
            raise ValueError(
                f"a sub-sequence number ({sub_sequence_number}) without a sequence number: the daemon would ignore it"
                " and checkpoint everything delivered"
            )
        response: dict[str, Any] = {"action": "checkpoint"}
        modern = _core.DIALECTS["modern"]
        if not _core.DIALECTS.get(getattr(handler, "dialect", "modern"), modern).sub_sequence_numbers:
            if sub_sequence_number:
                raise ValueError(
                    f"a sub-sequence number ({sub_sequence_number}) cannot be sent to KCL 1.7 and older: give none"
                )
            response["checkpoint"] = sequence_number
        else:
            response["sequenceNumber"] = sequence_number
            response["subSequenceNumber"] = sub_sequence_number
        try:
            handler.write_action(response)
        except BrokenPipeError as error:
            raise _fail(handler, _gone("writing a checkpoint")) from error
        action = self._get_action()
        if action is None:
            raise _fail(handler, RemoteProtocolError("closed_while_waiting", f"end of input {_WHERE}", "PROCESSING"))
        if not isinstance(action, messages.CheckpointInput):
            raise _fail(handler, UnexpectedReplyError(f"{action.action} came {_WHERE}"))
        if action.error is not None:
            raise CheckpointError(action.error)

    def _refuse(self, failure: Exception) -> NoReturn:
        """Raise the error that broke the dialogue again, but not for ever: programs retry until they succeed.

        Raises:
            Exception: the error.
            SystemExit: it was caught too often; the reason is on standard error.
        """
        self._refusals = getattr(self, "_refusals", 0) + 1  # a program's own __init__ may not know it
        if self._refusals <= MOST_REFUSALS:
            raise failure
        try:
            end_broken(failure)
        finally:
            if getattr(self.io_handler, "_output", None) is not None:
                _end_from_any_thread()

    def _get_action(self) -> Any:
        handler = self.io_handler
        try:
            return handler._receive() if _is_ours(handler) else handler.load_action(handler.read_line())
        except (_core.DecodeError, dispatch.MalformedAction, OSError) as error:
            if isinstance(error, _core.DecodeError) and error.kind == "not_an_object":
                raise _fail(handler, UnexpectedReplyError(f"a line that is not an object came {_WHERE}")) from error
            _fail(handler, error)
            raise


class RecordProcessorBase:
    """Processes the records of one shard (version 1); all but `shutdown_requested` must be overridden."""

    version = 1

    def initialize(self, shard_id: str) -> None:
        """The first call: which shard."""
        raise NotImplementedError

    def process_records(self, records: list[messages.Record], checkpointer: Checkpointer) -> None:
        """Process a list of records."""
        raise NotImplementedError

    def shutdown(self, checkpointer: Checkpointer, reason: str) -> None:
        """The last call.

        With reason TERMINATE the shard has ended: it has to be checkpointed, or its child shards do not start. With
        ZOMBIE the lease is another worker's: nothing can be checkpointed.
        """
        raise NotImplementedError

    def shutdown_requested(self, checkpointer: Checkpointer) -> None:
        """The daemon is about to stop: the last chance to checkpoint."""


class KCLProcess:
    """Serves one record processor.

    A method that returns a coroutine or a generator has done nothing, and counts as one that has raised.

    Args:
        record_processor: an object with the methods of its `version`: 1, 2 or 3.
        input_file: text file that the daemon's lines are read from.
        output_file: text file that lines for the daemon are written to.
        error_file: text file for errors and tracebacks.
        on_error: when the processor raises: "skip" sends a status to the daemon, as amazon_kclpy does, and reports
            the skipped records on the error file; "stop" ends the process with 1 and without a status, so that the
            records are delivered again. None takes FASTKCL_ON_ERROR, or "skip". Either way a failure after the lease
            is lost is skipped, and user code that waits for a person (``breakpoint()``, ``input()``) stops.
        dead_letter: folder in which a batch that the processor raised for is stored as an Arrow IPC file, before the
            daemon gets the status. None takes FASTKCL_DEAD_LETTER, or no folder. A batch without records
            leaves no file.

    Raises:
        TypeError: the processor has no attribute `version`.
        ValueError: another `on_error`.
        OSError: `dead_letter` cannot be written to.
    """

    def __init__(
        self,
        record_processor: Any,
        input_file: TextIO = sys.stdin,
        output_file: TextIO = sys.stdout,
        error_file: TextIO = sys.stderr,
        *,
        on_error: Literal["stop", "skip"] | None = None,
        dead_letter: str | os.PathLike[str] | None = None,
    ) -> None:
        version = getattr(record_processor, "version", None)
        if version is None:
            raise TypeError(
                f"{type(record_processor).__name__} has no attribute version: derive it from RecordProcessorBase, or"
                " set version = 1, 2 or 3"
            )
        self.io_handler = _IOHandler(input_file, output_file, error_file)
        self.checkpointer = Checkpointer(self.io_handler)
        self.processor = record_processor
        if version == 1:
            self.processor = v2processor.V1toV2Processor(self.processor)
        if version in (1, 2):
            self.processor = v3processor.V2toV3Processor(self.processor)
        self._failures = FailurePolicy(
            on_error=on_error or _from_environment(),
            retries=0,
            backoff=0,
            dead_letter=dead_letter or os.environ.get(DEAD_LETTER_VARIABLE) or None,
            report=self._report,
        )
        self._shard_id = "unknown shard"
        self._serving_pid: int | None = None
        self._stopped: SystemExit | None = None

    def run(self) -> None:
        """Answer the daemon until its input ends.

        May be called again after an exception has left it: the next message is read then, also by another object. A
        request that was interrupted gets no status. Where `on_error` has stopped the run, or the dialogue is broken,
        another call ends the process.

        Raises:
            SystemExit: user code ended the process, or failed and `on_error` is "stop"; or an earlier run was left in a
                way that this one cannot continue from; the reason is on standard error.
            DecodeError, MalformedAction: an invalid line of the daemon.
            RemoteProtocolError: the daemon has gone, or broke the protocol.
            RuntimeError: a forked child has come back into the run of its parent.
        """
        handler = self.io_handler
        try:
            self._check()
        except Exception as error:
            end_broken(error)
        if self._stopped is not None:
            end_broken(self._stopped)
        refuse_broken_lines(getattr(handler, "input_file", None))
        self._serving_pid = os.getpid()
        output = self._take()
        if output is not None:
            handler._output = output
        try:
            if isinstance(output, Pipe):
                while (action := handler._receive()) is not None:
                    records = self._answer(action)
                    del action
                    _core.kclpy_detach(records)
                    del records
            else:
                begin_lines(getattr(handler, "input_file", None))
                while line := handler.read_line():
                    self._handle_a_line(line)
                end_lines()
        except BaseException:
            if isinstance(output, Pipe):
                output.leave(self._stopped or handler.failure)
                output = None
            else:
                forked = RuntimeError(FORKED) if self._serving_pid not in (None, os.getpid()) else None
                if (broken := self._stopped or getattr(handler, "failure", None) or forked) is not None:
                    leave_lines(getattr(handler, "input_file", None), broken)
            raise
        finally:
            if output is not None:
                output.close()
                handler._output = None
            if self._serving_pid == os.getpid():
                self._serving_pid = None

    def _take(self) -> Pipe | GuardedOutput | None:
        """Take the real standard input and output away from everybody else, as far as that can be done."""
        handler = self.io_handler
        changed = self._changed_writing() or self._changed_reading()
        if changed is None:
            try:
                pipe = Pipe.take(handler.input_file, handler.output_file)
            except (DescriptorsError, RuntimeError) as error:
                changed = str(error)
            else:
                if pipe.shard is not None:
                    handler.dialect, self._shard_id = pipe.shard.dialect, pipe.shard.shard_id
                self._explain("messages are read by the Rust reader")
                return pipe
        Pipe.refuse_others(getattr(handler, "input_file", None), changed)
        output = None if self._changed_writing() else GuardedOutput.take(handler.output_file)
        self._explain(f"messages are read as lines of text: {changed}")
        return output

    def _changed_reading(self) -> str | None:
        """The program's replacement of the reading of lines."""
        return _changed(self.io_handler, _IOHandler, "read_line", "load_action") or _changed(
            self, KCLProcess, "_handle_a_line"
        )

    def _changed_writing(self) -> str | None:
        """The program's replacement of the writing of lines; it would miss the private descriptors."""
        handler, checkpointer = self.io_handler, self.checkpointer
        if type(handler) is not _IOHandler:
            return f"the io_handler is of the program's own class {type(handler).__name__}"
        if getattr(checkpointer, "io_handler", None) is not handler:
            return "the checkpointer has another io_handler"
        return (
            _changed(handler, _IOHandler, "write_line", "write_action")
            or _changed(checkpointer, Checkpointer, "checkpoint", "_get_action")
            or _changed(self, KCLProcess, "_report_done")
        )

    def _explain(self, how: str) -> None:
        """Log how messages are read, if asked for."""
        if os.environ.get(VERBOSE_VARIABLE):
            self._report(how)
        # Nobody has chosen a level without it; a program's own module of that name has no loggers.
        get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if get_logger is not None:
            get_logger("fastkcl").debug(how)

    def _handle_a_line(self, line: str) -> None:
        action = self.io_handler.load_action(line)
        if action is None:
            return
        records = self._answer(action)
        del action
        _core.kclpy_detach(records)

    def _answer(self, action: Any) -> tuple[messages.Record, ...]:
        """Have the processor answer, and send the status.

        Returns:
            The records of the batch, which is over when nobody holds `action` any more.
        """
        self._perform_action(action)
        self._check()  # also for one that is overridden, and swallows
        self._report_done(action.action)
        if not isinstance(action, messages.ProcessRecordsInput):
            return ()
        records, action._received = action._received, ()
        return records

    def _perform_action(self, action: Any) -> None:
        if isinstance(action, messages.CheckpointInput):
            raise RemoteProtocolError("unexpected_message", "a checkpoint's reply that nobody waits for", "READY")
        if isinstance(action, messages.InitializeInput):
            self._shard_id = action.shard_id
        ends_shard = isinstance(action, messages.ShardEndedInput)
        if ends_shard and _is_ours(self.io_handler):
            self.io_handler._stored = False
        try:
            action.dispatch(self.checkpointer, self.processor)
        except Exception as error:
            self._check()
            self._handle_error(action, error)
        self._check()
        if ends_shard and self._misses_checkpoint():
            self._report(unfinished_shard(self._method_of(action), self._context()))

    def _report_done(self, response_for: str | None = None) -> None:
        try:
            self.io_handler.write_action({"action": "status", "responseFor": response_for})
        except BrokenPipeError as error:
            raise _fail(self.io_handler, _gone(f"writing the status of {response_for}")) from error

    def _check(self) -> None:
        """Stop where the dialogue is broken, whatever user code has made of that.

        Raises:
            Exception: the error that broke it.
            RuntimeError: this process is a forked child, whose parent goes on with the dialogue.
        """
        if self._serving_pid not in (None, os.getpid()):
            raise RuntimeError(FORKED)
        for handler in (self.io_handler, getattr(self.checkpointer, "io_handler", None)):
            failure = getattr(handler, "failure", None)
            if isinstance(failure, Exception):
                raise failure

    def _handle_error(self, action: Any, error: Exception) -> None:
        """Report the failure; return if the daemon gets a status all the same.

        Raises:
            SystemExit: it is not.
        """
        text = reports.formatted(error, reports.frames_of(error))
        self._write_error(f"Caught exception from action dispatch: {reports.text_of(error)}{text}")
        context = self._context()
        batch = action._batch if isinstance(action, messages.ProcessRecordsInput) else None
        what = failed(self._method_of(action), error, context, batch)
        try:
            self._failures.refuse_questions(error, what)
            if isinstance(action, messages.LeaseLostInput):
                self._failures.pass_lost_lease(what)
            else:
                self._failures.settle(what, text, context, batch)
        except ProcessorError:
            self._stopped = SystemExit(reports.EXIT_FAILURE)
            _end_from_any_thread()
            raise self._stopped from None
        # Unprocessed records are stored; a processor that holds its checkpoints back for it need not do so.
        pass_unprocessed = getattr(self.processor, "pass_unprocessed", None)
        if batch is not None and len(batch) > 0 and self._failures.stores and pass_unprocessed is not None:
            pass_unprocessed()

    def _write_error(self, text: str) -> None:
        """Write to the error file, or to standard error where that fails: no batch may hang on it."""
        error_file = self.io_handler.error_file
        try:
            error_file.write(reports.without_controls(text))
            error_file.flush()
        except Exception:
            reports.write(text)

    def _report(self, text: str) -> None:
        line = reports.as_report(text)
        try:
            self.io_handler.write_error(line)
        except Exception:
            reports.write(f"{line}\n")

    def _context(self) -> ShardContext:
        return ShardContext(
            stream=os.environ.get("FASTKCL_STREAM"),
            shard_id=self._shard_id,
            sequence_number=None,
            sub_sequence_number=None,
            dialect=getattr(self.io_handler, "dialect", "modern"),
        )

    def _method_of(self, action: Any) -> str:
        """The name of the user's method that answers an action."""
        if isinstance(action, messages.LeaseLostInput | messages.ShardEndedInput):
            if isinstance(self.processor, v3processor.V2toV3Processor):
                return "shutdown"
            return "lease_lost" if isinstance(action, messages.LeaseLostInput) else "shard_ended"
        return str(_METHODS.get(action.action, action.action))

    def _misses_checkpoint(self) -> bool:
        """Whether a daemon has stored none since the action of the moment began, as far as can be seen here.

        Text files in memory are a test's, which knows its messages.
        """
        handler = self.io_handler
        return (
            _is_ours(handler)
            and handler._output is not None
            and _changed(handler, _IOHandler, "load_action", "_receive", "_input_of") is None
            and not handler._stored
        )


# Methods that users may have replaced later on, in the classes or in objects.
_AS_HERE: dict[tuple[type, str], Any] = {
    (cls, name): function
    for cls in (_IOHandler, Checkpointer, KCLProcess)
    for name, function in vars(cls).items()
    if not name.startswith("__")
}
_MESSAGE_DECODE = dispatch.message_decode


def _changed(thing: object, cls: type, *names: str) -> str | None:
    """Which of these methods of an object is not the one that this module gives it."""
    for name in names:
        if name in getattr(thing, "__dict__", {}) or getattr(type(thing), name, None) is not _AS_HERE[cls, name]:
            return f"{cls.__name__}.{name} is replaced by the program"
    return None


def _from_environment() -> Any:
    """The value of FASTKCL_ON_ERROR.

    Raises:
        ValueError: neither "stop" nor "skip".
    """
    value = os.environ.get(ON_ERROR_VARIABLE) or "skip"
    check_choice(ON_ERROR_VARIABLE, value, "stop", "skip")
    return value


def _end_from_any_thread() -> None:
    """End the process where a SystemExit would end a thread only."""
    # Nobody has started a thread without it; a program's own module of that name starts none.
    main_thread = getattr(sys.modules.get("threading"), "main_thread", None)
    if main_thread is not None and get_ident() != main_thread().ident:
        os._exit(reports.EXIT_FAILURE)


def _gone(what: str) -> ProtocolError:
    return RemoteProtocolError("closed_while_waiting", f"the daemon does not read any more, {what}", "PROCESSING")
