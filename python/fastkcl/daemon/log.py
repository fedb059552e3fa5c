"""Reads the daemon's log: its lines, and the events of each shard.

`fastkcl.daemon.log_lines` has the form of the lines. These lines become events:

    lease taken · batch · checkpoint · lease lost · shard ended · lines of a child · warnings and errors

The daemon copies each line of a child to standard error right after it has logged it. `fastkcl.daemon.outputs` gives
the copy after that, and it is dropped here. Any other line without a head belongs to the line before: a stack trace.

A checkpoint's outcome is in no line of the log. But the answer's size is, and the answer only echoes the request: it
has one size with ``"error":null``, and another for each error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fastkcl.daemon.log_lines import Event, Kind, LogLine, Shard, ShardState, parse

__all__ = ["LogReader"]

_REPEAT_SECONDS: Final = 600.0
_MOST_COPIES: Final = 1000  # that are waited for; one that is too long does not come
_GIVES_UP: Final = "Encountered an error while trying to "
_OF_A_STACK_TRACE: Final = re.compile(r"\s+at |\s+\.\.\. \d+ |Caused by: |[\w.$]+(Exception|Error)\b")
_WRAPPER: Final = re.compile(r"[\w.$]*(InvocationTarget|Execution|Completion)Exception")
"""An exception that only wraps another one."""
_NO_REGION: Final = "Unable to load region from any of the providers"
# The errors that answer a checkpoint, by length: their names differ in it.
_CHECKPOINT_ERRORS: Final = {
    len(name): name
    for name in (
        "ThrottlingException",
        "ShutdownException",
        "InvalidStateException",
        "IllegalArgumentException",
        "KinesisClientLibDependencyException",
        "KinesisClientLibIOException",
        "NullPointerException",
        "RuntimeException",
    )
}


@dataclass
class LogReader:
    """Makes events of lines, and keeps the state of the shards.

    Attributes:
        clock: gives seconds; for batches' durations and checkpoints' ages.
        mark: of the lines of this daemon.
        shards: by id, in the order in which their leases were taken.
        cause: why the daemon is about to end, by its first line about it; None as long as nothing is wrong.
        failed_shard: whose child that was, if it was a child.
        shutdown_complete: the daemon said that its graceful shutdown is done.
        last_error: the last thing that it called an error.
    """

    clock: Callable[[], float]
    mark: str = ""
    shards: dict[str, Shard] = field(default_factory=dict)
    cause: str | None = None
    failed_shard: str | None = None
    shutdown_complete: bool = False
    last_error: str | None = None
    _copies: Counter[str] = field(default_factory=Counter)
    _last: LogLine | None = None
    _innermost: str = ""
    _is_wrapped: bool = False
    _draining: list[str] = field(default_factory=list)
    _logged: dict[str, float] = field(default_factory=dict)

    def feed(self, line: str) -> list[Event]:
        """Take one line, without its end. The events that it makes, mostly none or one."""
        parsed = parse(line, self.mark)
        if parsed is not None:
            self._last = parsed
            return list(self._of(parsed))
        if self._copies[line] > 0:
            self._copies[line] -= 1
            if not self._copies[line]:
                del self._copies[line]
            return []
        return list(self._of_other(line))

    def shard(self, id: str) -> Shard:
        """The state of a shard."""
        return self.shards.setdefault(id, Shard(id))

    @property
    def all_ended(self) -> bool:
        """Whether no child is left that has not answered its last message."""
        return all(shard.state in (ShardState.ENDED, ShardState.LOST) for shard in self.shards.values())

    # One method for each kind of line, in the generations' words.

    def _of(self, line: LogLine) -> Iterator[Event]:
        for logger, pattern, handle in _RULES:
            if logger == line.logger:
                match = pattern.match(line.message)
                if match is not None:
                    yield from handle(self, line, match)
                    return
        if line.level == "ERROR":
            self.last_error = _one_line(line.message)
        if line.level in ("WARN", "ERROR") and self._is_news(f"{line.logger}: {line.message}"):
            kind = Kind.WARNING if line.level == "WARN" else Kind.ERROR
            yield Event(kind, f"{line.logger}: {_one_line(line.message)}", line.shard, line.time)

    def _is_news(self, text: str) -> bool:
        """Whether it was not said in the last minutes; trouble comes many times, with other numbers in it."""
        now = self.clock()
        text = re.sub(r"[0-9a-f-]{8,}|\d+", "#", text)
        self._logged = {key: at for key, at in self._logged.items() if now - at < _REPEAT_SECONDS}
        return now == self._logged.setdefault(text, now)

    def _of_other(self, line: str) -> Iterator[Event]:
        """A line without a head: of a stack trace, or of the JVM itself."""
        text = line.strip()
        last = self._last
        if not _OF_A_STACK_TRACE.match(line):
            if text and (last is None or last.level in ("WARN", "ERROR")):
                yield Event(Kind.DAEMON, text)
            return
        if text.startswith(("at ", "...")):
            return
        if last is not None and last.message.startswith(_GIVES_UP):
            self._explain(text)
        if text.startswith("Caused by"):
            self._innermost = text = text.removeprefix("Caused by: ")
            if not self._is_wrapped:
                return
        elif _WRAPPER.fullmatch(text):
            self._is_wrapped = True
            text = self._innermost or text  # of the trace before it; its own one follows
        else:
            self._is_wrapped = False
        if _NO_REGION in text:
            text = "no AWS region is set: --region, regionName in the properties, or AWS_REGION"
        logged = last is not None and last.level == "ERROR" and self.last_error == _one_line(last.message)
        self.last_error = f"{self.last_error}: {text}" if logged else text

    def _explain(self, exception: str) -> None:
        """Why the daemon gives up a child, as far as an exception shows it."""
        if exception.startswith("java.lang.NullPointerException") and self.failed_shard is not None:
            self.cause = f"the child of {self.failed_shard} wrote a line with only the word null"
        elif "Cannot run program" in exception:
            self.cause = f"the child's program could not be started: {exception.partition('IOException: ')[2]}"

    def _running(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        yield Event(Kind.DAEMON, f"application {match[1]} reads stream {match[2]} with {match[3]}", time=line.time)

    def _worker(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        yield Event(Kind.DAEMON, f"worker {match[1]}", time=line.time)

    def _empty_table(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        del match
        if self._is_news("empty table"):
            text = "the lease table is empty: the daemon waits up to half a minute for another one to fill it"
            yield Event(Kind.DAEMON, text, time=line.time)

    def _taken(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self.shards[match[1]] = Shard(match[1])  # a lease that was lost and is back begins anew
        yield Event(Kind.LEASE, f"lease taken, from {match[2]}", match[1], line.time)

    def _lease_lost(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        shard = self.shards.get(match[1])
        if shard is not None and shard.state not in (ShardState.ENDED, ShardState.LOST):
            yield Event(Kind.LEASE, "lease lost: another worker has it, or it ran out", shard.id, line.time)

    def _records(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self.shard(match[2]).pending_records = int(match[1])
        yield from ()

    def _writing(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        shard = self.shard(match[2])
        shard.written = match[1]
        if match[1] == "InitializeMessage":
            shard.state = ShardState.STARTING
        elif match[1] == "ProcessRecordsMessage":
            shard.state = ShardState.WORKING
            shard.pending_since = self.clock()
        elif match[1] != "CheckpointMessage":
            shard.state = ShardState.STOPPING
            if match[1] == "ShutdownRequestedMessage":
                yield Event(Kind.LEASE, "shutdown requested", shard.id, line.time)

    def _size(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        shard, size = self.shard(match[2]), int(match[1])
        if shard.written == "ProcessRecordsMessage":
            shard.pending_bytes = size
        elif shard.written == "CheckpointMessage":
            yield from self._checkpointed(line, shard, size)

    def _asked(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        shard = self.shard(match["shard"])
        shard.reply_position = None
        groups = match.groupdict()
        sequence, sub = groups.get("sequence"), groups.get("sub")
        if sequence is not None and not re.fullmatch(r"\d+|null", sequence):
            shard.reply_size = None  # its size in JSON is not known
        else:
            quoted = "null" if sequence in (None, "null") else f'"{sequence}"'
            modern = "sub" in groups
            key = f'"sequenceNumber":{quoted},"subSequenceNumber":{sub}' if modern else f'"checkpoint":{quoted}'
            shard.reply_size = len(f'{{"action":"checkpoint",{key},"error":null}}')
        yield from ()

    def _setting(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self.shard(match[1]).reply_position = match[2]
        yield from ()

    def _checkpointed(self, line: LogLine, shard: Shard, size: int) -> Iterator[Event]:
        expected, position = shard.reply_size, shard.reply_position
        shard.reply_size = shard.reply_position = None
        if expected is None:
            yield Event(Kind.CHECKPOINT, "a checkpoint was answered", shard.id, line.time)
        elif size == expected:
            shard.checkpoints += 1
            shard.checkpoint_at = self.clock()
            shard.checkpoint = position or shard.checkpoint
            at = f" at {position}" if position else ""
            yield Event(Kind.CHECKPOINT, f"checkpoint{at}", shard.id, line.time)
        else:
            # A name in quotes where null was.
            name = _CHECKPOINT_ERRORS.get(size - expected + len("null") - 2, "an error")
            yield Event(Kind.WARNING, f"checkpoint refused: {name}", shard.id, line.time)

    def _answered(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        answered, awaited, shard = match[1], match[2], self.shard(match[3])
        if answered != awaited:
            self._fail(
                f"the child of {shard.id} answered {answered or 'nothing'} where {awaited} was to be answered", shard.id
            )
            yield Event(Kind.ERROR, f"lost its place: answered {answered}, not {awaited}", shard.id, line.time)
        elif awaited == "processRecords":
            shard.state = ShardState.READING
            shard.batches += 1
            shard.records += shard.pending_records
            shard.bytes += shard.pending_bytes
            if shard.pending_records:
                text = (
                    f"batch of {shard.pending_records:,} record{'s' if shard.pending_records != 1 else ''},"
                    f" {shard.pending_bytes / 1e6:,.2f} MB, answered in {self.clock() - shard.pending_since:.2f} s"
                )
                yield Event(Kind.BATCH, text, shard.id, line.time)
            shard.pending_records = shard.pending_bytes = 0
        elif awaited == "initialize":
            shard.state = ShardState.READING
            yield Event(Kind.LEASE, "child ready", shard.id, line.time)
        elif awaited == "shardEnded" or (awaited == "shutdown" and shard.checkpoint == "SHARD_END"):
            shard.state = ShardState.ENDED
            yield Event(Kind.LEASE, "shard ended", shard.id, line.time)
        elif awaited in ("leaseLost", "shutdown"):
            shard.state = ShardState.LOST
            yield Event(Kind.LEASE, "lease given up", shard.id, line.time)

    def _no_answer(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self._fail(f"the child of {match[2]} did not answer {match[1]} within timeoutInSeconds", match[2])
        yield Event(Kind.ERROR, f"no answer to {match[1]} within timeoutInSeconds", match[2], line.time)

    def _closed(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self._fail(f"the child of {match[2]} ended or closed its output instead of answering {match[1]}", match[2])
        yield Event(Kind.ERROR, f"ended or closed its output instead of answering {match[1]}", match[2], line.time)

    def _trouble(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        """The daemon gives up a child, and with it everything; why comes before or after."""
        what = "start up" if match[1].startswith("init") else match[1]
        whose = line.shard or next((s.id for s in self.shards.values() if s.state is ShardState.WORKING), None)
        self._fail(f"the child of {whose or 'a shard'} failed to {what}", whose)
        yield from ()

    def _draining_done(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self._draining.append(match[1])
        yield from ()

    def _exited(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        # KCL 1 does not name the child; it has just read the last of its output.
        whose = line.shard or (self._draining[-1] if self._draining else None)
        if whose in self._draining:
            self._draining.remove(whose)
        code = int(match[1])
        meaning = f"exited with code {code}" + (f" (signal {code - 128})" if code > 128 else "")
        shard = self.shards.get(whose or "")
        if shard is not None and shard.state not in (ShardState.ENDED, ShardState.LOST):
            shard.state = ShardState.FAILED
        if self.cause is not None and whose == self.failed_shard and "exited" not in self.cause and code:
            self.cause = f"the child of {whose} {meaning}"
        if code or (shard is not None and shard.state is ShardState.FAILED):
            yield Event(Kind.ERROR if code else Kind.CHILD, meaning, whose, line.time)

    def _noise(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        text = f"wrote a line to standard output that is not a message, and was skipped: {_one_line(match[2])}"
        yield Event(Kind.WARNING, text, match[1], line.time)

    def _written(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        self._copies[match[1]] += 1
        if len(self._copies) > _MOST_COPIES:
            del self._copies[next(iter(self._copies))]
        yield Event(Kind.CHILD, match[1], match[2], line.time)

    def _shutting_down(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        del match
        yield Event(Kind.DAEMON, "shutting down", time=line.time)

    def _shut_down(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        del match
        self.shutdown_complete = True
        yield Event(Kind.DAEMON, "shutdown is complete", time=line.time)

    def _ignore(self, line: LogLine, match: re.Match[str]) -> Iterator[Event]:
        yield from ()

    def _fail(self, cause: str, shard: str | None) -> None:
        if self.cause is None:
            self.cause, self.failed_shard = cause, shard


def _one_line(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[:limit]}…"


_Handle = Callable[[LogReader, LogLine, "re.Match[str]"], Iterator[Event]]


def _rules() -> Iterator[tuple[str, re.Pattern[str], _Handle]]:
    """Logger, message, and the reaction."""
    of = LogReader
    consumer = (
        r"Created new shardConsumer for : ShardInfo.*?shardId=([^,\]]+),.*checkpoint=\{ ?SequenceNumber: ([^,}]+)"
    )
    setting = r"Setting ([^,]+), +token \S+ checkpoint to \{ ?SequenceNumber: ([^,}]+)"
    asked = (
        r"Attempting to checkpoint shard (?P<shard>\S+)"
        r" @ sequence number (?P<sequence>.*), and sub sequence number (?P<sub>.*)"
    )
    answered = (
        r'Received response (?:.*"responseFor":"([^"]*)".*|.*) from subprocess'
        r" while waiting for (\w+) while processing shard (\S+)"
    )
    given_up = _GIVES_UP + r"(initialize record processor|process records|shutdown child process)"
    table: tuple[tuple[tuple[str, ...], str, _Handle], ...] = (
        (("MultiLangDaemonConfig",), r"Running (.*) to process stream (.*) with executable (.*)", of._running),
        (("MultiLangDaemonConfig",), r"Using workerId: (.*)", of._worker),
        (("Scheduler",), r"Lease table is still empty", of._empty_table),
        (("Scheduler", "Worker"), consumer, of._taken),
        (("DynamoDBLeaseRenewer", "LeaseRenewer"), r"Worker \S+ lost lease with key (\S+)", of._lease_lost),
        (("ProcessTask",), r"Calling application processRecords\(\) with (\d+) records from (\S+)", of._records),
        (("MessageWriter",), r"Writing (\w+) to child process for shard (\S+)", of._writing),
        (("MessageWriter",), r"Message size == (\d+) bytes for shard (\S+)", of._size),
        (("MultiLangProtocol",), asked, of._asked),
        (
            ("MultiLangProtocol",),
            r"Attempting to checkpoint at sequence number (?P<sequence>.*) for shard (?P<shard>\S+)",
            of._asked,
        ),
        (("MultiLangProtocol",), r"Attempting to checkpoint for shard (?P<shard>\S+)", of._asked),
        (("ShardRecordProcessorCheckpointer", "RecordProcessorCheckpointer"), setting, of._setting),
        (("MultiLangProtocol",), answered, of._answered),
        (("MultiLangProtocol",), r"Timedout to get status message for (\w+) action for shard ([^.]+)\.", of._no_answer),
        (("MultiLangProtocol",), r"Failed to get status message for (\w+) action for shard (\S+)", of._closed),
        (("MultiLangShardRecordProcessor", "MultiLangRecordProcessor"), given_up, of._trouble),
        (("LineReaderTask",), r"Stopping: Draining STDOUT for (\S+)", of._draining_done),
        (
            ("MultiLangShardRecordProcessor", "MultiLangRecordProcessor"),
            r"Child process exited with value: (-?\d+)",
            of._exited,
        ),
        (("GetNextMessageTask",), r"(?s)Skipping unexpected line on STDOUT for shard ([^:]+): (.*)", of._noise),
        (("DrainChildSTDERRTask",), r"(?s)Received error line from subprocess \[(.*)\] for shard (\S+)", of._written),
        (("MultiLangDaemon",), r"Process terminated, will initiate shutdown", of._shutting_down),
        (("MultiLangDaemon",), r"Process shutdown is complete", of._shut_down),
        # An answer's time-out in the exit hook, which waits for the very thread that called it.
        (("MultiLangDaemon",), r"Encountered an error during shutdown", of._ignore),
    )
    for loggers, pattern, handle in table:
        for logger in loggers:
            yield logger, re.compile(pattern), handle


_RULES: Final = tuple(_rules())
