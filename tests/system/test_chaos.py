"""Both sinks under the replayer, without a JVM: deaths at named points and at random, zombies, lost leases, reshards.

The invariants, whatever happens: the table has each record once, by key and payload; no child asks for a checkpoint of
a record that is not in the table or was not delivered (programs/sink_child.py then ends with a code of its own); every
shard is checkpointed at its end. ``make test-long`` plays many more seeds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import Report, generate
from sink_helpers import Record, letters_in, records_of
from sink_replay import delivered, play

RUNS = int(os.environ.get("FASTKCL_CHAOS_RUNS", "2"))
SINKS = ("ParquetSink", "DeltaSink")
POINTS = {
    "ParquetSink": ("stage", "file", "sync", "commit", "link", "publish", "checkpoint"),
    "DeltaSink": ("make", "stage", "file", "sync", "commit", "link", "checkpoint"),  # once there, it is not made again
}
TIMES = ("before", "after")
Trouble = list[Any]


def check(report: Report, noise: list[str], found: Counter[Record], sent: Counter[Record], said: object = "") -> None:
    """The promise of a sink; deaths that the child was told to die are no fault of it."""
    problems = [problem for shard in report.shards for problem in shard.problems if not asked_for(problem)]
    assert problems == [], (problems, said, noise)
    ends = [(shard.shard_id, shard.last_checkpoint) for shard in report.shards]
    assert all(end == ("SHARD_END", 0) for _, end in ends), (ends, said, noise)
    assert (lost := sent - found) == Counter(), (f"lost {sum(lost.values())}", lost.keys(), said, noise)
    assert (more := found - sent) == Counter(), (f"too many {sum(more.values())}", more.keys(), said, noise)


def asked_for(problem: str) -> bool:
    """SIGKILL is what children do to themselves here. It may show when the next line is written."""
    return "ended by SIGKILL" in problem or "closed its input before" in problem


@pytest.mark.parametrize("sink", SINKS)
def test_deaths_at_every_named_point_in_one_run(tmp_path: Path, sink: str) -> None:
    """A child each; the last one lives."""
    trouble: list[Trouble | None] = [["kill", when, point, 1] for point in POINTS[sink] for when in TIMES]
    trouble += [["kill", "after", "stage", 2], ["kill", "before", "commit", 2], ["kill", "before", "checkpoint", 2]]
    source = generate("tiny", records=1000, batch_records=20)
    one_by_one = {"max_bytes": 1, "max_held_bytes": 1}  # so that there are checkpoints on the way
    report, noise = play(tmp_path, source=source, sink=sink, trouble=trouble, options=one_by_one, restarts=30)
    (shard,) = report.shards
    assert shard.exit_codes == [-9] * len(trouble) + [0], noise
    check(report, noise, records_of(tmp_path), delivered(source))


@pytest.mark.parametrize("deaths", [(), ("kill@6", "kill@9=half", "kill@14")], ids=["no death", "deaths"])
@pytest.mark.parametrize("sink", SINKS)
def test_a_poison_record(tmp_path: Path, sink: str, deaths: tuple[str, ...]) -> None:
    """What is not in the table is in a letter. After a death between letter and checkpoint some is in several."""
    source = generate("tiny", records=300, batch_records=20, aggregate=3)
    sent = delivered(source)
    poison = sorted(record[2] for record in sent)[130]
    report, noise = play(
        tmp_path / "table",
        *deaths,
        source=source,
        sink=sink,
        environment={"POISON": poison},
        run_options={"dead_letter": str(tmp_path / "letters")},
    )
    assert report.ok, ([shard.problems for shard in report.shards], noise)
    stored, letters = records_of(tmp_path / "table"), letters_in(tmp_path / "letters")
    assert set(stored.values()) == {1}
    assert stored.keys() | letters.keys() == sent.keys()
    assert {record for record in letters if record[2] == poison}
    assert {record for record in letters if record[2] == poison} & stored.keys() == set()
    if not deaths:
        assert letters + stored == sent


def faults_at_random(chance: random.Random, dialect: str) -> list[str]:
    kinds = {
        "kill@{}": 2,
        "kill@{}=half": 1,
        f"stop@{{}}={chance.uniform(0.05, 0.6):.2f}": 1,
        "lease-lost@{}": 1,
        "lease-lost@{}=mid-batch": 1,
        "shutdown@{}": int(dialect != "legacy"),
        "checkpoint-error@{}": 1,
        "close@{}": 1,  # what a child sees of a daemon that dies
        "close@{}=mid-line": 1,
        "close@{}=reply": 1,
    }
    deliveries = sorted(chance.sample(range(1, 18), chance.randrange(0, 5)))
    chosen = chance.choices(list(kinds), list(kinds.values()), k=len(deliveries))
    return [fault.format(delivery) for fault, delivery in zip(chosen, deliveries, strict=True)]


def trouble_at_random(chance: random.Random, sink: str) -> list[Trouble | None]:
    """For the first children of each shard, in turn; not all of them live long enough for theirs."""

    def one() -> Trouble | None:
        kind = chance.random()
        if kind < 0.25:
            return None
        if kind < 0.5:
            return ["kill", "seconds", round(chance.uniform(0.0, 0.8), 3)]
        return ["kill", chance.choice(TIMES), chance.choice(POINTS[sink]), chance.randrange(1, 5)]

    return [one() for _ in range(chance.randrange(0, 5))]


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("sink", SINKS)
def test_chaos(tmp_path: Path, sink: str, seed: int) -> None:
    chance = random.Random(f"{sink} {seed}")
    dialect = ("modern", "legacy")[seed % 2]
    aggregate = chance.choice([1, 3, 7, 30])
    reshard: dict[str, Any] = chance.choice(
        [{}, {"split_at": chance.randrange(1, 7)}, {"merge_at": chance.randrange(1, 7)}]
    )
    shards = 2 if "merge_at" in reshard else chance.choice([1, 2])
    source = generate("tiny", records=300 // shards, shards=shards, batch_records=20, aggregate=aggregate, seed=seed)
    settings: dict[str, Any] = {
        "dialect": dialect,
        "rate": chance.choice([None, None, 1000]),
        "empty_batches": chance.choice([0, 0, 1]),
        **reshard,
    }
    faults, trouble = faults_at_random(chance, dialect), trouble_at_random(chance, sink)
    report, noise = play(
        tmp_path,
        *faults,
        source=source,
        sink=sink,
        trouble=trouble,
        environment={"WRITE_SECONDS": str(chance.choice([0, 0.01, 0.1, 0.3]))},
        options={
            "max_records": chance.choice([5, 30, 70, 200]),
            "max_age": chance.choice([0.02, 0.2, 60]),
            "checkpoint_interval": chance.choice([0, 0.1]),
            "max_held_bytes": chance.choice([2**24, 2**26]),
        },
        restarts=20,
        **settings,
    )
    said = (faults, trouble, aggregate, shards, settings)
    check(report, noise, records_of(tmp_path), delivered(source, **settings), said)
