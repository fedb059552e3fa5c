"""The whole way once through a real daemon, on one machine, through a split of a shard, and a check of the table.

    generate ──▶ stream of local AWS ──▶ Java daemon ═ pipe ═▶ child for each shard ──▶ Spark Connect ──▶ Parquet table
                    │  (and leases)    (fastkcl daemon)        (demo.child)            (in a JVM of ours)    │
                    └───────────────── compared, shard by shard ◀──────────────── SQL ◀──────────────────────┘

Half of the records are in the stream before the daemon starts. When children have some of them, a shard is split, and
the other half is put. The demo waits until the lease table has every shard at its end, and stops the daemon.

The sent records are read from the stream itself, with sequence numbers and arrival times as the service gave them, and
compared with those that Spark reads back (`fastkcl.demo.check`). The lease table is written ahead, as a daemon that
finds none waits for up to half a minute. It is not a benchmark: two JVMs start cold on one machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from fastkcl.daemon.command import MINIMUM_JAVA
from fastkcl.daemon.jars import find_jars
from fastkcl.daemon.keys import Generation
from fastkcl.demo import child as demo_child
from fastkcl.demo.check import Delivered, compare, countries, sent_shard
from fastkcl.demo.parts import (
    LOG_LINES,
    PROFILE,
    ChildrenSaid,
    DemoError,
    check_arguments,
    start_spark,
)
from fastkcl.demo.report import DemoReport, Event, Step
from fastkcl.java import find_java
from fastkcl.kinesis import Filler, UserRecord
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, seed_leases
from fastkcl.replay import generate
from fastkcl.replay.columns import Columns
from fastkcl.tables.bounds import DEFAULT_MAX_BYTES

__all__ = ["run_daemon_demo"]

_STREAM: Final = "demo"
_MAX_BYTES: Final = DEFAULT_MAX_BYTES // 4  # of one write, so that there are several of each shard
_PATIENCE: Final = 300.0  # seconds without a single record more, on however slow a machine
_STOP_SECONDS: Final = 90.0
_POLL_SECONDS: Final = 0.25
_LINE: Final = re.compile(r"\S+ (?P<kind>\w+) +(?P<shard>shardId-\d+)  (?P<text>.*)")
# Settings that make a daemon quick where nothing is far away.
_PROPERTIES: Final = {
    "clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X",
    "failoverTimeMillis": "5000",
    "idleTimeBetweenReadsInMillis": "250",
    "parentShardPollIntervalMillis": "500",
    "skipShardSyncAtWorkerInitializationIfLeasesExist": "true",
}


def run_daemon_demo(
    *,
    shards: int,
    records: int,
    keep: Path | None = None,
    on_step: Callable[[str], None] = lambda _step: None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> DemoReport:
    """Run the demo. All its processes have ended when it returns or raises.

    Args:
        shards: of the stream, each with its own child process.
        records: for each shard, by and large: their keys decide.
        keep: empty or new folder to leave the table in; a temporary one is used and removed without it.
        on_step: called with each step that begins.
        on_progress: called with how many records children have taken, of how many; from another thread.

    Raises:
        ValueError: a number below 1, or `keep` is not empty.
        JavaNotFoundError: there is no Java for the daemon.
        JarsError: there are no jars of it, and they cannot be fetched.
        LocalAwsError: local AWS does not start.
        SparkUnavailableError: Spark does not start, or is not installed.
        DemoError: Spark or the daemon fails afterwards.
    """
    check_arguments(shards, records, keep)
    begun = time.monotonic()
    find_java(minimum=MINIMUM_JAVA, needed_by="the daemon")
    jars = find_jars(Generation.KCL_3, on_fetch=on_step).folder
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastkcl-demo-")))
        table, log_path = keep or work / "table", work / "jvm.log"
        table.mkdir(parents=True, exist_ok=True)

        on_step("starting local AWS")
        clock = time.monotonic()
        aws = stack.enter_context(LocalAws(streams={_STREAM: shards}))
        stream = _Stream(aws, shards * records)
        steps = [Step("start local AWS", time.monotonic() - clock)]

        on_step("starting Spark")
        server, step = start_spark(stack, work)
        steps.append(step)

        on_step("putting the first half of the records")
        clock = time.monotonic()
        stream.put(0.5)
        seed_leases(stream.kinesis, stream.dynamodb, application=_STREAM, stream=_STREAM)
        put_seconds = time.monotonic() - clock

        on_step(f"starting the daemon: {shards} children, protocol lines → Arrow → Spark → Parquet")
        clock = time.monotonic()
        environment = {
            **aws.environment,
            "FASTKCL_SPARK": server.url,
            demo_child.TABLE_VARIABLE: str(table.absolute()),
            demo_child.MAX_BYTES_VARIABLE: str(_MAX_BYTES),
        }
        daemon = stack.enter_context(_Daemon(jars, aws.url, environment, work))
        daemon.wait(lambda: daemon.records > 0, lambda: on_progress(daemon.records, stream.total))
        split = stream.split(min(1, shards - 1))
        daemon.note(f"{split} was split")
        on_step("a shard is split; the other half of the records is put")
        put_clock = time.monotonic()
        stream.put(1.0)
        put_seconds += time.monotonic() - put_clock
        daemon.wait(stream.is_read, lambda: on_progress(daemon.records, stream.total))
        daemon.note("every shard was checkpointed at its end, and the daemon was asked to stop")
        problems = daemon.stop()
        steps += [
            Step("put the records into the stream", put_seconds, stream.size),
            Step("the daemon, from start to end", time.monotonic() - clock, stream.size),
        ]

        on_step("Spark reads the table back")
        clock = time.monotonic()
        session = server.spark.session
        sent = {shard: sent_shard(columns) for shard, columns in stream.read()}
        if (there := sum(shard.records for shard in sent.values())) != stream.total:
            problems.append(f"{stream.total:,} records were put, and the stream has {there:,}")
        delivered = {
            shard: Delivered(max(0, daemon.said.total(shard, "records") - each.records), daemon.checkpoints(shard))
            for shard, each in sent.items()
        }
        found = compare(session, table, sent, delivered)
        rows = countries(session) if any(shard.stored for shard in found) else []
        stored = sum(path.stat().st_size for path in table.rglob("*.parquet"))
        steps.append(Step("read back, compare, aggregate", time.monotonic() - clock, stored))
        report = DemoReport(
            shards=found,
            events=daemon.events,
            work=daemon.said.work(),
            steps=steps,
            countries=rows,
            total_seconds=0.0,
            java=server.java,
            table=keep,
            problems=problems,
        )
        if not report.ok:
            report.output = daemon.last_lines() + log_path.read_text(errors="replace").splitlines()[-LOG_LINES:]
    report.total_seconds = time.monotonic() - begun
    return report


class _Stream:
    """The stream, its records, and the state of its lease table.

    Args:
        aws: where it is.
        total: records that are put in the end.
    """

    def __init__(self, aws: LocalAws, total: int) -> None:
        self.kinesis: Any = aws.client("kinesis")
        self.dynamodb: Any = aws.client("dynamodb")
        self.total = total
        self.size = 0
        """Bytes put, keys included."""
        self._done = 0
        (shard,) = generate(PROFILE, shards=1, records=total).shards()
        self._records = shard.records

    def put(self, part: float) -> None:
        """Put records until this part of all of them is there."""
        stop = round(self.total * part)
        columns = self._records.columns(self._done, stop)
        self._done = stop
        users = (UserRecord(key, data or b"") for key, data in zip(columns.partition_keys, columns.data, strict=True))
        self.size += Filler(self.kinesis, _STREAM).put(users).bytes

    def split(self, index: int) -> str:
        """Split a shard in the middle; its id."""
        shard = self._shards()[index]
        keys = shard["HashKeyRange"]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2 + 1
        self.kinesis.split_shard(StreamName=_STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
        return str(shard["ShardId"])

    def is_read(self) -> bool:
        """Whether the lease table has each shard at its last record, or at its end."""
        places = checkpoints(self.dynamodb, application=_STREAM)
        for shard in self._shards():
            place = places.get(shard["ShardId"], (None, 0))[0]
            if "EndingSequenceNumber" in shard["SequenceNumberRange"]:
                if place not in ("SHARD_END", None):  # KCL removes leases of shards that are done with
                    return False
            elif place != self._last(shard["ShardId"]):
                return False
        return True

    def read(self) -> Iterator[tuple[str, Columns]]:
        """Each shard's id with everything that is in it."""
        for shard in self._shards():
            records = [record for page in self._pages(shard["ShardId"]) for record in page]
            yield (
                shard["ShardId"],
                Columns(
                    data=[record["Data"] for record in records],
                    partition_keys=[record["PartitionKey"] for record in records],
                    sequence_numbers=[record["SequenceNumber"] for record in records],
                    sub_sequence_numbers=[0] * len(records),
                    timestamps_millis=[
                        round(record["ApproximateArrivalTimestamp"].timestamp() * 1000) for record in records
                    ],
                ),
            )

    def _last(self, shard_id: str) -> str | None:
        """The last sequence number of an open shard; where the lease begins if it has no records."""
        last = "TRIM_HORIZON"
        for page in self._pages(shard_id):
            for record in page:
                last = record["SequenceNumber"]
        return last

    def _pages(self, shard_id: str) -> Iterator[Sequence[dict[str, Any]]]:
        iterator = self.kinesis.get_shard_iterator(
            StreamName=_STREAM, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator is not None:
            answer = self.kinesis.get_records(ShardIterator=iterator)
            yield answer["Records"]
            iterator = answer.get("NextShardIterator") if answer["MillisBehindLatest"] else None

    def _shards(self) -> list[dict[str, Any]]:
        pages = self.kinesis.get_paginator("list_shards").paginate(StreamName=_STREAM)
        return [shard for page in pages for shard in page["Shards"]]


class _Daemon:
    """`fastkcl daemon` as a process, from `with` to its end.

    Args:
        jars: of KCL 3.
        endpoint: of local AWS.
        environment: variables for the children, beside ours.
        folder: where it runs.
    """

    def __init__(self, jars: Path, endpoint: str, environment: dict[str, str], folder: Path) -> None:
        self.said = ChildrenSaid()
        self.events: list[Event] = []
        self._checkpoints: dict[str, int] = {}
        self._lines: list[str] = []
        self._begun = time.monotonic()
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fastkcl", "daemon", "--kcl", Generation.KCL_3.value, "--jars", str(jars)),
                *("--stream", _STREAM, "--application", _STREAM, "--endpoint-url", endpoint, "--no-environment"),
                *(f"--set={key}={value}" for key, value in _PROPERTIES.items()),
                *("--", sys.executable, "-m", "fastkcl.demo.child"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="backslashreplace",
            cwd=folder,
            env=os.environ | environment,
        )
        self._reader = threading.Thread(target=self._read, name="demo-daemon", daemon=True)
        self._reader.start()

    def __enter__(self) -> _Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def records(self) -> int:
        """How many the children have taken."""
        return self.said.total(None, "records")

    def checkpoints(self, shard_id: str) -> int:
        """How many were stored of a shard."""
        return self._checkpoints.get(shard_id, 0)

    def note(self, what: str) -> None:
        """Note the events from now on."""
        self.events.append(Event(time.monotonic() - self._begun, what))

    def wait(self, condition: Callable[[], bool], on_poll: Callable[[], None]) -> None:
        """Wait until something is so.

        Raises:
            DemoError: the daemon has ended, or nothing moves any more.
        """
        seen, since = self.records, time.monotonic()
        while not condition():
            on_poll()
            if self._process.poll() is not None:
                self._end()
                raise DemoError("\n".join(["the daemon has ended:", *self.last_lines()]))
            if (now := self.records) != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                raise DemoError("\n".join([f"no record more within {_PATIENCE:g} s:", *self.last_lines()]))
            time.sleep(_POLL_SECONDS)
        on_poll()

    def stop(self) -> list[str]:
        """Ask it to stop, and wait; returns the problem, if there was one."""
        code = self._end()
        return [] if code == 0 else [f"the daemon ended with exit code {code}: {self._lines[-1]}"]

    def last_lines(self) -> list[str]:
        """Of its log, without metrics."""
        return [line for line in self._lines if "fastkcl: metrics " not in line][-LOG_LINES:]

    def _end(self) -> int:
        for _ in range(2):  # the second time it kills the rest
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            try:
                code = self._process.wait(_STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            self._process.kill()
            code = self._process.wait()
        self._reader.join(_STOP_SECONDS)
        return code

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._lines.append(line.rstrip("\n"))
                found = _LINE.match(line)
                if found is not None:
                    self._happened(found["kind"], found["shard"], found["text"])

    def _happened(self, kind: str, shard: str, text: str) -> None:
        if kind == "child":
            self.said.line(shard, text.encode())
        elif kind == "checkpoint":
            self._checkpoints[shard] = self._checkpoints.get(shard, 0) + 1
        elif "lease taken" in text:
            self.note(f"the daemon has taken the lease of {shard}")
        elif "shard ended" in text:
            self.note(f"{shard} has ended")
