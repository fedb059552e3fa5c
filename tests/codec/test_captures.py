"""Captures of three generations agree with their READMEs, in the dialect of each, and a child of ours fits in.

The story of a capture is its child's input, in order: `records(12)`, the answers to its checkpoints (`stored`, or the
error's name), and the messages that end a lease. How each of them decodes is the matter of test_decoder_captures.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import captures
import codec_helpers
import pytest
from fastkcl import Initialize, ProcessRecords, Record, _core
from fastkcl.kcl.connection import Connection
from paths import PROGRAMS

CHILD = PROGRAMS / "captured_child.py"
MAGIC = b"\xf3\x89\x9a\xc2"
"""What KPL aggregates begin with."""

REFUSED = "IllegalArgumentException"
STOPPED_3 = "shutdownRequested stored leaseLost"
STOPPED_1_15 = "shutdownRequested stored shutdown(ZOMBIE)"
STORIES = {
    # KCL 1.7.1: an old dialect, the old end of a lease, and nothing at SIGTERM.
    "kcl-legacy-captures/shapes.shard0": ("legacy", "records(34) stored stored"),
    "kcl-legacy-captures/aggregated.shard0": ("legacy", "records(47) stored stored"),
    "kcl-legacy-captures/many-batches.shard0": ("legacy", " ".join(["records(7) stored stored"] * 7)),
    "kcl-legacy-captures/checkpoint-errors.shard0": (
        "legacy",
        f"records(10) {REFUSED} {REFUSED} {REFUSED} {REFUSED} {REFUSED} stored {REFUSED} {REFUSED} {REFUSED} stored"
        f" stored {REFUSED} stored stored stored stored",
    ),
    "kcl-legacy-captures/checkpoint-throttled.shard0": (
        "legacy",
        "records(10) ThrottlingException ThrottlingException",
    ),
    "kcl-legacy-captures/empty-calls.shard0": ("legacy", "records(3) stored stored" + " records(0)" * 8),
    "kcl-legacy-captures/split.shard0": ("legacy", "records(12) stored stored shutdown(TERMINATE) stored"),
    "kcl-legacy-captures/split.shard1": ("legacy", "records(3) stored stored"),
    "kcl-legacy-captures/split.shard2": ("legacy", "records(5) stored stored"),
    "kcl-legacy-captures/lease-lost.shard0": ("legacy", "records(8) stored stored shutdown(ZOMBIE) stored"),
    "kcl-legacy-captures/lease-lost-mid-batch.shard0": (
        "legacy",
        "records(8) ShutdownException ShutdownException shutdown(ZOMBIE) ShutdownException",
    ),
    # KCL 1.15.3: the dialect of today, and the old end of a lease.
    "kcl-legacy-captures/v1.15.3-aggregated.shard0": ("modern", f"records(47) stored stored {STOPPED_1_15}"),
    "kcl-legacy-captures/v1.15.3-split.shard0": ("modern", "records(12) stored stored shutdown(TERMINATE) stored"),
    "kcl-legacy-captures/v1.15.3-split.shard1": ("modern", f"records(3) stored stored {STOPPED_1_15}"),
    "kcl-legacy-captures/v1.15.3-split.shard2": ("modern", f"records(5) stored stored {STOPPED_1_15}"),
    "kcl-legacy-captures/v1.15.3-lease-lost.shard0": ("modern", "records(8) stored stored shutdown(ZOMBIE) stored"),
    # KCL 3.1.3.
    "kcl-multilang/shapes.shard0": ("modern", f"records(49) stored stored {STOPPED_3}"),
    "kcl-multilang/shapes-posix-locale.shard0": ("modern", f"records(48) stored stored {STOPPED_3}"),
    "kcl-multilang/big.shard0": ("modern", f"records(3) {STOPPED_3}"),
    "kcl-multilang/many.shard0": ("modern", f"records(10000) {STOPPED_3}"),
    "kcl-multilang/aggregated.shard0": ("modern", f"records(67) stored stored {STOPPED_3}"),
    "kcl-multilang/two-shards.shard0": ("modern", f"records(31) stored stored {STOPPED_3}"),
    "kcl-multilang/two-shards.shard1": ("modern", f"records(29) stored stored {STOPPED_3}"),
    "kcl-multilang/split.shard0": ("modern", "records(20) stored stored shardEnded stored"),
    "kcl-multilang/split.shard1": ("modern", f"records(3) stored stored {STOPPED_3}"),
    "kcl-multilang/split.shard2": ("modern", f"records(5) stored stored {STOPPED_3}"),
    "kcl-multilang/merge.shard0": ("modern", "records(8) stored stored shardEnded stored"),
    "kcl-multilang/merge.shard1": ("modern", "records(4) stored stored shardEnded stored"),
    "kcl-multilang/merge.shard2": ("modern", f"records(5) stored stored {STOPPED_3}"),
    "kcl-multilang/checkpoint-errors.shard0": (
        "modern",
        f"records(10) {REFUSED} {REFUSED} stored stored {REFUSED} {REFUSED} {REFUSED} {REFUSED} {REFUSED} {REFUSED}"
        f" stored stored {REFUSED} stored {REFUSED} {REFUSED} stored stored {REFUSED} stored {STOPPED_3}",
    ),
    "kcl-multilang/lease-lost.shard0": ("modern", "records(10) stored stored leaseLost InvalidStateException"),
    "kcl-multilang/lease-lost-mid-batch.shard0.1": (
        "modern",
        "records(10) ShutdownException ShutdownException leaseLost",
    ),
    "kcl-multilang/lease-lost-mid-batch.shard0.2": ("modern", f"records(10) stored stored {STOPPED_3}"),
}
"""Dialect and story, by capture. (The legacy README says that many-batches has eight; it has seven.)"""

SHAPES = [name for name in STORIES if "shapes" in name]
AGGREGATED = [name for name in STORIES if "aggregated" in name]
# Where a checkpoint is tried that ours refuses by itself (the lease is lost), or that ours would not try.
NOT_OURS = ("lease-lost.", "checkpoint-errors", "kcl-legacy-captures/lease-lost-mid-batch")
PLAYED = [
    capture
    for capture in captures.CAPTURES
    if captures.answers(capture) and not any(part in captures.name_of(capture) for part in NOT_OURS)
]
BY_NAME = {captures.name_of(capture): capture for capture in captures.CAPTURES}


def messages(name: str) -> list[codec_helpers.Message]:
    decoded = [_core.decode_line(line) for line in captures.lines(BY_NAME[name])]
    return [message for message in decoded if message is not None]


def records(name: str) -> list[Record]:
    return [record for message in messages(name) if isinstance(message, ProcessRecords) for record in message.batch]


def words(decoded: Sequence[codec_helpers.Message]) -> list[str]:
    found = []
    for message in decoded:
        match message:
            case _core.Initialize():
                pass
            case _core.ProcessRecords():
                found.append(f"records({len(message.batch)})")
            case _core.Checkpoint():
                found.append(message.error or "stored")
            case _core.Shutdown():
                found.append(f"shutdown({message.reason})")
            case _:
                found.append(message.action)
    return found


def test_each_capture_has_its_story() -> None:
    assert set(STORIES) == set(BY_NAME)


@pytest.mark.parametrize("name", STORIES)
def test_the_story(name: str) -> None:
    assert " ".join(words(messages(name))) == STORIES[name][1]


@pytest.mark.parametrize("name", STORIES)
def test_the_dialect_is_found_in_the_first_message(name: str) -> None:
    first = messages(name)[0]
    assert isinstance(first, Initialize)
    connection = Connection()
    connection.receive(first)
    assert connection.dialect == first.dialect == STORIES[name][0]


@pytest.mark.parametrize("name", STORIES)
def test_sub_sequence_numbers_are_there_but_in_the_legacy_dialect(name: str) -> None:
    legacy = STORIES[name][0] == "legacy"
    for record in records(name):
        assert (record.sub_sequence_number is None) == legacy
        assert record.timestamp_millis is not None
    for message in messages(name):
        if isinstance(message, ProcessRecords):
            assert (message.millis_behind_latest is None) == legacy


@pytest.mark.parametrize("name", SHAPES)
def test_odd_keys_and_all_bytes(name: str) -> None:
    found = records(name)
    posix = "posix" in name
    keys = {record.partition_key for record in found}
    odd = ["é", "\N{PARTY POPPER}", "日本語", "\u2028", "\u2029", "\x85", "\uffff", "\U0010ffff", "é" * 128]
    # Under a POSIX locale they are lost before a child sees them, a surrogate pair as one.
    assert keys >= {"?" * len(key) if posix else key for key in odd}
    assert keys >= {'quote"s', "back\\slash", "a/b/c", "tab\tkey", "\x01\x1f", "\x7fdel", "x" * 256}
    payloads = {record.data or b"" for record in found}
    assert bytes(range(256)) in payloads
    assert {len(payload) for payload in payloads} >= {1, 2, 3, 4, 1000} | (set() if posix else {0})


@pytest.mark.parametrize("name", AGGREGATED)
def test_aggregates_are_taken_apart(name: str) -> None:
    found = records(name)
    runs = [list(run) for _, run in groupby(found, key=lambda record: record.sequence_number)]
    first = 60 if "multilang" in name else 40
    assert [len(run) for run in runs if len(run) > 1] == [first, 3]
    for run in runs:
        numbers = [record.sub_sequence_number for record in run]
        assert numbers == ([None] * len(run) if STORIES[name][0] == "legacy" else list(range(len(run))))
    assert "é-single" in {record.partition_key for record in found}
    assert b"" in {record.data for record in found}
    assert len([record for record in found if (record.data or b"").startswith(MAGIC)]) == 1


@pytest.mark.parametrize(("name", "sizes"), [("kcl-multilang/big.shard0", [100_000, 100_000, 1_048_570])])
def test_large_records(name: str, sizes: list[int]) -> None:
    assert [len(record.data or b"") for record in records(name)] == sizes


@pytest.mark.parametrize("capture", PLAYED, ids=captures.name_of)
def test_a_child_of_ours_writes_what_the_daemon_took(capture: Path) -> None:
    """The child of the captures in its place: the same answers, in the same order."""
    done = subprocess.run(
        [sys.executable, CHILD], input=captures.read(capture), capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.split(b"\n") if line] == captures.answers(capture)
