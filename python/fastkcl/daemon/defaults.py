"""Defaults for the daemon that differ from its own, because its own are traps.

Each row gives the reason; docs/daemon.md explains it. A default is left out where the generation has no such key, and
where a key of the user has decided the matter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Set
from typing import NamedTuple

from fastkcl.daemon.keys import Generation, find_key

__all__ = ["DEFAULTS", "Default", "properties"]


class Default(NamedTuple):
    """One key that is set where the user has not set it."""

    key: str
    value: str
    why: str
    unless: tuple[str, ...] = ()
    """Keys that decide the same."""
    stand_in: bool = False
    """Only where Kinesis is not Amazon's."""


DEFAULTS = (
    Default(
        "awsCredentialsProvider",
        "DefaultCredentialsProvider",
        "The daemon refuses to start without one. This asks environment, profile, container and instance.",
    ),
    Default(
        "initialPositionInStream",
        "TRIM_HORIZON",
        "The daemon's default, LATEST, leaves out records that were put before its first read.",
        unless=("initialPositionInStreamExtended", "timestampAtInitialPositionInStream"),
    ),
    Default(
        "shutdownGraceMillis",
        "20000",
        "With the daemon's 0, SIGTERM ends it without a word to the children: nothing is checkpointed.",
    ),
    Default(
        "shardSyncIntervalMillis",
        "1000",
        "The daemon sleeps so long after its first look at the shards, before it reads: 60 s by its own default.",
    ),
    Default(
        "callProcessRecordsEvenForEmptyRecordList",
        "true",
        "An empty batch is a child's clock: without it, held records of a quiet shard are not written.",
    ),
    Default("processingLanguage", f"python/{sys.version_info[0]}.{sys.version_info[1]}", "A note in the user agent."),
    Default(
        "retrievalMode",
        "POLLING",
        "KCL 3 asks for enhanced fan-out by default, which stand-ins for Kinesis do not have.",
        unless=("idleTimeBetweenReadsInMillis", "maxRecords"),
        stand_in=True,
    ),
    Default("regionName", "us-east-1", "Requests are signed for some region, and a stand-in takes any.", stand_in=True),
    Default(
        "metricsLevel", "NONE", "Nobody looks at a stand-in's CloudWatch, and KCL 1 would ask Amazon's.", stand_in=True
    ),
)


def properties(generation: Generation, given: Set[str], *, stand_in: bool) -> Iterator[tuple[str, str]]:
    """The defaults for a daemon, in its spelling.

    Args:
        generation: which daemon.
        given: the keys that are set.
        stand_in: whether Kinesis is not Amazon's.
    """
    for default in DEFAULTS:
        key = find_key(generation, default.key)
        if key is None or (default.stand_in and not stand_in):
            continue
        if key.name not in given and not given & set(default.unless):
            yield key.name, default.value
