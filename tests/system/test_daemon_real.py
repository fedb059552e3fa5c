"""Real daemons of three generations, started by `fastkcl daemon` against local AWS: how they start, and how they end.

Their reaction to a stream's life is in test_daemon_life.py. One run of KCL 3 belongs to every test run; the others are
those of ``make test-daemon`` (the marker ``daemon``). Daemons wait more than they work: a test starts those of all
generations, and then looks at one after the other.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from daemon_helpers import PATIENCE, Daemon, calls, data, jars_of, put
from fastkcl.daemon.jars import find_jars
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, seed_leases
from paths import PROGRAMS, ROOT

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
SHARD = "shardId-000000000000"

pytestmark = pytest.mark.timeout(900)
generations = pytest.mark.parametrize("generation", Generation, ids=lambda generation: generation.name)


@dataclass
class Place:
    """A stream of its own, and a folder for what the children of a daemon write down."""

    aws: LocalAws
    generation: Generation
    jars: Path
    stream: str
    folder: Path
    daemons: list[Daemon] = field(default_factory=list)

    def put(self, *records: str) -> None:
        put(self.aws, self.stream, *records)

    def start(self, *arguments: str, rogue: str | None = None, **more: Any) -> Daemon:
        """Start a daemon with the native child, or with one that breaks the protocol."""
        child = ["daemon_child.py", str(self.folder)] if rogue is None else ["daemon_rogue.py", rogue]
        command = [sys.executable, str(PROGRAMS / child[0]), child[1]]
        daemon = Daemon(self.aws, self.jars, self.generation, self.stream, command, self.folder, *arguments, **more)
        self.daemons.append(daemon)
        return daemon


MakePlace = Callable[..., Place]


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as aws:
        yield aws


@pytest.fixture
def place(aws: LocalAws, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakePlace]:
    """Makes places; daemons that are left end with the test."""
    places: list[Place] = []

    def make(generation: Generation, shards: int = 1) -> Place:
        name = f"s-{uuid.uuid4().hex[:12]}"
        aws.client("kinesis").create_stream(StreamName=name, ShardCount=shards)
        folder = tmp_path / name
        folder.mkdir()
        places.append(Place(aws, generation, jars_of(generation, request), name, folder))
        return places[-1]

    yield make
    for each in places:
        for daemon in each.daemons:
            daemon.__exit__()


def test_kcl_3_once_through(aws: LocalAws, place: MakePlace) -> None:
    """Records, checkpoints, a split, and the end: each record is there once, and the lease table says so."""
    at = place(KCL_3, shards=2)
    kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
    first, second = ([f"{half}{n}" for n in range(40)] for half in "ab")
    put(aws, at.stream, *first, keys=[f"clé {n} \N{PARTY POPPER}" for n in range(40)])
    daemon = at.start()
    daemon.wait_for("first records", lambda: len(data(at.folder)) >= len(first))
    begun = [row for rows in calls(at.folder).values() for row in rows if row["call"] == "initialize"]
    assert {(row["stream"], row["dialect"]) for row in begun} == {(at.stream, "modern")}
    kinesis.split_shard(StreamName=at.stream, ShardToSplit=SHARD, NewStartingHashKey=str(1 << 125))
    at.put(*second)
    daemon.wait_for("records of all shards", lambda: len(data(at.folder)) >= len(first + second))
    daemon.wait_for("the shard's end", lambda: f"{SHARD}  shard ended" in daemon.text)
    assert daemon.end() == 0, daemon.text
    assert sorted(data(at.folder)) == sorted(first + second)
    keys = [record[2] for rows in calls(at.folder).values() for row in rows for record in row.get("records", [])]
    assert "clé 7 \N{PARTY POPPER}" in keys
    last = {
        shard: [record[0] for row in rows for record in row.get("records", [])][-1:]
        for shard, rows in calls(at.folder).items()
    }
    stored = checkpoints(dynamodb, application=at.stream)
    assert stored.pop(SHARD, ("SHARD_END", 0))[0] == "SHARD_END"  # or its lease is gone with it
    assert {shard: position for shard, (position, _) in stored.items()} == {
        shard: places[0] if places else "TRIM_HORIZON" for shard, places in last.items() if shard != SHARD
    }
    ends = {row["call"] for shard, rows in calls(at.folder).items() if shard != SHARD for row in rows}
    assert "shutdown_requested" in ends


FAILURES = {
    "exit": "exited with code 7",
    "kill": "exited with code 137 (signal 9)",
    "raise": "exited with code 1",
    "hang": "did not answer processRecords within timeoutInSeconds",
}


def failures(daemon: Daemon) -> list[str]:
    return [line for line in daemon.lines if "; again in " in line]


def test_children_that_fail_and_are_started_again(place: MakePlace, tmp_path: Path) -> None:
    """Two faults, one after the other, with one batch, of which nothing was checkpointed; no process is left."""
    started = []
    for generation, faults in itertools.product(Generation, (["exit", "hang"], ["kill", "raise"])):
        if generation is KCL_1_7:  # it has no timeoutInSeconds
            faults = [fault for fault in faults if fault != "hang"]
        at = place(generation)
        records = ["first", *(f"!{fault}" for fault in faults), "last"]
        at.put(*records)
        timeout = ["--timeout-in-seconds", "15"] if "hang" in faults else []
        started.append((at, at.start("--restart", *timeout), faults, records))
    for at, daemon, faults, records in started:
        for count, fault in enumerate(faults):
            daemon.wait_for(f"end by {fault}", lambda: len(failures(daemon)) > count)  # noqa: B023
        daemon.wait_for("all records", lambda: "last" in data(at.folder))  # noqa: B023
        assert daemon.end() == 0, daemon.text
        assert failures(daemon) == [
            f"fastkcl daemon: the daemon ended: the child of {SHARD} {FAILURES[fault]}; again in {2**count} s"
            for count, fault in enumerate(faults)
        ]
        assert sorted(data(at.folder)) == sorted(records)
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == "", [daemon.text for _, daemon, _, _ in started]


def test_children_that_break_the_protocol(place: MakePlace) -> None:
    """The daemon ends, and `fastkcl daemon` with it: its last line says why."""
    lost = "answered initialize where processRecords was to be answered"
    rogues = [(generation, "lost", lost) for generation in Generation]
    rogues.append((KCL_3, "null", "wrote a line with only the word null"))
    started = []
    for generation, mode, why in rogues:
        at = place(generation)
        at.put("first")
        started.append((at.start(rogue=mode), why))
    for daemon, why in started:
        assert daemon.end(None) == 1, daemon.text
        assert daemon.lines[-1] == f"fastkcl daemon: the daemon ended: the child of {SHARD} {why}"


def test_noise_is_told(place: MakePlace) -> None:
    started = []
    for generation in Generation:
        at = place(generation)
        at.put("first")
        started.append(at.start(rogue="noise"))
    for daemon in started:
        daemon.wait_for("noise", lambda daemon=daemon: "was skipped: no message at all" in daemon.text)
        daemon.wait_for("the batch", lambda daemon=daemon: "batch of 1 record," in daemon.text)
        assert daemon.end() == 0, daemon.text


def test_the_java_of_the_package_index_and_credentials_under_a_prefix(place: MakePlace, tmp_path: Path) -> None:
    provider = ("--aws-credentials-provider", "CustomEnvironmentVariableCredentialsProvider")
    environment = {
        "JAVA_HOME": None,
        "PATH": str(tmp_path),
        "MY_AWS_ACCESS_KEY_ID": "mine",
        "MY_AWS_SECRET_ACCESS_KEY": 'open sesame \\ "x"',
        "AWS_ACCESS_KEY_ID": None,
        "AWS_SECRET_ACCESS_KEY": None,
    }
    started = []
    for generation in Generation:
        at = place(generation)
        at.put("first")
        daemon = at.start(*provider, "--credentials-prefix", "MY", "--verbose", environment=environment)
        started.append((at, daemon))
    for at, daemon in started:
        daemon.wait_for("the record", lambda at=at: "first" in data(at.folder))
        assert daemon.end() == 0, daemon.text
        assert "sesame" not in daemon.text
        if at.generation.is_1:
            assert "Using credentials with access key id: mine" in daemon.text


@generations
def test_what_is_printed_runs_by_itself(aws: LocalAws, place: MakePlace, generation: Generation) -> None:
    at = place(generation)
    at.put("first")
    if generation is not KCL_1_7:
        kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        seed_leases(kinesis, dynamodb, application=at.stream, stream=at.stream)
    command = [sys.executable, "-m", "fastkcl", "daemon", "--jars", str(at.jars)]
    child = ["--", sys.executable, str(PROGRAMS / "daemon_child.py"), str(at.folder)]
    given = ["--stream", at.stream, "--application", at.stream, "--endpoint-url", aws.url, *child]

    def printed(what: str) -> str:
        done = subprocess.run([*command, what, *given], capture_output=True, text=True, check=True, cwd=at.folder)
        return done.stdout

    (at.folder / "daemon.properties").write_text(printed("--print-properties"))
    log = at.folder / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(shlex.split(printed("--print-command")), cwd=at.folder, stdout=file, stderr=file) as java,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while "first" not in data(at.folder):
                assert java.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
        finally:
            java.send_signal(signal.SIGTERM)
            assert java.wait(PATIENCE) == 143


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("generation", "provider"),
    [
        *((generation, "DefaultCredentialsProvider") for generation in Generation),
        *((generation, "EnvironmentVariableCredentialsProvider") for generation in Generation),
        *((generation, "SystemPropertyCredentialsProvider") for generation in Generation),
        *((generation, "ProfileCredentialsProvider") for generation in Generation),
        (KCL_3, "ContainerCredentialsProvider"),
        (KCL_3, "WebIdentityTokenFileCredentialsProvider"),
        (KCL_3, "StsAssumeRoleCredentialsProvider|arn|session"),
        (KCL_1_15, "EC2ContainerCredentialsProviderWrapper"),
        (KCL_1_15, "WebIdentityTokenCredentialsProvider"),
    ],
)
def test_known_providers_are_in_the_jars(generation: Generation, provider: str, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "fastkcl", "daemon", "--jars", str(jars_of(generation, request)), "--check"]
    given = ["--stream", "s", "--application", "a", "--aws-credentials-provider", provider, "--strict"]
    done = subprocess.run([*command, *given, "--", sys.executable], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@generations
def test_the_keys_are_those_of_the_jars(generation: Generation, request: pytest.FixtureRequest) -> None:
    """The table is the newest release's; without what came after the release of these jars it is theirs."""
    written = json.loads((ROOT / "python/fastkcl/daemon/keys.json").read_text())[generation.value]
    jars = jars_of(generation, request)
    release = find_jars(generation, jars).version
    later = {what for what, first in written["since"].items() if numbers(release) < numbers(first)}
    keys = {
        name: [value for value in kind if f"{name}={value}" not in later] if isinstance(kind, list) else kind
        for name, kind in written["keys"].items()
        if name not in later
    }
    derived_from = re.sub(r"[\d.]+(?=\.jar)", release, written["derived_from"])
    assert tool("daemon_keys").derive(jars) == {"derived_from": derived_from, "keys": keys, "open": written["open"]}


def numbers(release: str) -> list[int]:
    return [int(number) for number in release.split(".")]
