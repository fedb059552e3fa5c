"""Sinks without Spark: a session whose DataFrames pyarrow writes, rows by their numbers, deaths and races."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from fastkcl import Position, _core
from fastkcl.spark.sinks import DeltaSink, ParquetSink, Shard, Sink
from fastkcl.spark.sinks.rows import ShardRows
from fastkcl.tables import storage
from fastkcl.tables.base import parse_sealed, sealed
from fastkcl.tables.delta import sink as delta_module
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.folders import shard_folders, unspelled
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.inspection import TableState
from fastkcl.tables.parquet import sink as parquet_module
from paths import SUPPORT
from waiting import PATIENCE

SHARD = Shard("clicks", "shardId-000000000000")


def _in_place_of(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink(missing_ok=True)
    make(path)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "a link that leads nowhere": lambda path: _in_place_of(path, lambda path: path.symlink_to("nowhere")),
    "a link to itself": lambda path: _in_place_of(path, lambda path: path.symlink_to(path.name)),
    "a folder": lambda path: _in_place_of(path, Path.mkdir),
    "a FIFO": lambda path: _in_place_of(path, os.mkfifo),
    "a device": lambda path: _in_place_of(path, lambda path: path.symlink_to("/dev/zero")),
}
"""Puts something in the place of a file."""


class FakeWriter:
    def __init__(self, table: pa.Table, files: int) -> None:
        self.table = table
        self.files = files

    def parquet(self, url: str) -> None:
        folder = Path(url.removeprefix("file://"))
        folder.mkdir()
        size = -(-len(self.table) // self.files)
        for index in range(self.files):
            part = self.table.slice(index * size, size)
            pq.write_table(part, folder / f"part-{index:05d}-x.snappy.parquet")
        (folder / "_SUCCESS").touch()


class FakeFrame:
    def __init__(self, table: pa.Table, schema: Any, files: int) -> None:
        self.table = table
        self.schema = schema
        self.write = FakeWriter(table, files)


class FakeSession:
    """createDataFrame as Spark has it; each write makes `files` files."""

    def __init__(self, files: int = 2) -> None:
        self.files = files

    def createDataFrame(self, table: pa.Table, schema: Any) -> FakeFrame:  # noqa: N802 - Spark's name
        return FakeFrame(table, schema, self.files)


def rows(first: int, last: int, *, per_batch: int = 3, legacy: bool = False) -> ShardRows:
    """Records with the sequence numbers first to last, cut into batches."""
    numbers = list(range(first, last + 1))
    pieces = [numbers[start : start + per_batch] for start in range(0, len(numbers), per_batch)]
    return ShardRows([batch([(number, None if legacy else 0) for number in piece]) for piece in pieces], legacy=legacy)


def batch(places: list[tuple[int, int | None]]) -> _core.RecordBatch:
    line = _core.encode_process_records(
        [str(number).encode() for number, _ in places],
        ["key"] * len(places),
        [str(number) for number, _ in places],
        [sub or 0 for _, sub in places],
        None,
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


def stored(folder: Path) -> list[int]:
    """The sequence numbers that a reader of the table sees, in order."""
    table = pa.dataset.dataset(folder, format="parquet", partitioning="hive").to_table(columns=["sequenceNumber"])
    return sorted(map(int, table["sequenceNumber"].to_pylist()))


def delta_rows(folder: Path) -> pa.Table:
    """What a reader of a Delta table sees.

    By Arrow's own file system: with deltalake's, written in Python, many a process ends with an abort (deltalake 1.6,
    pyarrow 26).
    """
    files = pa.fs.SubTreeFileSystem(str(folder), pa.fs.LocalFileSystem())
    return DeltaTable(folder).to_pyarrow_dataset(filesystem=files).to_table()


def edit_commit(file: Path, *, checksum: bool = True, **changes: Any) -> None:
    """Change members of a ParquetSink's commit file; `checksum` fits, or is none, as in those of earlier versions."""
    content = parse_sealed(file.read_text())[0] | changes
    file.write_bytes(sealed(content) if checksum else json.dumps(content).encode())


def position_of(folder: Path, shard: Shard) -> Position | None:
    """Up to where a table of either sink has a shard, by what is durable in it."""
    if DeltaTable.is_deltatable(str(folder)):
        return delta_module.position(DeltaTable(folder), shard)
    if not (folder / "_commits").is_dir():
        return None
    return max((commit.upto for commit in parquet_module.commits(folder, shard_folders(shard))), default=None)


Record: TypeAlias = tuple[str, str, str, int | None, bytes | None]
"""Stream, shard, sequence number, sub-sequence number (none in the legacy dialect), payload."""


def records_of(folder: Path) -> Counter[Record]:
    """What a reader of a table of either sink sees; empty if there is no table yet."""
    if DeltaTable.is_deltatable(str(folder)):
        table = delta_rows(folder)
    elif any(folder.glob("stream=*/*/*.parquet")):
        table = pa.dataset.dataset(folder, format="parquet", partitioning="hive").to_table()
        for name in ("stream", "shard"):
            table = table.set_column(
                table.schema.get_field_index(name), name, [list(map(unspelled, table[name].to_pylist()))]
            )
    else:
        return Counter()
    names = ("stream", "shard", "sequenceNumber", "subSequenceNumber", "data")
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def letters_in(folder: Path) -> Counter[Record]:
    """What dead letters hold, each letter by itself."""
    found: Counter[Record] = Counter()
    for path in sorted(folder.glob("*.arrow")):
        letter = pa.ipc.open_file(path).read_all()
        about = {name.decode(): value.decode() for name, value in letter.schema.metadata.items()}
        names = ("sequenceNumber", "subSequenceNumber", "data")
        for number, sub, data in zip(*(letter[name].to_pylist() for name in names), strict=True):
            found[about["fastkcl.stream"], about["fastkcl.shard_id"], number, sub, data] += 1
    return found


# ---- deaths and zombies -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of sink, and the places where its process can stop: before and after each of these functions."""

    sink: Callable[[Path], Any]
    places: tuple[tuple[Any, str], ...]
    rows: Callable[[int, int], ShardRows] = rows
    """With these sequence numbers, the first and the last."""
    records: Callable[[Path], Counter[Record]] = records_of
    """What a reader sees."""
    inspect: Callable[[Path], TableState] | None = inspect_table
    is_delta: bool = False
    """Its table is one that another engine can have made."""

    def opened(self, folder: Path) -> Sink:
        sink: Sink = self.sink(folder)
        sink.open(SHARD)
        return sink

    @contextmanager
    def stepped(self, step: Callable[[], None]) -> Iterator[None]:
        """Call `step` before and after each of them."""
        before = [(owner, name, getattr(owner, name)) for owner, name in self.places]

        def wrapped(function: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                step()
                try:
                    return function(*arguments, **options)
                finally:
                    step()

            return call

        for owner, name, function in before:
            setattr(owner, name, wrapped(function))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)


STEPS = tuple(
    (storage, name) for name in ("write_new", "link", "rename", "unlink", "remove", "make", "sync_file", "sync_folder")
)
"""Each call by which a sink changes a table."""

PARQUET = Kind(
    ParquetSink,
    (
        *STEPS,
        (FakeWriter, "parquet"),
    ),
)
DELTA = Kind(
    DeltaSink,
    (
        *STEPS,
        (FakeWriter, "parquet"),
        (DeltaHead, "open"),
        (DeltaHead, "move_on"),
        (DeltaTable, "create_checkpoint"),
    ),
    is_delta=True,
)


class Mortals:
    """Processes that write, and can die or sleep: forks of one that has all modules and has not used them.

    Not forks of the tests' own process, as deltalake's threads don't survive one.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> Mortals:
        source = f"import sink_helpers; sink_helpers.serve(sink_helpers.{self.kind})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", source],
            cwd=SUPPORT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=PATIENCE)

    def write(
        self, folder: Path, first: int, last: int, *, steps: int | None = None, seconds: float | None = None
    ) -> bool:
        """Write two runs, or more if they are long, and be gone after so many steps or seconds.

        Returns:
            Whether it was done before.
        """
        status = self._ask([str(folder), first, last, steps, seconds, "SIGKILL"])
        assert status in ("0", "-9"), f"the writer has failed: {status}"
        return status == "0"

    def write_and_stop(self, folder: Path, first: int, last: int, *, steps: int) -> bool:
        """Write as `write` does, and be stopped after so many steps, until `wake`; whether it was done before."""
        status = self._ask([str(folder), first, last, steps, None, "SIGSTOP"])
        assert status in ("0", "stopped"), f"the writer has failed: {status}"
        return status == "0"

    def wake(self) -> None:
        """Let the one that is stopped write to its end."""
        assert (status := self._ask("wake")) == "0", f"the writer has failed: {status}"

    def _ask(self, question: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def serve(kind: Kind) -> None:
    """A process that forks one that writes for each line of its input, and says how that has ended."""
    import fastkcl.spark.schema  # noqa: F401 - or each fork imports pyspark for itself

    while line := sys.stdin.readline():
        folder, first, last, steps, seconds, fate = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _write(kind, Path(folder), first, last, steps, signal.Signals[fate])
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        _, ended = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(ended):
            print("stopped", flush=True)
            sys.stdin.readline()
            os.kill(child, signal.SIGCONT)
            _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


def _write(kind: Kind, folder: Path, first: int, last: int, steps: int | None, fate: signal.Signals) -> None:
    left = [steps]

    def step() -> None:
        if left[0] is not None:
            left[0] -= 1
            if left[0] == -1:
                os.kill(os.getpid(), fate)

    session: Any = FakeSession()
    size = min(-(-(last - first + 1) // 2), 10)
    with kind.stepped(step):
        sink = kind.opened(folder)
        for start in range(first, last + 1, size):
            sink.write(rows(start, min(start + size - 1, last)), session)


class Turns:
    """Lets one of two threads go on at a time, by a list of who is next; then whoever is left."""

    def __init__(self, order: list[int]) -> None:
        self.order = order
        self.done: set[int] = set()
        self.condition = threading.Condition()
        self.names = threading.local()

    def _may_go(self, who: int) -> bool:
        while self.order and self.order[0] in self.done:
            self.order.pop(0)
        return not self.order or self.order[0] == who

    def step(self) -> None:
        who = getattr(self.names, "who", None)
        if who is None:
            return
        with self.condition:
            assert self.condition.wait_for(lambda: self._may_go(who), timeout=PATIENCE)
            if self.order:
                self.order.pop(0)
            self.condition.notify_all()

    def run(self, who: int, work: Callable[[], None], errors: list[BaseException]) -> None:
        self.names.who = who
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            with self.condition:
                self.done.add(who)
                self.condition.notify_all()


def race(kind: Kind, folder: Path, order: list[int], ranges: list[list[tuple[int, int]]]) -> None:
    """Two that believe they own the shard write their runs, step by step in the order given."""
    turns = Turns(order)
    errors: list[BaseException] = []
    session: Any = FakeSession()

    def writer(runs: list[tuple[int, int]]) -> Callable[[], None]:
        def work() -> None:
            sink = kind.opened(folder)
            for first, last in runs:
                assert sink.write(rows(first, last), session) >= Position(str(last), 0)

        return work

    with kind.stepped(turns.step):
        threads = [
            threading.Thread(target=turns.run, args=(who, writer(runs), errors)) for who, runs in enumerate(ranges)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * PATIENCE)
    if errors:
        raise errors[0]
