"""The cost of a daemon and its children under load: memory and CPU, by the number of shards.

    python bench/daemon_sizing.py --shards 1,4,8 --megabytes 100 -- --jvm-option=-Xmx512m

For each number of shards: local AWS with an empty stream, and `fastkcl daemon` (KCL 3) over it, with a child for each
shard that receives and checkpoints. /proc has the use of each process: when all children are there, when so many MB of
1 kB records have been put into each shard and are checkpointed, when as many again have (the JVM has compiled its code
by then), and after some quiet seconds. Local AWS is on the same cores, so how long all takes says nothing. Arguments
after ``--`` are for `fastkcl daemon`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastkcl.daemon.processes import group_members
from fastkcl.local_aws import LocalAws
from fastkcl.local_aws.leases import checkpoints, seed_leases

CHILD = Path(__file__).parent / "children" / "checkpointing_child.py"
QUIET_SECONDS = 20.0
PATIENCE = 900.0
RECORD = 1000
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """Of one process, or of several: MB, MB that nobody shares, the most MB that there were, seconds of CPU."""

    resident: float
    private: float
    peak: float
    cpu: float

    @classmethod
    def of(cls, *pids: int) -> Usage:
        """The mean of memory, and the sum of CPU."""
        found = [cls._one(pid) for pid in pids]
        means = (sum(getattr(each, name) for each in found) / len(found) for name in ("resident", "private", "peak"))
        return cls(*means, cpu=sum(each.cpu for each in found))

    @classmethod
    def _one(cls, pid: int) -> Usage:
        folder = Path(f"/proc/{pid}")
        sizes = {
            name: int(value.split()[0]) / 1e3 * 1.024
            for line in f"{(folder / 'status').read_text()}{(folder / 'smaps_rollup').read_text()}".splitlines()
            for name, colon, value in [line.partition(":")]
            if colon and value.endswith(" kB")
        }
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        private = sizes["Private_Clean"] + sizes["Private_Dirty"]
        return cls(sizes["VmRSS"], private, sizes["VmHWM"], sum(map(int, times)) / TICKS)


def fill(kinesis: Any, stream: str, megabytes: float) -> dict[str, str]:  # noqa: ANN401 - boto3 has no types
    """Put as many MB into each shard; the last sequence number of each."""
    last = {}
    data = secrets.token_bytes(RECORD)
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        key = shard["HashKeyRange"]["StartingHashKey"]
        rows = [{"Data": data, "PartitionKey": "k", "ExplicitHashKey": key}] * 500
        for _ in range(round(megabytes * 1e6 / RECORD / len(rows))):
            last[shard["ShardId"]] = kinesis.put_records(StreamName=stream, Records=rows)["Records"][-1][
                "SequenceNumber"
            ]
    return last


@contextmanager
def daemon(aws: LocalAws, stream: str, arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`fastkcl daemon` over the stream."""
    command = [sys.executable, "-m", "fastkcl", "daemon", "--stream", stream, "--application", stream, *arguments]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--", sys.executable, str(CHILD)], stderr=log, env=os.environ | aws.environment, cwd=folder
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        if code := process.wait(120):
            sys.stderr.write((folder / "log").read_text())
            raise SystemExit(f"fastkcl daemon has ended with {code}")


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("the daemon has ended, or is not done in time")
        time.sleep(0.2)


def processes(supervisor: int) -> tuple[int, int, list[int]]:
    """The JVM, the guard and the children of a `fastkcl daemon`."""
    started = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (jvm,) = [int(pid) for pid in started if Path(f"/proc/{pid}/comm").read_text().strip() == "java"]
    (guard,) = [int(pid) for pid in started if int(pid) != jvm]
    return jvm, guard, [pid for pid in group_members(jvm) if pid != jvm]


def measure(shards: int, megabytes: float, arguments: list[str]) -> None:
    """One row for each kind of process."""
    stream = f"s{shards}"
    with LocalAws(streams={stream: shards}) as aws, tempfile.TemporaryDirectory() as folder:
        kinesis, dynamodb = aws.client("kinesis"), aws.client("dynamodb")
        seed_leases(kinesis, dynamodb, application=stream, stream=stream)
        with daemon(aws, stream, arguments, Path(folder)) as supervisor:
            log = Path(folder, "log")
            wait_for(lambda: log.read_text().count("child ready") == shards, supervisor)
            jvm, guard, children = processes(supervisor.pid)
            groups = {"`fastkcl daemon`": (supervisor.pid,), "guard": (guard,), "JVM": (jvm,), "child": (*children,)}

            def usage() -> dict[str, Usage]:
                return {name: Usage.of(*pids) for name, pids in groups.items()}

            def loaded() -> dict[str, Usage]:
                last = fill(kinesis, stream, megabytes)

                def done() -> bool:
                    stored = checkpoints(dynamodb, application=stream)
                    return {shard: stored[shard][0] for shard in last} == last

                wait_for(done, supervisor)
                return usage()

            start, first, busy = usage(), loaded(), loaded()
            time.sleep(QUIET_SECONDS)
            quiet = usage()
    gigabytes = shards * megabytes / 1e3
    for name, end in quiet.items():
        per_gb = [
            (later[name].cpu - earlier[name].cpu) / gigabytes for earlier, later in ((start, first), (first, busy))
        ]
        print(
            f"| {shards} | {name} | {end.resident:.0f} ({end.private:.0f}) | {end.peak:.0f} | {start[name].cpu:.1f} |"
            f" {per_gb[0]:.1f} | {per_gb[1]:.1f} | {(end.cpu - busy[name].cpu) / QUIET_SECONDS:.1%} |",
            flush=True,
        )


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="1,4,8", help="numbers of shards  [default: %(default)s]")
    parser.add_argument("--megabytes", type=float, default=50, help="in each shard  [default: %(default)s]")
    parser.add_argument("arguments", nargs="*", help="of fastkcl daemon")
    given = parser.parse_args()
    print(
        "| shards | process | MB (its own) | most MB | start, s of CPU | first, s/GB | then, s/GB | quiet, of a core |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for shards in given.shards.split(","):
        measure(int(shards), given.megabytes, given.arguments)


if __name__ == "__main__":
    main()
