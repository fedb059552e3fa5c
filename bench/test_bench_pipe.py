"""A real child on a real pipe: from the first byte of a line written to the child's status read.

Besides the time of a round trip: CPU of the child, time from the last byte to the status, and the child's memory when
it is idle again.
"""

import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from peers import KCLPY_NAME, PEERS
from pipe_child import BARE, BARE_PROGRAM, INITIALIZE, PLACEMENTS, PROFILES, PROGRAMS, Child, line, measure

CHILDREN = {"fastkcl": PROGRAMS / "fastkcl_child.py", KCLPY_NAME: PROGRAMS / "kclpy_child.py", BARE: BARE_PROGRAM}
ROUNDS = {"fastkcl": 60, KCLPY_NAME: 10, BARE: 60}


@pytest.mark.parametrize("peer", CHILDREN)
@pytest.mark.parametrize("profile", PROFILES)
def test_pipe(benchmark, placement: str, profile: str, peer: str, tmp_path: Path) -> None:
    """The first batch is compared before anything is timed."""
    content = line(profile)
    check = tmp_path / "first.arrow"
    with Child([sys.executable, CHILDREN[peer]], PLACEMENTS[placement][1], check) as child:
        child.ask(INITIALIZE, "initialize")
        child.ask(content, "processRecords")
        if peer != BARE:
            with pa.ipc.open_file(check) as file:
                assert file.get_batch(0).equals(PEERS["json + base64"](content))
        child.ask(content, "processRecords")  # the first round did extra work
        benchmark.group = f"pipe, {placement}, {profile}"
        benchmark.extra_info |= {"suite": f"pipe, {placement}", "profile": profile, "peer": peer}
        benchmark.extra_info |= measure(benchmark, child, content, ROUNDS[peer])
        if benchmark.enabled:
            time.sleep(0.2)  # fastkcl's reader keeps its memory for 0.1 s
        benchmark.extra_info["idle_resident_bytes"] = child.resident_bytes()
        child.end()
