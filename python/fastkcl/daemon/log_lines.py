"""Lines of the daemon's log: its configuration, and how its lines are distinguished from those of its children.

The daemon writes some four lines for each message to a child. It is started with a log configuration of ours, by
which a few loggers log more than they usually do and each line has a head:

    |mark|12:00:00.000|INFO|a.b.Logger|shard|message       KCL 3, logback.xml
    |mark|12:00:00.000| [INFO] Logger - message            KCL 1, `kcl_1_options`

The mark is random and made anew for each daemon. So no line of a child, or of a payload that a child writes down, can
pass for one of the daemon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["MARK", "Event", "Kind", "LogLine", "Shard", "ShardState", "kcl_1_options", "parse", "shown"]

MARK: Final = "@MARK@"
"""Stands in logback.xml for the mark."""

_TIME: Final = r"\|(?P<time>\d\d:\d\d:\d\d\.\d{3})\|"
_HEADS: Final = (
    re.compile(_TIME + r"(?P<level>[A-Z]+)\|(?P<logger>[\w.$]+)\|(?P<shard>[^|]*)\|(?P<message>.*)", re.DOTALL),
    re.compile(_TIME + r" \[(?P<level>[A-Z]+)\] (?P<logger>[\w.$]+) - (?P<message>.*)", re.DOTALL),
)

_SIMPLE_LOG: Final = "-Dorg.apache.commons.logging.simplelog."
_KINESIS_1: Final = "com.amazonaws.services.kinesis."
# Not java.util.logging, commons-logging's usual choice: that is silent from SIGTERM on, when messages matter.


def kcl_1_options(mark: str) -> list[str]:
    """The log configuration of a JVM of KCL 1, so that its log can be read here."""
    return [
        "-Dorg.apache.commons.logging.Log=org.apache.commons.logging.impl.SimpleLog",
        f"{_SIMPLE_LOG}defaultlog=info",
        f"{_SIMPLE_LOG}showdatetime=true",
        f"{_SIMPLE_LOG}dateTimeFormat='|{mark}|'HH:mm:ss.SSS'|'",
        f"{_SIMPLE_LOG}log.{_KINESIS_1}multilang.MultiLangProtocol=debug",
        f"{_SIMPLE_LOG}log.{_KINESIS_1}clientlibrary.lib.worker.ProcessTask=debug",
        f"{_SIMPLE_LOG}log.{_KINESIS_1}clientlibrary.lib.worker.RecordProcessorCheckpointer=debug",
    ]


class Kind(Enum):
    """The kind of an event; the value is its mark in the folded log."""

    DAEMON = "daemon"
    LEASE = "lease"
    BATCH = "batch"
    CHECKPOINT = "checkpoint"
    CHILD = "child"
    WARNING = "warning"
    ERROR = "error"


class ShardState(Enum):
    """Where a shard of this daemon is."""

    TAKEN = "lease taken"
    STARTING = "starting"
    READING = "reading"
    WORKING = "working"
    STOPPING = "stopping"
    ENDED = "ended"
    LOST = "no lease"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of the daemon's log."""

    time: str
    level: str
    logger: str
    """Name of the class, without its package."""
    shard: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    kind: Kind
    text: str
    shard: str | None = None
    time: str | None = None
    """As the daemon writes it, HH:MM:SS.mmm; None for an event without a time."""


@dataclass(slots=True)
class Shard:
    """The state of a shard that this daemon has or had the lease of."""

    id: str
    state: ShardState = ShardState.TAKEN
    records: int = 0
    bytes: int = 0
    """Of the lines with records, as the child reads them."""
    batches: int = 0
    checkpoints: int = 0
    checkpoint: str | None = None
    """Sequence number of the last one that was stored."""
    checkpoint_at: float | None = None
    """When, on the reader's clock."""
    written: str = ""
    """Class of the message that was written last."""
    # Of the batch that the child has.
    pending_records: int = 0
    pending_bytes: int = 0
    pending_since: float = 0.0
    # Of the checkpoint that is asked for: the length of a reply that it is stored (None if that is not
    # known), and the place.
    reply_size: int | None = None
    reply_position: str | None = None


def parse(line: str, mark: str = "") -> LogLine | None:
    """A line with a head of ours; None for any other.

    Args:
        line: without its end.
        mark: of this daemon's log; nothing for logs that have none.
    """
    if mark:
        if not line.startswith(f"|{mark}|"):
            return None
        line = line[len(mark) + 1 :]
    for head in _HEADS:
        match = head.fullmatch(line)
        if match is not None:
            found = match.groupdict()
            logger = found["logger"].rpartition(".")[2]
            return LogLine(found["time"], found["level"], logger, found.get("shard") or None, found["message"])
    return None


def shown(line: str, mark: str) -> str:
    """A line for people: the daemon's without the mark, and one that only looks like the daemon's unchanged."""
    if mark and line.startswith(f"|{mark}|"):
        return line[len(mark) + 1 :]
    return f"(not of the daemon) {line}" if parse(line) is not None else line
