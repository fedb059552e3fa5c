"""The drop-in beside the original: one program, unchanged but for the name that it imports.

Whole round trips over a pipe of children that read the payload of every record, with and without its partition key and
sequence number. amazon_kclpy runs in an environment of its own, with the same Python.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from fastkcl.bench.pipes import BARE, INITIALIZE, PLACEMENTS, PROGRAMS, Child
from suites import CHILDREN, PIPE_PROFILES, digest, drop_in, line, take_turns

OURS = "fastkcl.kclpy"
ORIGINAL = "amazon_kclpy"
ROUNDS = 15


READS = ("payloads", "payloads and keys", "version 1, get and b64decode", "version 2, get and b64decode")
"""What children read of each record."""


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("profile", PIPE_PROFILES)
def test_records(benchmark, placement: str, profile: str, reads: str, original_python: Path, tmp_path: Path) -> None:
    """The first batch is compared before anything is timed."""
    content = line(profile, not benchmark.enabled)
    commands: dict[str, list[str | Path]] = {
        OURS: [*drop_in(tmp_path), reads],
        ORIGINAL: [original_python, CHILDREN / "amazon_kclpy_child.py", reads],
        BARE: [sys.executable, PROGRAMS / "bare.py"],
    }
    with ExitStack() as stack:
        children = {}
        for name, command in commands.items():
            check = tmp_path / f"{name}.digest"
            child = children[name] = stack.enter_context(Child(command, PLACEMENTS[placement][1], check))
            child.ask(INITIALIZE, "initialize")
            child.ask(content, "processRecords")
            if name != BARE:
                assert check.read_text() == digest(content), name
        ways = {name: lambda child=child: child.measure(content) for name, child in children.items()}
        take_turns(benchmark, f"{reads}, {placement}", profile, ways, ROUNDS, line_bytes=len(content))
        for child in children.values():
            child.end()
