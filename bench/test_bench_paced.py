"""Children at a daemon's own pace: a line, the status, silence until the next line is due.

A daemon reads a shard at most five times a second. Between two lines a child may give memory back, and pays for that
with the next line. Measured of each line: from its first byte to its status, and the child's CPU until the next line,
so that work in the silence counts.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastkcl.bench.pipes import INITIALIZE, PLACEMENTS, PROGRAMS, Child
from fastkcl.replay import profiles
from suites import CHILDREN, PIPE_PROFILES, digest, drop_in, line

OURS, DROP_IN, ORIGINAL = "fastkcl", "fastkcl.kclpy", "amazon_kclpy"
COLD, WARM = "memory back after 0.1 s", "memory back after 2.5 s"
"""Children of one program that differ in this alone."""
SMALL = "3 KB"
PACES = {0.2: 25, 1.0: 12, 5.0: 6}
"""Lines of each child, by the seconds between two."""


def _line(profile: str, quick: bool) -> bytes:
    return profiles.line("iot", records=9) if profile == SMALL else line(profile, quick)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize("profile", [SMALL, *PIPE_PROFILES])
def test_paced(benchmark, pace: float, profile: str, original_python: Path, tmp_path: Path) -> None:
    """All children get their lines within the same second, one after another; the first batch is compared."""
    content = _line(profile, not benchmark.enabled)
    paced, rounds = (pace, PACES[pace]) if benchmark.enabled else (0.0, 2)
    commands: dict[str, list[str | Path]] = {
        OURS: [sys.executable, PROGRAMS / "columns.py", "nothing"],
        DROP_IN: [*drop_in(tmp_path), "nothing"],
        WARM: [sys.executable, CHILDREN / "paced_child.py", "2.5"],
        COLD: [sys.executable, CHILDREN / "paced_child.py", "0.1"],
        ORIGINAL: [original_python, CHILDREN / "amazon_kclpy_child.py", "nothing"],
    }
    cpu = list(PLACEMENTS.values())[-1][1]
    with ExitStack() as stack:
        children = {}
        for name, command in commands.items():
            check = tmp_path / f"{name}.digest"
            child = children[name] = stack.enter_context(Child(command, cpu, check))
            child.ask(INITIALIZE, "initialize")
            child.ask(content, "processRecords")
            assert name == OURS or check.read_text() == digest(content), name
        samples: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "cpu_of_line": []} for name in children}
        used = dict.fromkeys(children, 0.0)

        def silence(begun: float) -> None:
            time.sleep(max(0.0, begun + paced - time.monotonic()))

        def serve() -> None:
            begun = time.monotonic()
            for name, child in children.items():
                used[name] = child.cpu_seconds()
                start = time.perf_counter()
                child.ask(content, "processRecords")
                samples[name]["seconds"].append(time.perf_counter() - start)
            silence(begun)
            for name, child in children.items():
                samples[name]["cpu_of_line"].append(child.cpu_seconds() - used[name])

        silence(time.monotonic())
        benchmark.group = f"paced, {profile}"
        benchmark.pedantic(serve, rounds=rounds)
        benchmark.extra_info |= {
            "suite": f"paced, a line every {pace:g} s",
            "profile": profile,
            "samples": samples,
            "line_bytes": len(content),
        }
        for child in children.values():
            child.end()
