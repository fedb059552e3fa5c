"""The defects of async-kinesis 3.0.1, by number: what its programs see, and what they see with fastkcl.

Each scenario of `async_kinesis_scenarios` runs twice against local AWS: by an interpreter that has async-kinesis, as a
defect that cannot be shown any more is none to compare with, and by this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastkcl
import pytest
from fastkcl.local_aws import LocalAws
from local_aws_helpers import new_name
from paths import PROGRAMS

SCENARIOS = PROGRAMS / "async_kinesis_scenarios.py"
OURS = Path(fastkcl.__file__).parents[1]

FORGED = {"__CHECKPOINT__": {"ShardId": "shardId-000000000000", "SequenceNumber": "1"}}
Check = Callable[[Any], bool]
# Number, scenario, how the defect shows in async-kinesis, what fastkcl gives.
DEFECTS: list[tuple[int, str, Check, Any]] = [
    (1, "undecodable_record", lambda seen: seen.count(1) > 1 and 2 not in seen, [1, 2]),
    (2, "skip_describe_stream", lambda seen: seen == [], ["a"]),
    (3, "records_of_a_call", lambda calls: calls["largest"] == 501, {"largest": 500, "sum": 501}),
    (
        4,
        "kpl",
        lambda seen: seen["digest"] == ["a", "b"] and seen["plain"] in ([], "error") and seen["records"] > 1,
        {"whole": ["a", "b"], "digest": "error", "plain": [{"a": 1}], "records": 1},
    ),
    (5, "checkpoint_key", lambda seen: seen == ["a"], [FORGED, "a"]),
    (6, "pages_of_shards", lambda shards: shards == 100, 130),
    (
        7,
        "netstrings",
        lambda seen: seen["empty"] == "error" and seen["comma"] == [1],
        {"empty": [], "comma": "error", "whole": [1]},
    ),
    (8, "merge", lambda seen: "child" in seen and seen.index("child") < 8, [*range(8), "child"]),
    (9, "item_of_the_limit", lambda records: records == [0, 1], "ExceededPutLimit"),
    (10, "sizes", lambda real: not real["JsonListProcessor"], {"JsonListProcessor": True, "JsonLineProcessor": True}),
    (11, "hundred_checkpoints", lambda items: items == 0, 101),
    (12, "quiet_shard", lambda seen: len(seen) < 8, [*range(8)]),
    (13, "records_without_items", lambda has_place: not has_place, True),
    (14, "json_text", lambda text: text != '{"a": [1, "\\u00e9/"]}', '{"a": [1, "\\u00e9/"]}'),
    (
        15,
        "lost_lease",
        lambda seen: seen == {"raised": "CheckpointOwnershipConflict", "the other's is kept": False},
        {"raised": "CheckpointOwnershipConflict", "the other's is kept": True},
    ),
    (16, "status_of_no_shards", lambda keys: keys == 5, 11),
    (17, "metadata", lambda item: item == [None, None, "a"], ["k", "shardId-000000000000", "a"]),
]


def play(python: str | Path, scenario: str, package: str, aws: LocalAws, **variables: str) -> Any:
    done = subprocess.run(
        [python, SCENARIOS, scenario, package, new_name()],
        env={**os.environ, **aws.environment, "ENDPOINT": aws.url, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def theirs(request: pytest.FixtureRequest) -> Path:
    """async-kinesis' interpreter; without it the test is skipped."""
    python = request.getfixturevalue("async_kinesis_python")
    assert isinstance(python, Path)
    return python


@pytest.mark.parametrize(
    ("scenario", "is_shown"),
    [pytest.param(scenario, is_shown, id=f"{number}-{scenario}") for number, scenario, is_shown, _ in DEFECTS],
)
def test_defect(
    scenario: str, is_shown: Check, aws: LocalAws, redis: dict[str, str], request: pytest.FixtureRequest
) -> None:
    seen = play(theirs(request), scenario, "kinesis", aws, **redis)
    assert is_shown(seen), seen


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [pytest.param(scenario, expected, id=f"{number}-{scenario}") for number, scenario, _, expected in DEFECTS],
)
def test_here(
    scenario: str, expected: object, aws: LocalAws, redis: dict[str, str], request: pytest.FixtureRequest
) -> None:
    path = [str(OURS), *sys.path]
    if scenario == "json_text":  # with async-kinesis' ujson within reach
        path += map(str, theirs(request).parents[1].glob("lib/python3*/site-packages"))
    assert play(sys.executable, scenario, "fastkcl.kinesis", aws, **redis, PYTHONPATH=os.pathsep.join(path)) == expected
