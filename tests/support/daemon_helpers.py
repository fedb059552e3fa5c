"""Real daemons for tests: the jars of each generation, a stream on local AWS, and `fastkcl daemon` as a process."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastkcl.daemon.jars import find_jars
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import seed_leases

PATIENCE = 180.0  # seconds for anything; a daemon starts in six, and in thirty where leases are not seeded
# What makes a daemon quick, where nothing is far away.
QUICK = {
    Generation.KCL_3: {
        "failoverTimeMillis": "3000",
        "parentShardPollIntervalMillis": "500",
        "idleTimeBetweenReadsInMillis": "250",
        "shutdownGraceMillis": "20000",
        "skipShardSyncAtWorkerInitializationIfLeasesExist": "true",
        "clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X",
    },
    Generation.KCL_1_15: {
        "failoverTimeMillis": "3000",
        "parentShardPollIntervalMillis": "500",
        "idleTimeBetweenReadsInMillis": "300",
        "skipShardSyncAtStartupIfLeasesExist": "true",
    },
    Generation.KCL_1_7: {
        "failoverTimeMillis": "3000",
        "parentShardPollIntervalMillis": "500",
        "idleTimeBetweenReadsInMillis": "300",
    },
}


def jars_of(generation: Generation, request: pytest.FixtureRequest) -> Path:
    """The jars of a daemon: KCL 3's of an installed amazon_kclpy, others through Maven, both only once.

    FASTKCL_TEST_JARS names a folder with another release of KCL 3.
    """
    if generation is Generation.KCL_3:
        if folder := os.environ.get("FASTKCL_TEST_JARS"):
            return Path(folder)
        try:
            python: Path = request.getfixturevalue("original_python")
        except pytest.skip.Exception:
            pass  # no amazon_kclpy is no reason to run no daemon
        else:
            (jars,) = python.parent.parent.glob("lib/python3*/site-packages/amazon_kclpy/jars")
            return jars
    return find_jars(generation, environ={}).folder


class Daemon:
    """`fastkcl daemon` over a stream of local AWS.

    Args:
        aws: the AWS.
        jars: of the daemon.
        generation: theirs.
        stream: the stream; None where a properties file among `arguments` names it, and the application.
        child: the child's command.
        folder: where it runs.
        arguments: more of the command line.
        environment: more variables; None takes one away.
        seed: write the lease table ahead, which spares the daemon a long wait.
        properties: instead of those that make it quick.
        application: its name, if it is not the stream's.
    """

    def __init__(
        self,
        aws: LocalAws,
        jars: Path,
        generation: Generation,
        stream: str | None,
        child: list[str],
        folder: Path,
        *arguments: str,
        environment: dict[str, str | None] | None = None,
        seed: bool = True,
        properties: dict[str, str] | None = None,
        application: str | None = None,
    ) -> None:
        application = application or stream
        names = [] if stream is None else [f"--stream={stream}", f"--application={application}"]
        if seed and stream is not None and generation is not Generation.KCL_1_7:
            seed_leases(aws.client("kinesis"), aws.client("dynamodb"), application=application, stream=stream)
        quick = QUICK[generation] if properties is None else properties
        variables: dict[str, str | None] = {**os.environ, **aws.environment, **(environment or {})}
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fastkcl", "daemon", "--kcl", generation.value, "--jars", str(jars)),
                *names,
                "--jvm-option=-XX:TieredStopAtLevel=1",  # short lives: the quick compiler only
                *(f"--set={key}={value}" for key, value in quick.items()),
                *(*arguments, "--", *child),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=folder,
            env={name: value for name, value in variables.items() if value is not None},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            # It takes the JVM with it only if it lives; and the JVM its children.
            self.process.send_signal(signal.SIGTERM)
            self.process.send_signal(signal.SIGINT)
            self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.process.stderr is not None
        self.process.stderr.close()

    @property
    def text(self) -> str:
        """What it has written."""
        return "\n".join(self.lines)

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until something is so; fail with the log if it is not in time, or the daemon ends before."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                self._reader.join(PATIENCE)
                assert condition(), f"ended with {self.process.returncode} before {what}:\n{self.text}"
                return
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE} s:\n{self.text}"
            time.sleep(0.1)

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Ask it to stop, or wait for it to end by itself. Its exit code."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code


def calls(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """What native children have written down, by shard."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        text = path.read_text("utf-8")
        found[path.stem] = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return found


def data(folder: Path) -> list[str]:
    """The data of all records that native children got, as text, in the order of shards."""
    return [
        base64.b64decode(record[3] or "").decode()
        for rows in calls(folder).values()
        for row in rows
        if row["call"] == "batch"
        for record in row["records"]
    ]


def put(aws: LocalAws, stream: str, *records: str, keys: list[str] | None = None) -> None:
    """Put records of text; the key is the text itself, or the one given."""
    kinesis = aws.client("kinesis")
    rows = [
        {"Data": text.encode(), "PartitionKey": key}
        for text, key in zip(records, keys or [text.strip("!") for text in records], strict=True)
    ]
    answer = kinesis.put_records(StreamName=stream, Records=rows)
    assert answer["FailedRecordCount"] == 0
