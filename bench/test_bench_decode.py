"""One processRecords line in memory to a pyarrow.RecordBatch, for each payload profile and each peer."""

import functools

import pyarrow as pa
import pytest
from fastkcl.replay import profiles
from peers import PEERS

PROFILES = ("iot", "clickstream", "logs", "blob", "keys", "tiny")


@functools.cache
def line(profile: str) -> bytes:
    """A batch of the profile's own size."""
    return profiles.line(profiles.PROFILES[profile])


@functools.cache
def expected(profile: str) -> pa.RecordBatch:
    """By Python's json and base64, which shares nothing with the codec."""
    return PEERS["json + base64"](line(profile))


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("profile", PROFILES)
def test_decode(benchmark, profile: str, peer: str) -> None:
    """Equal to the reference first, then timed."""
    content = line(profile)
    decode = PEERS[peer]
    assert decode(content).equals(expected(profile))
    benchmark.group = f"decode {profile}"
    benchmark.extra_info |= {"suite": "decode", "profile": profile, "peer": peer, "line_bytes": len(content)}
    benchmark(decode, content)
