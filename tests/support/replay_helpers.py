"""Replays with the children of tests/programs, and their results."""

import json
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from fastkcl import _core
from fastkcl.processing.context import ShardContext
from fastkcl.processing.failures import FailurePolicy
from fastkcl.replay import ReplayOptions, Report, ShardReport, Source, generate, parse_fault, replay
from paths import PROGRAMS

REPLAY = replay.__module__.rpartition(".")[0]
BATCH = 10
RECORDS = 50


def small_source(shards: int = 1) -> Source:
    return generate("tiny", shards=shards, records=RECORDS, batch_records=BATCH, seed=7)


class Played(NamedTuple):
    report: Report
    stderr: list[tuple[str, str]]
    calls: list[dict[str, Any]]

    @property
    def shard(self) -> ShardReport:
        (shard,) = self.report.shards
        return shard

    @property
    def messages(self) -> list[str]:
        """What fastkcl says on standard error."""
        return [line for _, line in self.stderr if line.startswith("fastkcl: ")]

    def calls_of(self, attempt: int) -> list[str]:
        return [call["call"] for call in self.calls if call["attempt"] == attempt]

    def batches(self, attempt: int | None = None) -> list[list[tuple[Any, ...]]]:
        return [
            [tuple(record) for record in call["records"]]
            for call in self.calls
            if call["call"] == "process_batch" and attempt in (None, call["attempt"])
        ]

    def records(self, attempt: int | None = None) -> list[tuple[Any, ...]]:
        return [record for batch in self.batches(attempt) for record in batch]


def threads_of_the_replay() -> list[threading.Thread]:
    """Those that run, whoever else has threads in this process."""
    every = threading.enumerate()
    return [one for one in every if str(getattr(getattr(one, "_target", None), "__module__", "")).startswith(REPLAY)]


def play(command: list[str], source: Source, *faults: str, log: Path | None = None, **options: Any) -> Played:
    """Replay with short patience, standard error collected; checks that nothing is left behind."""
    lines: list[tuple[str, str]] = []
    settings: dict[str, Any] = {"answer_timeout": 30.0, "exit_grace": 10.0, **options}
    report = replay(
        command,
        source,
        ReplayOptions(
            faults=tuple(map(parse_fault, faults)),
            on_stderr=lambda shard, line: lines.append((shard, line.decode())),
            **settings,
        ),
    )
    assert threads_of_the_replay() == []
    calls = []
    if log is not None and log.exists():
        calls = [json.loads(line) for line in log.read_text().splitlines()]
    return Played(report, lines, calls)


def play_processor(tmp_path: Path, *faults: str, child: tuple[str, ...] = (), **options: Any) -> Played:
    """One small shard for a child built on fastkcl.run."""
    log = tmp_path / "calls.jsonl"
    source = options.pop("source", None) or small_source()
    command = [sys.executable, str(PROGRAMS / "processor.py"), str(log), *child]
    return play(command, source, *faults, log=log, **options)


def play_plain(*faults: str, child: tuple[str, ...] = (), **options: Any) -> Played:
    """One small shard for a child without fastkcl."""
    source = options.pop("source", None) or small_source()
    return play([sys.executable, str(PROGRAMS / "plain.py"), *child], source, *faults, **options)


def sent(source: Source) -> list[tuple[Any, ...]]:
    """Records of all shards of a source, as a child writes them down."""
    rows: list[tuple[Any, ...]] = []
    for shard in source.shards():
        columns = shard.records.columns(0, len(shard.records))
        rows += zip(
            columns.sequence_numbers,
            columns.sub_sequence_numbers,
            columns.partition_keys,
            [(data or b"").hex() for data in columns.data],
            strict=True,
        )
    return rows


def dead_letter(
    folder: Path, *batches: list[tuple[int, int | None, str]], stream: str | None = "clicks", shard: int = 0
) -> None:
    """Store batches that failed, each a list of (sequence number, sub-sequence number, payload), as a run does it."""
    messages = []
    for batch in batches:
        records = [
            {
                "data": _core.encode_base64(payload.encode()).decode(),
                "partitionKey": "k",
                "sequenceNumber": str(number),
                "approximateArrivalTimestamp": 1_700_000_000_123,
                **({} if sub is None else {"action": "record", "subSequenceNumber": sub}),
            }
            for number, sub, payload in batch
        ]
        message = _core.decode_line(json.dumps({"action": "processRecords", "records": records}).encode())
        assert isinstance(message, _core.ProcessRecords)
        messages.append(message.batch)
    context = ShardContext(
        stream=stream,
        shard_id=f"shardId-{shard:012d}",
        sequence_number=None,
        sub_sequence_number=None,
        dialect="modern",
    )
    policy = FailurePolicy(on_error="stop", retries=0, backoff=0, dead_letter=folder, report=lambda line: None)
    policy.settle("process_batch failed", "Traceback", context, messages[0], messages)
