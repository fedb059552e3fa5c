"""The reaction to a method of the processor that raises: stop, try again, store, or skip.

A child that exits takes its daemon down, the leases move, and the batch is delivered again, to fail again: a poison
record wanders from host to host. A child that goes on reports a batch as processed that was not. No default is right
for everybody:

    retries=n         first of all: the same call again, in place, with growing pauses. The daemon sees a slow child
    dead_letter=DIR   then the records are written to DIR with the error, synced, and the shard goes on. Nothing is
                      lost; if the file cannot be written, stop
    on_error="skip"   or they are given up: a line names their positions
    on_error="stop"   or the run ends without a status (default)

The processor names the records (`BatchProcessor.give_up`). Usually it is the batch that process_batch failed on; a
processor that buffers gives up all unwritten records, in shard_ended and shutdown_requested too. These methods are
called again then, as the checkpoint that they have to make is possible now. If no records are given up, `on_error`
decides alone.

A failing lease_lost is reported, and its status sent: the records are another worker's, so none can be lost, and a stop
would only end the daemon with its other shards.

This does not concern a protocol error, a daemon that is gone, SystemExit, KeyboardInterrupt and other exceptions
that are no Exception, and a failing `initialize`. Nor does it concern user code that waits for a person, as
``breakpoint()`` and ``input()`` do: they find no terminal, with any batch, and the run ends.
"""

from __future__ import annotations

import sys

from fastkcl.checks import check_choice, check_not_negative, check_whole_number
from fastkcl.processing.counters import UNCOUNTED
from fastkcl.processing.errors import ConfigurationError, ProtocolError
from fastkcl.stdio import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from typing import Literal, NoReturn

    from fastkcl._core import Record, RecordBatch
    from fastkcl.processing.context import ShardContext
    from fastkcl.processing.counters import Counters
    from fastkcl.processing.dead_letters import DeadLetters
    from fastkcl.processing.host import Host

reports.skip_frames_of("fastkcl.processing")


class ProcessorError(Exception):
    """A method of the processor has failed for good: the host has to end the run. The failure is reported already."""


class FailurePolicy:
    """The choice of one run, checked when it is made.

    Args:
        on_error: "stop" or "skip".
        retries: how often a failed call is repeated first.
        backoff: seconds before the first retry, doubled before each further one.
        dead_letter: folder for records that failed; made if it is missing.
        report: writes a line.
        counters: they count stored and skipped records.

    Raises:
        ValueError: an argument out of range.
        TypeError: `retries` is not a whole number.
        OSError: `dead_letter` cannot be made or written to.
    """

    __slots__ = ("_backoff", "_counters", "_dead_letters", "_on_error", "_report", "_retries")

    def __init__(
        self,
        *,
        on_error: Literal["stop", "skip"],
        retries: int,
        backoff: float,
        dead_letter: str | os.PathLike[str] | None,
        report: Callable[[str], None] = reports.line,
        counters: Counters = UNCOUNTED,
    ) -> None:
        check_choice("on_error", on_error, "stop", "skip")
        check_whole_number("retries", retries)
        check_not_negative(retries=retries, retry_backoff=backoff)
        self._on_error = on_error
        self._retries = retries
        self._backoff = backoff
        self._report = report
        self._counters = counters
        self._dead_letters: DeadLetters | None = None
        if dead_letter is not None:
            from fastkcl.processing.dead_letters import DeadLetters

            self._dead_letters = DeadLetters(dead_letter)

    @property
    def stores(self) -> bool:
        """Whether a batch that failed is stored, and so nothing of it is lost when it is passed."""
        return self._dead_letters is not None

    def call(
        self,
        method: Callable[[], None],
        name: str,
        host: Host,
        context: ShardContext,
        batch: RecordBatch | None = None,
        give_up: Callable[[RecordBatch | None], Sequence[RecordBatch]] | None = None,
    ) -> None:
        """Call a method of the processor. On return its request can be answered.

        Args:
            method: the call.
            name: the method's name.
            host: who calls.
            context: the shard.
            batch: for process_batch: its records.
            give_up: lets go of the records in the way; None for a method that has nothing to do with records.

        Raises:
            ProcessorError: the run has to end.
            ProtocolError: the dialogue is broken, whatever the method made of that.
        """
        failure = self._attempts(method, name, host, context, batch)
        if failure is None:
            return
        what, traceback = failure
        if name == "lease_lost":
            self.pass_lost_lease(what)
            return
        if name == "initialize" or (self._on_error == "stop" and self._dead_letters is None):
            self._stop(what)
        unwritten = None if give_up is None else self._given_up(give_up, what, host, batch)
        self.settle(what, traceback, context, batch, unwritten)
        if batch is None and unwritten:
            self.call(method, name, host, context)

    def _attempts(
        self,
        method: Callable[[], None],
        name: str,
        host: Host,
        context: ShardContext,
        batch: RecordBatch | None,
    ) -> tuple[str, str] | None:
        """Call the method, again as often as chosen; returns the failure and the traceback, None if it succeeded."""
        retries = 0 if name == "initialize" else self._retries
        attempt = 0
        while True:
            try:
                method()
            except Exception as error:
                traceback = _raised(error, host)
                what = failed(name, error, context, batch)
                self.refuse_questions(error, what)
            else:
                host.check()
                return None
            if attempt == retries:
                return what, traceback
            self._report(f"retry: {what}; {retries - attempt} more to go")
            if not host.may_retry(name, self._backoff, attempt):
                raise ProcessorError
            attempt += 1

    def _given_up(
        self,
        give_up: Callable[[RecordBatch | None], Sequence[RecordBatch]],
        what: str,
        host: Host,
        batch: RecordBatch | None,
    ) -> list[RecordBatch]:
        try:
            unwritten = _with_records(give_up(batch))
        except Exception as error:
            _raised(error, host)
            self._stop(f"{what}; and give_up failed with {reports.describe(error)}")
        host.check()
        return unwritten

    def settle(
        self,
        what: str,
        traceback: str,
        context: ShardContext,
        batch: RecordBatch | None,
        unwritten: Sequence[RecordBatch] | None = None,
    ) -> None:
        """Apply the chosen reaction to a call that failed for good. On return its request can be answered.

        Args:
            what: the text of `failed`.
            traceback: for the dead letter.
            context: the shard.
            batch: for a call with records.
            unwritten: the records in question; None for those of the batch.

        Raises:
            ProcessorError: the run has to end.
        """
        if unwritten is None:
            unwritten = [] if batch is None else [batch]
        unwritten = _with_records(unwritten)
        these = "these records" if len(unwritten) == 1 and unwritten[0] is batch else _records(unwritten)
        if self._dead_letters is not None and unwritten:
            try:
                path = self._dead_letters.store(unwritten, context, what, traceback)
            except (OSError, ValueError) as error:
                self._stop(f"{what}; and dead_letter={self._dead_letters.folder} could not be written: {error}")
            self._counters.stored(sum(map(len, unwritten)))
            self._report(f"dead_letter: {what}; {these} are stored in {path}")
        elif self._dead_letters is not None and batch is not None:
            self._report(f"dead_letter: {what}; no record had to be stored")
        elif self._on_error == "skip":
            self._counters.skipped(sum(map(len, unwritten)))
            told = f"{these} are reported as processed without having been" if unwritten else "it is skipped"
            self._report(f"skip: {what}; {told}")
        else:
            self._stop(what)

    def pass_lost_lease(self, what: str) -> None:
        """Report that lease_lost has failed for good; its request can be answered.

        Args:
            what: the text of `failed`.
        """
        self._report(f"skip: {what}; the lease is another worker's by now, so no record is lost by it")

    def refuse_questions(self, error: Exception, what: str) -> None:
        """Stop where user code has waited for a person.

        Args:
            error: its exception, maybe raised instead of the exception of the waiting.
            what: the text of `failed`.

        Raises:
            ProcessorError: it has.
        """
        # Nobody has quit a debugger without its module; a program's own one of that name has no such class.
        quitting = getattr(sys.modules.get("bdb"), "BdbQuit", ())
        for each in _with_its_causes(error):
            if issubclass(type(each), quitting):
                self._stop(
                    f"{what}: a debugger has quit, which it does by itself where standard input is not a terminal; take"
                    " breakpoint() out, set PYTHONBREAKPOINT=0, or use a debugger that listens on a socket"
                )
            if _is_unanswered(each):
                self._stop(
                    f"{what}: user code has asked for input, and standard input is at its end: a child of a daemon has"
                    " nobody to ask; take input() out"
                )

    def _stop(self, what: str) -> NoReturn:
        self._report(f"user_error: {what}; no status was sent")
        raise ProcessorError from None


def _raised(error: Exception, host: Host) -> str:
    """Print the traceback of an exception out of user code, if that helps; returns it.

    Raises:
        ProtocolError: that was the reason, or the dialogue is broken anyway.
    """
    host.check()
    kind = type(error)  # isinstance would ask the class
    if issubclass(kind, ProtocolError):
        raise error
    text = reports.traceback_text(error)
    if not issubclass(kind, ConfigurationError):
        reports.traceback_lines(text)
    return text


# As every exception has them, whatever its class makes of these names.
_cause, _context = (vars(BaseException)[name].__get__ for name in ("__cause__", "__context__"))
_members = vars(BaseExceptionGroup)["exceptions"].__get__


def _with_its_causes(error: BaseException) -> list[BaseException]:
    """An exception, its causes and contexts, and the members of a group."""
    found: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in found:
            found[id(each)] = each
            left += [_cause(each), _context(each)]
            if issubclass(type(each), BaseExceptionGroup):  # isinstance would ask the class
                left += _members(each)
    return list(found.values())


def _is_unanswered(error: BaseException) -> bool:
    """Whether user code has waited for a person's input; reading other files raises EOFError, too."""
    if not (_is_end_of_input(error) or _is_no_terminal(error)):
        return False
    try:
        return sys.stdin.fileno() == 0
    except (AttributeError, OSError, ValueError):  # user code has put something else there
        return False


def _is_end_of_input(error: BaseException) -> bool:
    if type(error) is not EOFError:
        return False
    frames = reports.frames_of(error)
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    asker = "" if frames is None else str(frames.tb_frame.f_globals.get("__name__"))
    # input() has no frame; nothing else in Python raises this text.
    return _is("EOF when reading a line", *error.args) or asker.partition(".")[0] in ("getpass", "prompt_toolkit")


def _is_no_terminal(error: BaseException) -> bool:
    """Whether keys were to be read one by one, as menus do, or from the terminal itself."""
    import errno

    # Nobody has set a terminal without the modules; a program's own one of that name has no such class.
    if type(error) is getattr(sys.modules.get("termios"), "error", None):
        return _is(errno.ENOTTY, *error.args[:1])
    if type(error) is getattr(sys.modules.get("_curses"), "error", None):
        return True
    return type(error) is OSError and _is(errno.ENXIO, error.errno) and _is("/dev/tty", error.filename)


def _is(expected: str | int, *found: object) -> bool:
    """Whether it is that value alone. What user code has put there may refuse to be compared, as arrays do."""
    return len(found) == 1 and type(found[0]) is type(expected) and found[0] == expected


def _with_records(batches: Sequence[RecordBatch]) -> list[RecordBatch]:
    return [batch for batch in batches if len(batch) > 0]


def unfinished_shard(name: str, context: ShardContext) -> str:
    """The warning about a method that ends a shard and has not checkpointed."""
    return (
        f"warning: {name} of {context.shard_id} returned without a successful checkpoint: KCL cannot finish the shard,"
        " and its child shards do not start before the worker is restarted"
    )


def failed(name: str, error: BaseException, context: ShardContext, batch: RecordBatch | None) -> str:
    """Which call failed, why, and for which records; for a report."""
    return f"{name} failed with {reports.describe(error)} ({span(batch, context)})"


def span(batch: RecordBatch | None, context: ShardContext) -> str:
    """The shard, and the first and last position of a batch, for a report."""
    if batch is None:
        return context.shard_id
    return f"{context.shard_id}, {_records([batch])}"


def _records(batches: Sequence[RecordBatch]) -> str:
    filled = _with_records(batches)
    if not filled:
        return "no records"
    first, last = filled[0][0], filled[-1][len(filled[-1]) - 1]
    return f"{sum(map(len, filled))} records from {_place(first)} to {_place(last)}"


def _place(record: Record) -> str:
    sub = record.sub_sequence_number
    return record.sequence_number if sub is None else f"{record.sequence_number}/{sub}"
