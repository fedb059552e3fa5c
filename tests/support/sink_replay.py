"""Replays with tests/programs/sink_child.py, and the records that a table must have after them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from fastkcl.replay import ReplayOptions, Report, Source, generate, parse_fault, replay
from fastkcl.replay.plan import make_plans
from paths import PROGRAMS
from sink_helpers import Record

CHILD = PROGRAMS / "sink_child.py"
STREAM = "clicks"


def play(
    folder: Path,
    *faults: str,
    records: int = 500,
    source: Source | None = None,
    sink: str = "ParquetSink",
    options: dict[str, Any] | None = None,
    run_options: dict[str, Any] | None = None,
    trouble: list[list[Any] | None] | None = None,
    environment: dict[str, str] | None = None,
    child: Path = CHILD,
    **settings: Any,
) -> tuple[Report, list[str]]:
    """Replay tiny records for children with a table in `folder`; see programs/sink_child.py for what they are told.

    Returns:
        The report, and what the children wrote on standard error.
    """
    noise: list[str] = []
    report = replay(
        [sys.executable, str(child)],
        source or generate("tiny", records=records, batch_records=20),
        ReplayOptions(
            stream=STREAM,
            faults=tuple(map(parse_fault, faults)),
            environment={
                "SINK": sink,
                "TABLE_PATH": str(folder),
                "OPTIONS": json.dumps(options or {}),
                "RUN_OPTIONS": json.dumps(run_options or {}),
                "TROUBLE": json.dumps(trouble or []),
                **(environment or {}),
            },
            on_stderr=lambda _shard, line: noise.append(line.decode()),
            **settings,
        ),
    )
    return report, noise


def delivered(source: Source, **settings: Any) -> Counter[Record]:
    """Each record of all shards once, as the plan of a replay has them: splits and merges make new numbers."""
    found: Counter[Record] = Counter()
    for plan in make_plans(source, ReplayOptions(stream=STREAM, **settings)):
        columns = plan.records.columns(0, plan.records_planned)
        legacy = plan.dialect == "legacy"
        for number, sub, data in zip(columns.sequence_numbers, columns.sub_sequence_numbers, columns.data, strict=True):
            found[plan.stream, plan.shard_id, number, None if legacy else sub, data] += 1
    return found


def numbers_and_data(shard: Any) -> tuple[Any, Any]:
    """The sequence numbers and the payloads of a shard that is replayed."""
    columns = shard.records.columns(0, len(shard.records))
    return columns.sequence_numbers, columns.data
