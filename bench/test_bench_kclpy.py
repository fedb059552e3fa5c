"""The drop-in beside the original: one program, unchanged but for the name that it imports.

Whole round trips over a pipe of children that read the payload of every record, with and without its partition key and
sequence number; the time until a child has answered initialize; and its memory after a batch of 15 MB and 5 s of
silence. amazon_kclpy runs in an environment of its own, with the same Python.
"""

import hashlib
import json
import sys
import time
from base64 import b64decode
from pathlib import Path

import pytest
from fastkcl.replay import profiles
from original_kclpy import VERSION
from pipe_child import BARE, BARE_PROGRAM, INITIALIZE, PLACEMENTS, PROFILES, PROGRAMS, Child, line, measure

OURS = "fastkcl.kclpy"
ORIGINAL = f"amazon_kclpy {VERSION}"
PROGRAM = PROGRAMS / "amazon_kclpy_child.py"
ROUNDS = {OURS: 60, ORIGINAL: 15, BARE: 60}
STARTS = 40
IDLE_SECONDS = 5
QUICK_RECORDS = {"iot": 1000, "clickstream": 1000, "logs": 80, "blob": 1}
RECORDS_OF_15_MB = {"iot": 47_000, "clickstream": 17_230, "logs": 882, "blob": 11}


@pytest.fixture
def command(peer: str, request: pytest.FixtureRequest, tmp_path: Path) -> list[str | Path]:
    """Interpreter and program of a peer."""
    if peer == ORIGINAL:
        return [request.getfixturevalue("original_python"), PROGRAM]
    if peer == BARE:
        return [sys.executable, BARE_PROGRAM]
    program = tmp_path / "fastkcl_kclpy_child.py"
    program.write_text(PROGRAM.read_text().replace("amazon_kclpy", "fastkcl.kclpy"))
    return [sys.executable, program]


def digest(content: bytes) -> str:
    """What a child has to find in a line, by Python's own json and base64."""
    expected = hashlib.sha256()
    for record in json.loads(content)["records"]:
        payload = b64decode(record["data"], validate=True)
        for value in (payload, record["partitionKey"].encode(), record["sequenceNumber"].encode()):
            expected.update(b"%d:" % len(value))
            expected.update(value)
    return expected.hexdigest()


@pytest.mark.parametrize(
    ("reads", "peer"),
    [("payloads", OURS), ("payloads", ORIGINAL), ("payloads", BARE)]
    + [("payloads and keys", OURS), ("payloads and keys", ORIGINAL)],
)
@pytest.mark.parametrize("profile", PROFILES)
def test_records(benchmark, placement: str, profile: str, reads: str, peer: str, command, tmp_path: Path) -> None:
    """The first batch is compared before anything is timed."""
    content = line(profile) if benchmark.enabled else profiles.line(profile, records=QUICK_RECORDS[profile])
    check = tmp_path / "digest"
    suite = f"{reads}, {placement}"
    with Child([*command, reads], PLACEMENTS[placement][1], check) as child:
        child.ask(INITIALIZE, "initialize")
        child.ask(content, "processRecords")
        if peer != BARE:
            assert check.read_text() == digest(content)
        if benchmark.enabled:
            child.ask(content, "processRecords")  # the first round did extra work
        benchmark.group = f"{suite}, {profile}"
        benchmark.extra_info |= {"suite": suite, "profile": profile, "peer": peer}
        benchmark.extra_info |= measure(benchmark, child, content, ROUNDS[peer])
        child.end()


@pytest.mark.parametrize("peer", [OURS, ORIGINAL])
def test_start_up(benchmark, peer: str, command) -> None:
    """From the fork to the status of initialize, daemon and child on one core."""
    started: list[Child] = []

    def start() -> None:
        started.append(Child([*command, "payloads"], PLACEMENTS["one core"][1]))
        started[-1].ask(INITIALIZE, "initialize")

    def end() -> None:
        for child in started:
            with child:
                child.end()
        started.clear()

    benchmark.group = "start-up"
    benchmark.extra_info |= {"suite": "start-up", "profile": "until initialized", "peer": peer}
    start()  # compiles what is not compiled yet
    benchmark.pedantic(start, setup=end, rounds=STARTS)
    end()


@pytest.mark.parametrize("peer", [OURS, ORIGINAL])
@pytest.mark.parametrize("profile", PROFILES)
def test_memory(benchmark, profile: str, peer: str, command, tmp_path: Path) -> None:
    """After one batch of 15 MB and a silence; what is timed is that batch."""
    content = profiles.line(profile, records=(RECORDS_OF_15_MB if benchmark.enabled else QUICK_RECORDS)[profile])
    check = None if benchmark.enabled else tmp_path / "digest"  # hashlib would be a part of the memory
    with Child([*command, "payloads and keys"], PLACEMENTS["one core"][1], check) as child:
        child.ask(INITIALIZE, "initialize")
        before = child.resident_bytes()
        benchmark.group = f"idle, {profile}"
        benchmark.extra_info |= {"suite": "one batch of 15 MB", "profile": profile, "peer": peer}
        benchmark.pedantic(child.ask, (content, "processRecords"))
        assert check is None or check.read_text() == digest(content)
        if benchmark.enabled:
            time.sleep(IDLE_SECONDS)
        benchmark.extra_info |= {"start_resident_bytes": before, "idle_resident_bytes": child.resident_bytes()}
        child.end()
