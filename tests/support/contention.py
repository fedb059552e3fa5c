"""Writers of one table in processes of their own, each with its shard, which begin together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from paths import ROOT
from waiting import PATIENCE

ROWS = 3
"""Of each write, as the program has it."""


@dataclass(frozen=True)
class Contention:
    """What came of it."""

    took: list[float]
    """Seconds of each write, of all writers."""
    seconds: float
    """From the first writer's first write to the last one's end."""

    @property
    def writes_a_second(self) -> float:
        return len(self.took) / self.seconds

    @property
    def seconds_of_95_percent(self) -> float:
        return quantiles(self.took, n=20, method="inclusive")[-1]

    @property
    def longest(self) -> float:
        return max(self.took)


def contend(
    kind: str, url: str, writers: int, writes: int, hosts: Sequence[Path], environment: Mapping[str, str]
) -> Contention:
    """Have writers write, and see that none has failed.

    Args:
        kind: ``DeltaTable``, ``IcebergTable`` or ``ParquetTable``.
        url: of the table.
        writers: how many, each of a shard.
        writes: of each writer.
        hosts: folders, empty or of this test alone: writers of one meet in it, as those of one host do.
        environment: variables, to reach S3 or a catalog.
    """
    program = ROOT / "tests" / "programs" / "table_contender.py"
    with ExitStack() as stack:
        processes = []
        for number in range(writers):
            host = hosts[number % len(hosts)]
            host.mkdir(mode=0o700, exist_ok=True)
            command = [sys.executable, str(program), kind, url, f"shardId-{number:012}", str(writes)]
            process = subprocess.Popen(
                command,
                env={**os.environ, **environment, "XDG_RUNTIME_DIR": str(host)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(_end, process)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        told = []
        for process in processes:
            output, _ = process.communicate(timeout=10 * PATIENCE)
            assert process.returncode == 0
            told.append(json.loads(output))
    took = [seconds for each in told for seconds in each["took"]]
    return Contention(took, max(each["ended"] for each in told) - min(each["begun"] for each in told))


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
