"""A real child on a real pipe: from the first byte of a line written to the child's status read, and its CPU.

Children take turns, each pinned: fastkcl's and amazon_kclpy's, which give each batch to pyarrow, and one that only
reads.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from fastkcl.bench import original, peers
from fastkcl.bench.pipes import BARE, INITIALIZE, PLACEMENTS, PROGRAMS, Child
from suites import PIPE_PROFILES, line, take_turns

ROUNDS = 25
WRITES = {"8 KiB writes": 8192, "1 MiB writes": 1 << 20}


@pytest.mark.parametrize("profile", PIPE_PROFILES)
@pytest.mark.parametrize("writes", WRITES, ids=lambda name: name.replace(" ", "_"))
def test_pipe(benchmark, placement: str, writes: str, profile: str, original_packages: None, tmp_path: Path) -> None:
    """The first batch is compared before anything is timed."""
    content = line(profile, not benchmark.enabled)
    programs = {peers.OURS: "columns.py", original.name(): "kclpy.py", BARE: "bare.py"}
    with ExitStack() as stack:
        children = {}
        for name, program in programs.items():
            check = tmp_path / program
            child = Child([sys.executable, PROGRAMS / program], PLACEMENTS[placement][1], check, WRITES[writes])
            children[name] = stack.enter_context(child)
            child.ask(INITIALIZE, "initialize")
            child.ask(content, "processRecords")
            if name != BARE:
                with pa.ipc.open_file(check) as file:
                    assert file.get_batch(0).equals(peers.installed()[peers.STDLIB](content)), name
        ways = {name: lambda child=child: child.measure(content) for name, child in children.items()}
        suite = f"pipe, {placement}, {writes}"
        take_turns(benchmark, suite, profile, ways, ROUNDS, line_bytes=len(content))
        for child in children.values():
            child.end()
