"""Shared by the suites: ways that take turns under pytest-benchmark, cores, and the record of a measurement.

Each test notes one `extra_info` for the report: suite, profile, bytes and records of the line, and the samples of each
way (`fastkcl.bench.turns`). pytest-benchmark's own time is that of a whole round.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from fastkcl.bench.pipes import CPUS
from fastkcl.bench.turns import Call as Way
from fastkcl.bench.turns import Turns
from fastkcl.replay import profiles

__all__ = [
    "CHILDREN",
    "PIPE_PROFILES",
    "Way",
    "digest",
    "drop_in",
    "line",
    "line_of_15_mb",
    "one_core",
    "payload",
    "take_turns",
    "timed",
]

CHILDREN = Path(__file__).parent / "children"
PIPE_PROFILES = ("iot", "clickstream", "logs", "blob")
_QUICK_RECORDS = {"iot": 1000, "clickstream": 1000, "logs": 40, "blob": 1}
_RECORDS_OF_15_MB = {"iot": 47_000, "clickstream": 17_230, "logs": 882, "blob": 11}
_Argument = TypeVar("_Argument")


def take_turns(
    benchmark: Any,
    suite: str,
    profile: str,
    ways: Mapping[str, Way],
    rounds: int,
    *,
    warm_up: bool = True,
    **noted: int,
) -> None:
    """Measure, unless only results count, and note it for the report.

    Args:
        benchmark: pytest-benchmark's fixture.
        suite: what the report calls it.
        profile: the payloads.
        ways: by name.
        rounds: how many count.
        warm_up: one more before them.
        noted: beside the samples, e.g. `line_bytes`.
    """
    turns = Turns(ways)
    benchmark.group = f"{suite}, {profile}"
    if benchmark.enabled and warm_up:
        turns.round()
        turns.forget()
    benchmark.pedantic(turns.round, rounds=rounds)
    benchmark.extra_info |= {"suite": suite, "profile": profile, "samples": turns.samples} | noted


def timed(function: Callable[[_Argument], object], argument: _Argument) -> Way:
    """The time of a call. What it returns is dropped after that, as a consumer drops it after its work."""

    def call() -> dict[str, float]:
        start = time.perf_counter()
        result = function(argument)
        seconds = time.perf_counter() - start
        del result
        return {"seconds": seconds}

    return call


@contextmanager
def one_core() -> Iterator[None]:
    """This thread on the first core."""
    os.sched_setaffinity(0, {CPUS[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, CPUS)


@cache
def line(profile: str, quick: bool) -> bytes:
    """A batch of the profile's own size, or a small one where only results count."""
    return profiles.line(profile, records=_QUICK_RECORDS[profile] if quick else None)


@cache
def line_of_15_mb(profile: str, quick: bool) -> bytes:
    """The largest batch that a daemon sends."""
    return profiles.line(profile, records=(_QUICK_RECORDS if quick else _RECORDS_OF_15_MB)[profile])


def digest(content: bytes) -> str:
    """What a child has to write of a line, by Python's own json and base64."""
    expected = hashlib.sha256()
    for record in json.loads(content)["records"]:
        payload = b64decode(record["data"], validate=True)
        for value in (payload, record["partitionKey"].encode(), record["sequenceNumber"].encode()):
            expected.update(b"%d:" % len(value))
            expected.update(value)
    return expected.hexdigest()


def drop_in(folder: Path) -> list[str | Path]:
    """Interpreter and program: the one for amazon_kclpy, with that name replaced by ours in `folder`."""
    program = folder / "fastkcl_kclpy_child.py"
    program.write_text((CHILDREN / "amazon_kclpy_child.py").read_text().replace("amazon_kclpy", "fastkcl.kclpy"))
    return [sys.executable, program]


def payload(number: int, size: int, is_json: bool) -> bytes:
    """Half of it at random, as text; an object of six values for JSON."""
    noise = random.Random(number).randbytes(size // 4).hex()
    if not is_json:
        return f"{number:012}{noise}".ljust(size, "x")[:size].encode()
    value = {
        "id": number,
        "user": f"user-{number % 997}",
        "at": "2026-01-02T03:04:05Z",
        "price": number / 8,
        "ok": True,
    }
    return json.dumps({**value, "text": noise.ljust(size - 110, "x")}).encode()
