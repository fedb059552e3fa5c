"""Children that write a table themselves, on a pipe, and die: each record is in the table once.

The invariants: no record lost, none doubled, payloads equal, no checkpoint of a record that the table does not have
(programs/table_child.py ends with a code of its own then), and every shard checkpointed at its end.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import delta_posix, delta_s3
from fastkcl.local_aws import LocalAws
from fastkcl.replay import ReplayOptions, generate, parse_fault, replay
from iceberg_helpers import IcebergPlace, place_of, sql_posix
from paths import PROGRAMS
from sink_replay import STREAM, delivered
from spark_fixtures import SharedSpark
from table_helpers import Place, posix_place, s3_place

EARLY = 77
POINTS = ("create", "claimed", "checkpoint")
DELTA_POINTS = ("create", "read", "checkpoint")


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "posix":
        return posix_place(tmp_path)
    aws: LocalAws = request.getfixturevalue("aws")
    return s3_place(aws)


@pytest.fixture
def delta(aws: LocalAws) -> Place:
    return delta_s3(aws)


def play(
    place: Place | IcebergPlace,
    trouble: list[list[Any]],
    *faults: str,
    seed: int = 1,
    spark: str | None = None,
    **settings: Any,
) -> list[int]:
    """Replay to children that have this trouble, each its own; compare the table. The exit codes of all children."""
    shards = 2 if spark is None else 1
    source = generate("tiny", records=600, shards=shards, batch_records=20, aggregate=3, seed=seed)
    noise: list[str] = []
    options = {"max_bytes": 1, "max_held_bytes": 1} if spark is None else {"max_records": 80, "max_age": 1}
    report = replay(
        [sys.executable, str(PROGRAMS / "table_child.py")],
        source,
        ReplayOptions(
            stream=STREAM,
            faults=tuple(map(parse_fault, faults)),
            environment={
                "OPTIONS": json.dumps({**options, "checkpoint_interval": 0}),
                "TROUBLE": json.dumps(trouble),
                **({} if spark is None else {"SPARK_WRITER": spark}),
                **place.environment,
            },
            on_stderr=lambda _shard, line: noise.append(line.decode()),
            restarts=len(trouble) + len(faults) + 2,
            **settings,
        ),
    )
    ends = [(shard.shard_id, shard.last_checkpoint) for shard in report.shards]
    problems = [problem for shard in report.shards for problem in shard.problems]
    assert all(end == ("SHARD_END", 0) for _, end in ends), (ends, problems, noise)
    codes = [code for shard in report.shards for code in shard.exit_codes]
    assert EARLY not in codes, noise
    assert place.records() == delivered(source, **settings), noise
    return codes


def test_deaths_at_every_named_point(place: Place) -> None:
    trouble = [["kill", when, point, nth] for point in POINTS for when in ("before", "after") for nth in (1, 2)]
    codes = play(place, trouble)
    assert codes.count(-9) >= 22, "the points are not reached any more"


def test_deaths_at_random_among_other_faults(place: Place) -> None:
    chance = random.Random(place.url.partition("://")[0])
    trouble = [["kill", "seconds", round(chance.uniform(0.3, 1.2), 2)] for _ in range(5)]
    trouble += [["kill", chance.choice(("before", "after")), "create", chance.randrange(1, 6)] for _ in range(5)]
    play(place, trouble, "lease-lost@4", "stop@7=0.3", "checkpoint-error@9", "close@12=reply", "kill@15=half", seed=2)


def test_a_shard_is_split_meanwhile(place: Place) -> None:
    codes = play(place, [["kill", "after", "create", 2], ["kill", "before", "checkpoint", 2]], split_at=6)
    assert codes.count(-9) >= 4


def test_deaths_of_a_delta_table_at_every_named_point(delta: Place) -> None:
    """A commit has two creations, two reads before the second, and one after it."""
    trouble = [["kill", when, point, nth] for point in DELTA_POINTS for when in ("before", "after") for nth in (1, 2)]
    codes = play(delta, trouble)
    assert codes.count(-9) >= 22, "the points are not reached any more"


def test_deaths_of_a_delta_table_at_random_among_other_faults(tmp_path: Path) -> None:
    chance = random.Random("delta")
    trouble = [["kill", "seconds", round(chance.uniform(0.3, 1.2), 2)] for _ in range(4)]
    trouble += [["kill", chance.choice(("before", "after")), "create", chance.randrange(1, 8)] for _ in range(4)]
    place = delta_posix(tmp_path)
    play(place, trouble, "lease-lost@4", "stop@7=0.3", "checkpoint-error@9", "kill@15=half", seed=2, split_at=6)


def test_deaths_while_spark_makes_the_files(tmp_path: Path, spark: SharedSpark) -> None:
    """Around the move of Spark's files to their names, the entry that adds them, and a checkpoint."""
    trouble = [["kill", "after", "rename", 1], ["kill", "before", "create", 1], ["kill", "after", "create", 1]]
    trouble += [["kill", "before", "checkpoint", 1]]
    codes = play(delta_posix(tmp_path), trouble, spark=spark.url)
    assert codes.count(-9) == 4, "the points are not reached any more"


def test_deaths_of_an_iceberg_table_at_every_named_point(tmp_path: Path) -> None:
    """A commit has four creations: data, manifest, list of manifests, metadata. The last one is within the commit."""
    points = [("create", nth) for nth in (1, 4, 6)] + [("commit", 1), ("commit", 2), ("checkpoint", 1)]
    trouble = [["kill", when, point, nth] for point, nth in points for when in ("before", "after")]
    codes = play(sql_posix(tmp_path), trouble)
    assert codes.count(-9) >= 20, "the points are not reached any more"


FEW = [("create", 3), ("commit", 1)]
MANY = [("create", nth) for nth in (1, 2, 3, 5)] + [("commit", nth) for nth in (1, 2, 3)]
MANY += [("checkpoint", nth) for nth in (1, 2, 3)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("points", [FEW, pytest.param(MANY, marks=pytest.mark.long)], ids=["few", "20"])
@pytest.mark.parametrize("catalog", ["rest", "glue"])
def test_deaths_of_an_iceberg_table_of_another_catalog(
    request: pytest.FixtureRequest, catalog: str, points: list[tuple[str, int]], tmp_path: Path
) -> None:
    """A REST catalog's server writes the metadata; Glue's metadata and files are on S3. Each shard's children die."""
    trouble = [["kill", when, point, nth] for point, nth in points for when in ("before", "after")]
    with place_of(catalog, request, tmp_path) as place:
        codes = play(place, trouble)
    assert codes.count(-9) >= 2 * len(trouble) - 2, "the points are not reached any more"
