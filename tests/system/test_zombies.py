"""Two that believe they own a shard, in every order, and two streams whose shards have one name; for both sinks.

tests/tables/test_parquet.py and tests/tables/test_delta.py have orders at random besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fastkcl import Position
from fastkcl.replay import generate
from fastkcl.replay.sources import Shard as ReplayShard
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import storage
from sink_helpers import DELTA, PARQUET, SHARD, FakeSession, FakeWriter, Kind, Mortals, race, records_of, rows
from sink_replay import delivered, play

SESSION: Any = FakeSession()
KINDS = {"PARQUET": PARQUET, "DELTA": DELTA}


@pytest.fixture(scope="module", params=KINDS)
def mortals(request: pytest.FixtureRequest) -> Iterator[Mortals]:
    with Mortals(request.param) as mortals:
        yield mortals


def numbers(folder: Path) -> list[int]:
    """Sequence numbers that a reader sees, in order, each as often as it is there."""
    return sorted(int(record[2]) for record in records_of(folder).elements())


def test_a_process_that_is_stopped_at_every_step(tmp_path: Path, mortals: Mortals) -> None:
    """SIGSTOP before, during and after staging, commit and publishing; SIGCONT when its successor has committed.

    By turns the successor is done then, or continues after the zombie.
    """
    kind, steps = KINDS[mortals.kind], 0
    while not mortals.write_and_stop(folder := tmp_path / str(steps), 1, 8, steps=steps):
        successor = kind.opened(folder)
        runs, ahead = [rows(1, 6), rows(7, 12)], 1 + steps % 2
        for run in runs[:ahead]:
            successor.write(run, SESSION)
        before = numbers(folder)
        assert before == list(range(1, len(before) + 1))
        mortals.wake()
        for run in runs[ahead:]:
            successor.write(run, SESSION)
        assert numbers(folder) == list(range(1, 13)), steps
        assert kind.sink(folder).open(SHARD) == Position("12", 0)
        steps += 1
    assert steps > 30


# Those that matter for the order, or there would be too many orders.
PLACES = {
    "PARQUET": Kind(ParquetSink, ((FakeWriter, "parquet"), (storage, "link"))),
    "DELTA": Kind(DeltaSink, ((FakeWriter, "parquet"), (storage, "link"))),
}


@pytest.mark.parametrize("name", PLACES)
def test_each_place_of_one_against_each_place_of_the_other(tmp_path: Path, name: str) -> None:
    """The first goes to a place and sleeps, the second goes to a place; the first goes to its end, then the second."""
    kind, ranges = PLACES[name], [[(1, 6)], [(1, 4), (5, 8)]]
    most = [steps_alone(kind, tmp_path / f"alone-{who}", runs) for who, runs in enumerate(ranges)]
    assert min(most) >= 6
    for first in range(most[0] + 1):
        for second in range(most[1] + 1):
            folder = tmp_path / f"{first}-{second}"
            race(kind, folder, [0] * first + [1] * second + [0] * most[0] + [1] * most[1], ranges)
            assert numbers(folder) == list(range(1, 9)), (first, second)
            assert kind.sink(folder).open(SHARD) == Position("8", 0)


def steps_alone(kind: Kind, folder: Path, runs: list[tuple[int, int]]) -> int:
    steps = [0]

    def count() -> None:
        steps[0] += 1

    with kind.stepped(count):
        sink = kind.opened(folder)
        for first, last in runs:
            sink.write(rows(first, last), SESSION)
    return steps[0]


@dataclass(frozen=True)
class TwoStreams:
    """Shards of one name, of two streams, with the same sequence numbers and other payloads."""

    description: str = "two streams"

    def shards(self) -> Sequence[ReplayShard]:
        return [
            replace(shard, stream=stream, label=f"{stream} {shard.shard_id}")
            for seed, stream in enumerate(("clicks", "orders/eu"))
            for shard in generate("tiny", records=120, batch_records=20, seed=seed, shards=2).shards()
        ]


@pytest.mark.parametrize("sink", ["ParquetSink", "DeltaSink"])
def test_two_streams_with_shards_of_one_name(tmp_path: Path, sink: str) -> None:
    source = TwoStreams()
    streams = {shard.shard_id: set[str]() for shard in source.shards()}
    for stream, shard_id, *_ in delivered(source):
        streams[shard_id].add(stream)
    assert all(found == {"clicks", "orders/eu"} for found in streams.values())
    report, noise = play(
        tmp_path, "kill@3", "stop@5#1=0.3", "lease-lost@4#2", source=source, sink=sink, options={"max_records": 30}
    )
    assert report.ok, ([shard.problems for shard in report.shards], noise)
    assert records_of(tmp_path) == delivered(source)
