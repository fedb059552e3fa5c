"""Plays the daemon's part for child processes: recorded, stored or generated shards, strictly by the protocol.

    from fastkcl.replay import generate, replay

    report = replay(["python", "child.py"], generate("clickstream", shards=4, records=100_000))
    assert report.ok, [shard.problems for shard in report.shards]

A worker child has a counterpart that is hard to bring into a test: a Java daemon, AWS or a stand-in, minutes of
start, and faults that come when they like. This package is that counterpart: one child per shard over real pipes,
each line of the child read as the daemon reads it, each checkpoint judged by KCL's rules and stored, and after a death
everything above the last checkpoint delivered again in other batches. Faults can be asked for (`Fault`), and a breach
of the protocol by the child is a problem in the `Report`.

    sources ──▶ plan ──▶ player (one thread per shard) ──▶ session (one per child) ──▶ child (process, pipes)
    columns              script, faults, redelivery         │
    profiles                                                └──▶ conversation (checkpoint rules, no I/O) ──▶ child_lines

Rules: the same arguments give the same lines. No import here reaches for pyarrow; only a source of
Parquet or dead letters does.
"""

from fastkcl.replay.faults import CATALOG, Fault, parse_fault
from fastkcl.replay.options import End, ReplayOptions
from fastkcl.replay.report import Progress, Report, ShardReport
from fastkcl.replay.run import ReplayError, replay
from fastkcl.replay.sources import (
    Source,
    SourceError,
    encoded,
    from_captures,
    from_dead_letters,
    from_records,
    generate,
)

__all__ = [
    "CATALOG",
    "End",
    "Fault",
    "Progress",
    "ReplayError",
    "ReplayOptions",
    "Report",
    "ShardReport",
    "Source",
    "SourceError",
    "encoded",
    "from_captures",
    "from_dead_letters",
    "from_records",
    "generate",
    "parse_fault",
    "replay",
]
