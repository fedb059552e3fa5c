"""The tools of the Spark bench: one Connect server, the shards' records, and clients that start together.

    records of 8 shards ──┬─▶ replayer ═ pipe ═▶ 8 children ─────┐
                          │   (lines made before the clock runs)  ├──▶ one Connect server ──▶ noop, or Parquet
                          └─▶ 8 clients, records in memory ───────┘

The clock runs from the word to go, which is given when all clients have their session and wait at the gate, until the
last one is done: everything stored and, of a child, its shard's end checkpointed. All clients of one run are of one
kind. So the time has no start of a process and no opening of a session in it, for nobody.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
from fastkcl.bench.arrow_columns import SCHEMA, to_arrow
from fastkcl.bench.pipes import CPUS, WRITE_SIZE
from fastkcl.replay import ReplayOptions, generate, replay
from fastkcl.replay.sources import Shard
from suites import CHILDREN

STREAM = "bench"
HEAP = "6g"
"""Of the server; the peers' largest pieces need it."""
PLACEMENTS = {"everything on two cores": (CPUS, CPUS)} | (
    {"server on one core, clients on the other": (CPUS[1:2], CPUS[:1])} if len(CPUS) > 1 else {}
)
"""Cores of the server, and of the daemon and all clients."""
_SECONDS = 600.0  # for clients to be ready, and to be done
_ENCODED_BYTES = 1_000_000_000  # what a replay makes ready before it starts the children, at the most


@dataclass(frozen=True, slots=True)
class Peer:
    """A kind of client.

    Attributes:
        name: in reports.
        program: in bench/children.
        arguments: for a client without a daemon; None for a child of the replayer.
        variables: for its environment.
    """

    name: str
    program: str
    arguments: tuple[str, ...] | None = None
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """What came of all clients of one kind.

    Attributes:
        seconds: from the word to go to the last client's end.
        client_cpu: seconds on a CPU meanwhile, of all clients,
        server_cpu: of the server,
        daemon_cpu: of the replayer.
        growth_bytes: of the client whose memory has grown most beyond what it had when it was ready.
        start_bytes: of the largest client when it was ready.
        line_bytes: that went over pipes.
    """

    seconds: float
    client_cpu: float
    server_cpu: float
    daemon_cpu: float
    growth_bytes: int
    start_bytes: int
    line_bytes: int


class Records:
    """The records of all shards: for the replayer as a source, for the other clients as a file each.

    Args:
        profile: of the payloads.
        shards: how many.
        records: of each shard.
        folder: for the files.
        made: the shards themselves; those of the profile if None.
    """

    def __init__(
        self, profile: str, shards: int, records: int, folder: Path, made: Sequence[Shard] | None = None
    ) -> None:
        self.description = f"profile {profile}"
        self._shards = list(generate(profile, shards=shards, records=records).shards() if made is None else made)
        self._folder = folder
        self.nbytes = 0
        self.payload_bytes = 0
        for shard in self._shards:
            with pa.ipc.new_file(self.path(shard.shard_id), SCHEMA) as file:
                for start in range(0, records, shard.batch_records):
                    columns = shard.records.columns(start, min(start + shard.batch_records, records))
                    batch = to_arrow(
                        columns.data,
                        columns.partition_keys,
                        columns.sequence_numbers,
                        columns.sub_sequence_numbers,
                        columns.timestamps_millis,
                    )
                    self.nbytes += batch.nbytes
                    self.payload_bytes += sum(map(len, filter(None, columns.data)))
                    file.write(batch)
        self.rows = shards * records

    def shards(self) -> Sequence[Shard]:
        """For the replayer."""
        return self._shards

    def path(self, shard_id: str) -> Path:
        """File with a shard's records, in batches as the daemon delivers them."""
        return self._folder / f"{shard_id}.arrow"

    def assert_stored(self, table: Path, *, content: bool) -> None:
        """Each record is there once.

        Args:
            table: folder with a folder for each shard somewhere below it.
            content: compare all columns of every record, too; without that the rows are counted.
        """
        for shard in self._shards:
            (folder,) = table.rglob(f"shard={shard.shard_id}")
            assert folder.is_relative_to(table)
            stored = pyarrow.dataset.dataset(folder, schema=SCHEMA, format="parquet")
            assert stored.count_rows() == len(shard.records), f"{folder}: rows are missing, or there are too many"
            if content:
                with pa.memory_map(str(self.path(shard.shard_id))) as file:
                    sent = pa.ipc.open_file(file).read_all()
                    rows = stored.to_table().sort_by("sequenceNumber")  # all of one length
                    assert rows.combine_chunks().equals(sent.combine_chunks()), f"{folder}: records have changed"


@dataclass(frozen=True, slots=True)
class Server:
    """A Connect server: where it is, and its JVM."""

    url: str
    pid: int


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A Connect server that has done its first job; its log goes to `folder`."""
    command = [sys.executable, str(CHILDREN / "spark_server.py"), str(len(CPUS)), HEAP]
    log = folder / "server.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            assert said, f"no server: {log.read_text(errors='replace')[-2000:]}"
            yield Server(**json.loads(said))
        finally:
            process.stdin.close()


@contextmanager
def placed(pid: int, placement: str) -> Iterator[None]:
    """The server's threads, this process and the clients that it starts on their cores for a while."""
    _pin(pid, PLACEMENTS[placement])
    try:
        yield
    finally:
        _pin(pid, (CPUS, CPUS))


def _pin(pid: int, cores: tuple[Sequence[int], Sequence[int]]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # a thread that has ended since
            os.sched_setaffinity(int(task.name), cores[0])
    os.sched_setaffinity(0, cores[1])


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def _cpu_seconds(pid: int) -> float:
    """Of all threads, also those that have ended (proc(5), stat: utime and stime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(peer: Peer, records: Records, spark: Server, table: Path | None, folder: Path) -> Run:
    """Have clients of one kind write all records.

    Args:
        peer: the kind.
        records: what they write.
        spark: the server.
        table: where they write Parquet; None for Spark's noop.
        folder: for the socket.
    """
    environment = {
        "FASTKCL_SPARK": spark.url,
        "FASTKCL_BENCH_GATE": str(folder / "gate"),
        "PYTHONWARNINGS": "ignore::FutureWarning",  # pyspark's, of pandas 3
        **dict(peer.variables),
        **({} if table is None else {"FASTKCL_BENCH_TABLE": str(table)}),
    }
    program = [sys.executable, str(CHILDREN / peer.program)]
    with ThreadPoolExecutor(1) as pool, _Gate(folder / "gate", len(records.shards()), spark.pid) as gate:
        outcome = pool.submit(gate.serve)
        line_bytes = 0
        if peer.arguments is None:
            line_bytes = _replay(program, records, environment)
        else:
            _start(program, peer.arguments, records, environment)
        gate.close()
        seconds, server_cpu, daemon_cpu, told = outcome.result()
    assert sum(client["rows"] for client in told) == records.rows
    return Run(
        seconds=seconds,
        client_cpu=sum(client["cpu"] for client in told),
        server_cpu=server_cpu,
        daemon_cpu=daemon_cpu,
        growth_bytes=max(client["peak_bytes"] - client["start_bytes"] for client in told),
        start_bytes=max(client["start_bytes"] for client in told),
        line_bytes=line_bytes,
    )


def _replay(program: Sequence[str], records: Records, environment: dict[str, str]) -> int:
    said: list[str] = []
    options = ReplayOptions(
        stream=STREAM,
        environment=environment,
        write_size=WRITE_SIZE,
        preencode_bytes=_ENCODED_BYTES,
        answer_timeout=_SECONDS,
        on_stderr=lambda shard, line: said.append(f"{shard}: {line.decode(errors='replace')}"),
    )
    report = replay(program, records, options)
    problems = [f"{shard.label}: {problem}" for shard in report.shards for problem in shard.problems]
    assert not problems, "\n".join([*problems, *said[-30:]])
    return sum(shard.line_bytes for shard in report.shards)


def _start(program: Sequence[str], arguments: Sequence[str], records: Records, environment: dict[str, str]) -> None:
    kind, *others = arguments
    clients = [
        subprocess.Popen(
            [*program, kind, shard.shard_id, str(records.path(shard.shard_id)), *others],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
        )
        for shard in records.shards()
    ]
    try:
        for client in clients:
            assert client.wait(2 * _SECONDS) == 0
    finally:
        for client in clients:
            client.kill()
            client.wait()


class _Gate:
    """Lets clients go together, and hears when they are done; children/gate.py is their side."""

    def __init__(self, path: Path, clients: int, server_pid: int) -> None:
        path.unlink(missing_ok=True)
        self._clients = clients
        self._server_pid = server_pid
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(clients)
        self._listener.settimeout(_SECONDS)

    def __enter__(self) -> _Gate:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._listener.close()

    def close(self) -> None:
        """Nobody comes any more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def serve(self) -> tuple[float, float, float, list[dict[str, float]]]:
        """Seconds from the word to go to the last client's end.

        Returns:
            The seconds, the server's and this process's seconds on a CPU meanwhile, and what each client has told.
        """
        files = []
        for _ in range(self._clients):
            connection, _address = self._listener.accept()
            connection.settimeout(_SECONDS)
            with connection:
                files.append(connection.makefile("rwb", buffering=0))
        for file in files:
            assert file.readline() == b"ready\n", "a client has ended before it was ready"
        server, daemon, begun = _cpu_seconds(self._server_pid), time.process_time(), time.monotonic()
        for file in files:
            file.write(b"!")
        told = []
        for file in files:
            line = file.readline()
            assert line, "a client has ended before it was done"
            told.append(json.loads(line))
            file.close()
        server, daemon = _cpu_seconds(self._server_pid) - server, time.process_time() - daemon
        return max(client["time"] for client in told) - begun, server, daemon, told
