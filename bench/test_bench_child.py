"""The costs of a child besides throughput: time to the status, start-up, memory, and its use when nothing happens.

Children here do nothing with a batch, and none imports pyarrow: the rest is fastkcl's or amazon_kclpy's own.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastkcl.bench.pipes import BARE, INITIALIZE, PLACEMENTS, PROGRAMS, Child
from suites import CHILDREN, PIPE_PROFILES, drop_in, line_of_15_mb, take_turns

NATIVE = "fastkcl"
DROP_IN = "fastkcl.kclpy"
ORIGINAL = "amazon_kclpy"
PAUSE = 0.02
"""Seconds in which a child decodes what it has before the last byte comes."""
STATUS_ROUNDS = 15
STARTS = 30
IDLE_SECONDS = 5.0
MEMORY_ROUNDS = 2
CROWD = 200
CROWD_SECONDS = 60.0


@pytest.fixture
def commands(original_python: Path, tmp_path: Path) -> dict[str, list[str | Path]]:
    """Interpreter, program and arguments of each child that looks at no batch."""
    return {
        NATIVE: [sys.executable, PROGRAMS / "columns.py", "nothing"],
        DROP_IN: [*drop_in(tmp_path), "nothing"],
        ORIGINAL: [original_python, CHILDREN / "amazon_kclpy_child.py", "nothing"],
    }


@pytest.mark.parametrize("profile", PIPE_PROFILES)
def test_last_byte_to_status(benchmark, placement: str, profile: str, commands: dict[str, list[str | Path]]) -> None:
    """A line of 15 MB, all but its last byte; a pause; that byte. What is timed is from there to the status."""
    content = line_of_15_mb(profile, not benchmark.enabled)
    with ExitStack() as stack:
        children = {}
        for name, command in (commands | {BARE: [sys.executable, PROGRAMS / "bare.py"]}).items():
            children[name] = stack.enter_context(Child(command, PLACEMENTS[placement][1]))
            children[name].ask(INITIALIZE, "initialize")
        ways = {name: lambda child=child: child.measure_last_byte(content, PAUSE) for name, child in children.items()}
        suite = f"last byte to status, {placement}"
        take_turns(benchmark, suite, profile, ways, STATUS_ROUNDS, line_bytes=len(content))
        for child in children.values():
            child.end()


def test_start_up(benchmark, commands: dict[str, list[str | Path]]) -> None:
    """From before the fork to the status of initialize; daemon and child on one core."""

    def start(command: list[str | Path]) -> dict[str, float]:
        begun = time.perf_counter()
        with Child(command, PLACEMENTS["one core"][1]) as child:
            child.ask(INITIALIZE, "initialize")
            seconds = time.perf_counter() - begun
            child.end()
        return {"seconds": seconds}

    ways = {name: lambda command=command: start(command) for name, command in commands.items()}
    take_turns(benchmark, "start-up", "until initialized", ways, STARTS)


@pytest.mark.parametrize("profile", PIPE_PROFILES)
def test_memory(benchmark, profile: str, commands: dict[str, list[str | Path]]) -> None:
    """Of a fresh child that is initialized, and again after one batch of 15 MB and a silence."""
    content = line_of_15_mb(profile, not benchmark.enabled)
    silence = IDLE_SECONDS if benchmark.enabled else 0.0

    def remember(command: list[str | Path]) -> dict[str, float]:
        with Child(command, PLACEMENTS["one core"][1]) as child:
            child.ask(INITIALIZE, "initialize")
            start = child.resident_bytes()
            begun = time.perf_counter()
            child.ask(content, "processRecords")
            time.sleep(silence)
            seconds = time.perf_counter() - begun
            idle = child.resident_bytes()
            child.end()
        return {"seconds": seconds, "start_resident_bytes": start, "idle_resident_bytes": idle}

    ways = {name: lambda command=command: remember(command) for name, command in commands.items()}
    take_turns(benchmark, "memory", profile, ways, MEMORY_ROUNDS, warm_up=False, line_bytes=len(content))


@pytest.mark.timeout(600)
def test_idle_children(benchmark, commands: dict[str, list[str | Path]]) -> None:
    """CPU of many children together that have had a batch and wait for the next."""
    crowd, seconds = (CROWD, CROWD_SECONDS) if benchmark.enabled else (3, 0.5)
    content = line_of_15_mb("iot", quick=True)
    with ExitStack() as stack:
        children = [stack.enter_context(Child(commands[NATIVE], PLACEMENTS["one core"][1])) for _ in range(crowd)]
        for child in children:
            child.ask(INITIALIZE, "initialize")
            child.ask(content, "processRecords")
        time.sleep(4.0 if benchmark.enabled else 0.0)  # until each has given its memory back

        def wait() -> dict[str, float]:
            before = [child.cpu_seconds() for child in children]
            time.sleep(seconds)
            used = sum(child.cpu_seconds() - was for child, was in zip(children, before, strict=True))
            return {"seconds": seconds, "core_share": used / seconds}

        benchmark.group = "idle children"
        samples = {NATIVE: benchmark.pedantic(wait, rounds=1)}
        noted = {peer: {figure: [value] for figure, value in figures.items()} for peer, figures in samples.items()}
        benchmark.extra_info |= {"suite": "idle children", "profile": f"{crowd} children", "samples": noted}
        for child in children:
            child.end()
