"""One processRecords line in memory to a pyarrow.RecordBatch: payload profiles, and records of all sizes, by peer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random

import pytest
from fastkcl import _core
from fastkcl.bench import peers
from fastkcl.replay import profiles
from fastkcl.shard import sequence_numbers
from suites import Way, one_core, take_turns, timed

PROFILES = ("iot", "clickstream", "logs", "blob", "keys", "tiny")
QUICK_RECORDS = {"logs": 20, "blob": 1}
ROUNDS = 21
SIZES = (0, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
SIZED_PEERS = (peers.OURS, "msgspec (typed)", "orjson + pybase64", peers.STDLIB, "amazon_kclpy")
SIZED_BYTES = 6_000_000
"""Payloads of one line of the sizes, but at most 10,000 records, as a daemon sends."""


@cache
def decoders() -> Mapping[str, peers.Decode]:
    """All that are installed."""
    return peers.installed()


def compare(
    benchmark, suite: str, profile: str, content: bytes, records: int, chosen: Mapping[str, peers.Decode]
) -> None:
    """Equal to Python's own json and base64, which share nothing with the codec; then timed in turn."""
    expected = decoders()[peers.STDLIB](content)
    for name, decode in chosen.items():
        assert decode(content).equals(expected), name
    ways: dict[str, Way] = {name: timed(decode, content) for name, decode in chosen.items()}
    with one_core():
        take_turns(benchmark, suite, profile, ways, ROUNDS, line_bytes=len(content), records=records)


@pytest.mark.parametrize("profile", PROFILES)
def test_decode(benchmark, profile: str, original_packages: None) -> None:
    """A batch of the profile's own size."""
    full = profiles.PROFILES[profile].records
    records = full if benchmark.enabled else QUICK_RECORDS.get(profile, 500)
    compare(benchmark, "decode", profile, profiles.line(profile, records=records), records, decoders())


@pytest.mark.parametrize("size", SIZES)
def test_size(benchmark, size: int, original_packages: None) -> None:
    """Random bytes of one size."""
    records = max(1, min(10_000, SIZED_BYTES // max(size, 1))) if benchmark.enabled else 2
    payloads = [Random(f"size {size} {index}").randbytes(size) for index in range(min(records, 32))]
    content = _core.encode_process_records(
        [payloads[index % len(payloads)] for index in range(records)],
        [f"key-{index % 1000:05d}" for index in range(records)],
        sequence_numbers(0, records, created=profiles.EPOCH_MILLIS // 1000, arrival=profiles.EPOCH_MILLIS // 1000),
        [0] * records,
        profiles.timestamps(0, records),
        millis_behind_latest=0,
    )
    chosen = {
        name: decode for name, decode in decoders().items() if name.startswith(SIZED_PEERS) and name != peers.FRESH
    }
    compare(benchmark, "record size", str(size), content, records, chosen)
