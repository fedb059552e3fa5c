"""Real daemons of three generations, started by `fastkcl daemon` against local AWS, with children of ours.

One run of KCL 3 belongs to every test run; the others are those of ``make test-daemon`` (the marker ``daemon``).
"""

from __future__ import annotations

import importlib.util
import json
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from daemon_helpers import CHILDREN, PATIENCE, Daemon, calls, data, jars_of, put
from fastkcl.daemon.keys import Generation
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, steal_lease

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
SHARD = "shardId-000000000000"
DIALECTS = {KCL_3: "modern", KCL_1_15: "modern", KCL_1_7: "legacy"}
ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.timeout(900)
generations = pytest.mark.parametrize("generation", Generation, ids=lambda generation: generation.name)

Start = Callable[..., Daemon]


@pytest.fixture(scope="module")
def aws() -> Iterator[LocalAws]:
    with LocalAws() as aws:
        yield aws


@pytest.fixture
def stream(aws: LocalAws) -> Callable[[int], str]:
    def make(shards: int) -> str:
        name = f"s-{uuid.uuid4().hex[:12]}"
        aws.client("kinesis").create_stream(StreamName=name, ShardCount=shards)
        return name

    return make


@pytest.fixture
def start(aws: LocalAws, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a daemon with the native child, or another; they are ended with the test."""
    daemons: list[Daemon] = []

    def start(generation: Generation, stream: str, *arguments: str, rogue: str | None = None, **more: Any) -> Daemon:
        child = ["daemon_child.py", str(tmp_path)] if rogue is None else ["daemon_rogue.py", rogue]
        command = [sys.executable, str(CHILDREN / child[0]), child[1]]
        jars = jars_of(generation, request)
        daemons.append(Daemon(aws, jars, generation, stream, command, tmp_path, *arguments, **more))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.__exit__()


def whole_way(aws: LocalAws, start: Start, name: str, folder: Path, generation: Generation) -> None:
    """Records, checkpoints, a split, and the end: each record is there once, and the lease table says so."""
    kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
    first = [f"a{n}" for n in range(40)]
    put(aws, name, *first, keys=[f"clé {n} \N{PARTY POPPER}" for n in range(40)])
    daemon = start(generation, name)
    daemon.wait_for("first records", lambda: len(data(folder)) >= len(first))
    assert {row["stream"] for rows in calls(folder).values() for row in rows if row["call"] == "initialize"} == {name}
    assert {rows[0]["dialect"] for rows in calls(folder).values()} == {DIALECTS[generation]}
    kinesis.split_shard(StreamName=name, ShardToSplit=SHARD, NewStartingHashKey=str(1 << 125))
    second = [f"b{n}" for n in range(40)]
    put(aws, name, *second)
    daemon.wait_for("records of all shards", lambda: len(data(folder)) >= len(first + second))
    daemon.wait_for("the shard's end", lambda: f"{SHARD}  shard ended" in daemon.text)
    assert daemon.end() == 0, daemon.text
    assert sorted(data(folder)) == sorted(first + second)
    keys = [record[2] for rows in calls(folder).values() for row in rows for record in row.get("records", [])]
    assert "clé 7 \N{PARTY POPPER}" in keys
    last = {
        shard: [record[0] for row in rows for record in row.get("records", [])][-1:]
        for shard, rows in calls(folder).items()
    }
    stored = checkpoints(dynamodb, application=name)
    assert stored.pop(SHARD, ("SHARD_END", 0))[0] == "SHARD_END"  # or its lease is gone with it
    assert {shard: place for shard, (place, _) in stored.items()} == {
        shard: places[0] if places else "TRIM_HORIZON" for shard, places in last.items() if shard != SHARD
    }
    ends = {row["call"] for shard, rows in calls(folder).items() if shard != SHARD for row in rows}
    assert ("shutdown_requested" in ends) == (generation is not KCL_1_7)


def test_kcl_3_once_through(aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path) -> None:
    whole_way(aws, start, stream(2), tmp_path, KCL_3)


@pytest.mark.daemon
@pytest.mark.parametrize("generation", [KCL_1_15, KCL_1_7], ids=lambda generation: generation.name)
def test_once_through(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    whole_way(aws, start, stream(2), tmp_path, generation)


@pytest.mark.daemon
@generations
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("exit", "exited with code 7"),
        ("kill", "exited with code 137 (signal 9)"),
        ("raise", "exited with code 1"),
        ("hang", "did not answer processRecords within timeoutInSeconds"),
    ],
)
def test_a_child_that_fails(
    aws: LocalAws,
    start: Start,
    stream: Callable[[int], str],
    tmp_path: Path,
    generation: Generation,
    fault: str,
    why: str,
) -> None:
    if fault == "hang" and generation is KCL_1_7:
        # It has no timeoutInSeconds: the child's end is what ends it.
        fault, why = "kill", "exited with code 137 (signal 9)"
    name = stream(1)
    put(aws, name, "first", f"!{fault}", "last")
    timeout = ["--timeout-in-seconds", "25"] if fault == "hang" else []
    daemon = start(generation, name, *timeout)
    assert daemon.end(None) == 1, daemon.text
    assert daemon.lines[-1] == f"fastkcl daemon: the daemon ended: the child of {SHARD} {why}"
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True)
    assert left.stdout == "", daemon.text
    # Nothing of the batch was checkpointed, so all of it comes again.
    daemon = start(generation, name, seed=False)
    daemon.wait_for("all records", lambda: {"first", f"!{fault}", "last"} <= set(data(tmp_path)))
    assert daemon.end() == 0, daemon.text
    assert sorted(data(tmp_path)) == sorted(["first", f"!{fault}", "last"])


@pytest.mark.daemon
@generations
def test_restart(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    name = stream(1)
    put(aws, name, "first", "!kill", "last")
    daemon = start(generation, name, "--restart")
    daemon.wait_for("all records", lambda: "last" in data(tmp_path))
    assert daemon.end() == 0, daemon.text
    assert f"the child of {SHARD} exited with code 137 (signal 9); again in 1 s" in daemon.text
    assert sorted(data(tmp_path)) == sorted(["first", "!kill", "last"])


@pytest.mark.daemon
@pytest.mark.parametrize(
    ("generation", "mode", "why"),
    [
        (KCL_3, "null", "wrote the word null on a line of its own"),
        *(
            (generation, "lost", "answered initialize where processRecords was to be answered")
            for generation in Generation
        ),
    ],
)
def test_a_child_that_breaks_the_protocol(
    aws: LocalAws, start: Start, stream: Callable[[int], str], generation: Generation, mode: str, why: str
) -> None:
    name = stream(1)
    put(aws, name, "first")
    daemon = start(generation, name, rogue=mode)
    assert daemon.end(None) == 1, daemon.text
    assert daemon.lines[-1] == f"fastkcl daemon: the daemon ended: the child of {SHARD} {why}"


@pytest.mark.daemon
@generations
def test_noise_is_told(aws: LocalAws, start: Start, stream: Callable[[int], str], generation: Generation) -> None:
    name = stream(1)
    put(aws, name, "first")
    daemon = start(generation, name, rogue="noise")
    daemon.wait_for("noise", lambda: "was skipped: no message at all" in daemon.text)
    daemon.wait_for("the batch", lambda: "batch of 1 record," in daemon.text)
    assert daemon.end() == 0, daemon.text


@pytest.mark.daemon
@generations
def test_a_lease_that_is_stolen(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    name = stream(1)
    put(aws, name, "first")
    daemon = start(generation, name)
    daemon.wait_for("the first record", lambda: "first" in data(tmp_path))
    steal_lease(aws.client("dynamodb"), application=name, shard_id=SHARD)
    daemon.wait_for("the loss", lambda: f"{SHARD}  lease lost: another worker has it" in daemon.text)
    daemon.wait_for("lease_lost", lambda: "lease_lost" in {row["call"] for row in calls(tmp_path)[SHARD]})
    put(aws, name, "second")
    # The thief never renews it.
    daemon.wait_for("the second record", lambda: "second" in data(tmp_path))
    assert daemon.end() == 0, daemon.text


@pytest.mark.daemon
@generations
def test_a_posix_locale_changes_no_key(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    name = stream(1)
    put(aws, name, "first", keys=["clé \N{PARTY POPPER}"])
    locale: dict[str, str | None] = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "1", "LC_CTYPE": None}
    daemon = start(generation, name, environment=locale)
    daemon.wait_for("the record", lambda: bool(data(tmp_path)))
    assert daemon.end() == 0
    (row,) = [row for row in calls(tmp_path)[SHARD] if row["call"] == "batch"]
    assert row["records"][0][2] == "clé \N{PARTY POPPER}"


@pytest.mark.daemon
@generations
def test_the_java_of_the_package_index(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    name = stream(1)
    put(aws, name, "first")
    daemon = start(generation, name, environment={"JAVA_HOME": None, "PATH": str(tmp_path)})
    daemon.wait_for("the record", lambda: "first" in data(tmp_path))
    assert daemon.end() == 0, daemon.text


@pytest.mark.daemon
@generations
def test_credentials_under_a_prefix(
    aws: LocalAws, start: Start, stream: Callable[[int], str], tmp_path: Path, generation: Generation
) -> None:
    name = stream(1)
    put(aws, name, "first")
    provider = ("--aws-credentials-provider", "CustomEnvironmentVariableCredentialsProvider")
    keys: dict[str, str | None] = {"MY_AWS_ACCESS_KEY_ID": "mine", "MY_AWS_SECRET_ACCESS_KEY": 'open sesame \\ "x"'}
    environment = {**keys, "AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
    daemon = start(generation, name, *provider, "--credentials-prefix", "MY", "--verbose", environment=environment)
    daemon.wait_for("the record", lambda: "first" in data(tmp_path))
    assert daemon.end() == 0, daemon.text
    assert "sesame" not in daemon.text
    if generation.is_1:
        assert "Using credentials with access key id: mine" in daemon.text


@pytest.mark.daemon
@generations
def test_what_is_printed_runs_by_itself(
    aws: LocalAws,
    stream: Callable[[int], str],
    tmp_path: Path,
    generation: Generation,
    request: pytest.FixtureRequest,
) -> None:
    name = stream(1)
    put(aws, name, "first")
    command = [sys.executable, "-m", "fastkcl", "daemon", "--jars", str(jars_of(generation, request))]
    child = ["--", sys.executable, str(CHILDREN / "daemon_child.py"), str(tmp_path)]
    given = ["--stream", name, "--application", name, "--endpoint-url", aws.url, *child]

    def printed(what: str) -> str:
        done = subprocess.run([*command, what, *given], capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout

    (tmp_path / "daemon.properties").write_text(printed("--print-properties"))
    log = tmp_path / "log"
    with (
        log.open("w") as file,
        subprocess.Popen(shlex.split(printed("--print-command")), cwd=tmp_path, stdout=file, stderr=file) as java,
    ):
        try:
            deadline = time.monotonic() + PATIENCE
            while "first" not in data(tmp_path):
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


@pytest.mark.daemon
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


@pytest.mark.daemon
@generations
def test_the_keys_are_those_of_the_jars(generation: Generation, request: pytest.FixtureRequest) -> None:
    written = json.loads((ROOT / "python/fastkcl/daemon/keys.json").read_text())[generation.value]
    assert tool("daemon_keys").derive(jars_of(generation, request)) == written
