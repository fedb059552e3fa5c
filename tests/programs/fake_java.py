"""Plays ``java`` for tests of ``fastkcl daemon``: a daemon that logs as KCL 3 does, and obeys the test.

FAKE_DAEMON in its environment is Python that runs here, with the functions below at hand.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

SHARD = "shardId-000000000000"
ARGUMENTS = sys.argv[1:]
_logging, _copying = threading.Lock(), threading.Lock()


def option(name: str) -> str:
    """The argument after an option."""
    return ARGUMENTS[ARGUMENTS.index(name) + 1]


def properties() -> str:
    return Path(option("--properties-file")).read_text("ascii")


def mark() -> str:
    """What each line of the log begins with, as the log's configuration says."""
    texts = [*ARGUMENTS, *(Path(given).read_text() for given in ARGUMENTS if given.endswith("logback.xml"))]
    found = next(filter(None, (re.search(r"\|([0-9a-f]{16})\|", text) for text in texts)), None)
    return f"|{found[1]}" if found else ""


def log(logger: str, message: str, level: str = "INFO", shard: str = "") -> None:
    raw(f"{mark()}|12:00:00.000|{level}|software.amazon.kinesis.{logger}|{shard}|{message}")


def raw(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def said(line: str, shard: str = SHARD) -> None:
    """A line of a child's standard error, which the daemon logs and copies."""
    with _logging:
        log("DrainChildSTDERRTask", f"Received error line from subprocess [{line}] for shard {shard}")
    with _copying:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def said_at_once(line: str, shards: int, times: int) -> None:
    """Children that each write a line again and again: one thread a child, as in a daemon."""
    threads = [
        threading.Thread(target=lambda number=number: [said(line, f"shardId-{number:012}") for _ in range(times)])
        for number in range(shards)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def child(*code: str) -> subprocess.Popen[bytes]:
    """A child in the daemon's group, with a pipe for its input, as Java starts them."""
    return subprocess.Popen([sys.executable, "-c", "\n".join(code)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)


def lease(shard: str = SHARD) -> None:
    position = "checkpoint={SequenceNumber: TRIM_HORIZON,SubsequenceNumber: 0})"
    head = "Created new shardConsumer for : ShardInfo(streamIdentifierSerOpt=Optional.empty, "
    log("Scheduler", f"{head}shardId={shard}, concurrencyToken=t, parentShardIds=[], {position}")


def batch(records: int = 3, shard: str = SHARD, answer: str | None = "processRecords") -> None:
    """A batch that is answered, unless the answer is None."""
    log("ProcessTask", f"Calling application processRecords() with {records} records from {shard}", "DEBUG")
    log("MessageWriter", f"Writing ProcessRecordsMessage to child process for shard {shard}")
    log("MessageWriter", f"Message size == 1000 bytes for shard {shard}")
    if answer is not None:
        received = f'Received response {{"action":"status","responseFor":"{answer}"}} from subprocess'
        log("MultiLangProtocol", f"{received} while waiting for processRecords while processing shard {shard}")


def failing(to: str) -> None:
    log("MultiLangShardRecordProcessor", f"Encountered an error while trying to {to}", "ERROR", SHARD)


def give_up(code: int = 0) -> None:
    """A child that did not answer as it should: what the daemon says before it ends."""
    failing("process records")
    raw("java.lang.RuntimeException: Child process failed to process records")
    raw("\tat software.amazon.kinesis.multilang.MultiLangShardRecordProcessor.processRecords(M.java:1)")
    log("MultiLangShardRecordProcessor", f"Child process exited with value: {code}", shard=SHARD)


_stopped: list[int] = []


def stoppable() -> None:
    """From now on SIGTERM is for `until_stopped`; before what a test takes for the sign that it may send one."""
    signal.signal(signal.SIGTERM, lambda number, frame: _stopped.append(number))


def until_stopped(complete: bool = True, code: int = 143) -> NoReturn:
    """Go on until SIGTERM, and end as a JVM does."""
    stoppable()
    raw("ready")
    while not _stopped:
        time.sleep(0.01)
    log("MultiLangDaemon", "Process terminated, will initiate shutdown.")
    if complete:
        log("MultiLangDaemon", "Process shutdown is complete.")
    os._exit(code)


if __name__ == "__main__":
    if "-version" in ARGUMENTS:
        sys.stderr.write('openjdk version "17.0.15" 2025-04-15\n')
        sys.exit(0)
    exec(os.environ["FAKE_DAEMON"])
