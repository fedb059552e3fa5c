"""One batch measured in process and through real children, beside the installed peers.

    batch ─▶ each peer's result, compared with Python's json and base64 ─▶ rounds in process, on one core
          └▶ each child's first batch, compared with the same ─▶ rounds over a pipe, on one core and on two

A peer that gives another result is named and not timed. fastkcl doing so is an error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa

from fastkcl.bench import original, peers
from fastkcl.bench.batch import Batch
from fastkcl.bench.pipes import BARE, CPUS, INITIALIZE, PLACEMENTS, PROGRAMS, Child
from fastkcl.bench.turns import Call, Turns

__all__ = ["BenchError", "Figures", "Report", "Suite", "measure"]

ROUNDS = 11
_QUIET = 0.3  # seconds after which a child has given its memory back


class BenchError(RuntimeError):
    """fastkcl's result is wrong, or a child failed."""


@dataclass(frozen=True)
class Figures:
    """The result of one peer.

    Attributes:
        seconds: for the batch: the median round.
        low, high: 10th and 90th percentile of the rounds.
        cpu_seconds: of the child for the batch, in the median round; None in process.
        idle_resident_bytes: the child's memory when it is idle again, pyarrow included; None in process.
    """

    seconds: float
    low: float
    high: float
    cpu_seconds: float | None = None
    idle_resident_bytes: int | None = None


@dataclass
class Suite:
    """Peers that took turns.

    Attributes:
        name: of the work.
        figures: by peer, ours first.
        unequal: peers that failed or gave another result, with the reason.
    """

    name: str
    figures: dict[str, Figures] = field(default_factory=dict)
    unequal: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All of it."""

    batch: Batch
    suites: list[Suite]


def measure(
    batch: Batch, *, rounds: int = ROUNDS, on_progress: Callable[[str, int, int], None] = lambda name, done, of: None
) -> Report:
    """Compare, then time.

    Args:
        batch: to decode.
        rounds: how often each peer has its turn.
        on_progress: called with the suite, rounds done, and rounds in all.

    Raises:
        BenchError: a result of fastkcl is wrong, or a child ended.
    """
    expected = peers.installed()[peers.STDLIB](batch.line)
    suites = [_in_process(batch, expected, rounds, on_progress)]
    suites += [_over_a_pipe(batch, expected, rounds, placement, on_progress) for placement in PLACEMENTS]
    return Report(batch, suites)


def _in_process(
    batch: Batch, expected: pa.RecordBatch, rounds: int, on_progress: Callable[[str, int, int], None]
) -> Suite:
    suite = Suite("in process: line in memory to a pyarrow.RecordBatch, one core")
    ways: dict[str, Call] = {}
    with _on_core(CPUS[0]):
        for name, decode in peers.installed().items():
            try:
                equal = decode(batch.line).equals(expected)
                wrong = None if equal else "its result differs from that of json and base64"
            except Exception as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong is None:
                ways[name] = _call(decode, batch.line)
            elif name in (peers.OURS, peers.FRESH):
                raise BenchError(f"{name}: {wrong}; please report this, with the payloads if you may")
            else:
                suite.unequal[name] = wrong
        _take_turns(suite, ways, rounds, on_progress)
    return suite


def _call(decode: peers.Decode, line: bytes) -> Call:
    def call() -> dict[str, float]:
        start = time.perf_counter()
        columns = decode(line)
        seconds = time.perf_counter() - start
        del columns
        return {"seconds": seconds}

    return call


def _over_a_pipe(
    batch: Batch, expected: pa.RecordBatch, rounds: int, placement: str, on_progress: Callable[[str, int, int], None]
) -> Suite:
    suite = Suite(f"child on a pipe, written in pieces of 8 KiB, {placement}: first byte to status")
    own, childs = PLACEMENTS[placement]
    programs = {peers.OURS: "columns.py", original.name(): "kclpy.py", BARE: "bare.py"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastkcl-bench-")))
        stack.enter_context(_on_core(own))
        children: dict[str, Child] = {}
        for name, program in programs.items():
            check = folder / program
            try:
                child = stack.enter_context(Child([sys.executable, PROGRAMS / program], childs, check))
                child.ask(INITIALIZE, "initialize")
                child.ask(batch.line, "processRecords")
                if name != BARE:
                    _compare(check, expected)
            except (RuntimeError, OSError) as error:
                if name != original.name():
                    raise BenchError(f"the child of {name}: {error}") from None
                suite.unequal[name] = str(error)
            else:
                children[name] = child
        try:
            ways = {name: _round_trip(child, batch.line) for name, child in children.items()}
            _take_turns(suite, ways, rounds, on_progress)
            time.sleep(_QUIET)
            memory = {name: child.resident_bytes() for name, child in children.items()}
            for child in children.values():
                child.end()
        except RuntimeError as error:
            raise BenchError(str(error)) from None
    for name, resident in memory.items():
        found = suite.figures[name]
        suite.figures[name] = Figures(found.seconds, found.low, found.high, found.cpu_seconds, resident)
    return suite


def _compare(check: Path, expected: pa.RecordBatch) -> None:
    try:
        with pa.ipc.open_file(check) as file:
            equal = file.get_batch(0).equals(expected)
    except (pa.ArrowException, OSError) as error:
        raise RuntimeError(f"its first batch cannot be read: {error}") from None
    if not equal:
        raise RuntimeError("its first batch differs from that of json and base64")


def _round_trip(child: Child, line: bytes) -> Call:
    return lambda: child.measure(line)


def _take_turns(suite: Suite, ways: dict[str, Call], rounds: int, on_progress: Callable[[str, int, int], None]) -> None:
    turns = Turns(ways)
    on_progress(suite.name, 0, rounds)
    turns.round()
    turns.forget()
    for done in range(1, rounds + 1):
        turns.round()
        on_progress(suite.name, done, rounds)
    for name, samples in turns.samples.items():
        seconds = samples["seconds"]
        tenths = quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds
        cpu = median(samples["cpu_seconds"]) if "cpu_seconds" in samples else None
        suite.figures[name] = Figures(median(seconds), tenths[0], tenths[-1], cpu)


@contextmanager
def _on_core(cpu: int) -> Iterator[None]:
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, CPUS)
