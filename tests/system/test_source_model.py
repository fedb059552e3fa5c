"""A model of Spark's engine over a local AWS that misbehaves: deaths between any two calls, and no row lost or doubled.

SOURCE_CRASHES=10000 has more deaths, shared by the worlds.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest
from botocore import UNSIGNED
from botocore.config import Config
from fastkcl import _core
from fastkcl.local_aws import Fault, LocalAws
from local_aws_helpers import new_name, reshard
from source_engine import Row, SourceEngine

CRASHES = int(os.environ.get("SOURCE_CRASHES", "1000"))
KEYS = 12
THROTTLED = Fault("GetRecords", "ProvisionedThroughputExceededException", times=1)
WORLDS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "empty answers and false tips": ({"empty_answers": 0.3, "false_zeros": 0.2}, {}),
    "falling times, iterators of 3 s, all by range": (
        {"falling_seconds": 2.5, "iterator_seconds": 3},
        {"inlineBytes": "0"},
    ),
    "a clock that is ahead, few records a batch": (
        {"clock_seconds": 7, "empty_answers": 0.1},
        {"maxRecordsPerTrigger": "20"},
    ),
    "a clock that is an hour behind, small heads": (
        {"clock_seconds": -3600, "false_zeros": 0.2},
        {"inlineBytes": "300", "maxSlice": "1s"},
    ),
    "a shard's limits": ({"shard_limits": True, "falling_seconds": 0.3}, {"shardsPerTask": "1"}),
}


class Writer:
    """Puts rows and changes shards when it is asked to; some records are aggregates.

    Its calls are not signed, so that another clock of the service is the reader's problem alone.

    Attributes:
        counts: rows put, by key.
    """

    def __init__(self, aws: LocalAws, stream: str, random: Random) -> None:
        self._aws, self._stream, self._random = aws, stream, random
        self._kinesis = aws.client("kinesis", config=Config(signature_version=UNSIGNED, retries={"max_attempts": 0}))
        self._kinesis.create_stream(StreamName=stream, ShardCount=2)
        self.counts: Counter[str] = Counter()
        self.reshards = 0
        self.is_over = False

    def happens(self) -> None:
        if self.is_over:
            return
        for _ in range(self._random.choice((0, 0, 1, 5))):
            self._put(f"k{self._random.randrange(KEYS)}")
        if self._random.random() < 0.1:
            with suppress(self._kinesis.exceptions.ResourceInUseException):
                reshard(self._kinesis, self._stream, self._random)
                self.reshards += 1
        if self._random.random() < 0.03:
            self._aws.faults(THROTTLED)

    def _put(self, key: str) -> None:
        many = self._random.choice((1, 1, 3))
        values = [f"{key}:{self.counts[key] + index}".encode() for index in range(many)]
        data = values[0]
        if many > 1:
            aggregate = _core.Aggregate()
            for value in values:
                aggregate.add(key, value, None)
            data = aggregate.encode()
        with suppress(self._kinesis.exceptions.ProvisionedThroughputExceededException):
            self._kinesis.put_record(StreamName=self._stream, PartitionKey=key, Data=data)
            self.counts[key] += many


def check(engine: SourceEngine, counts: Counter[str]) -> None:
    """Each row once, and each key in its order: by batches, and within one by sequence numbers."""
    seen: dict[str, list[int]] = {}
    for batch in engine.sink:
        rows: list[Row] = sorted(
            (row for of_shard in batch.values() for row in of_shard), key=lambda r: (int(r[0]), r[1])
        )
        for _, _, key, data in rows:
            name, number = data.decode().split(":")
            assert name == key
            seen.setdefault(key, []).append(int(number))
    assert seen == {key: list(range(count)) for key, count in counts.items()}


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")


@pytest.mark.timeout(300 + 10 * CRASHES)
@pytest.mark.parametrize("world", WORLDS)
def test_deaths_between_any_two_calls_lose_and_double_nothing(world: str) -> None:
    service, options = WORLDS[world]
    random = Random(world)
    deaths = CRASHES // len(WORLDS)
    with LocalAws(**service) as aws:
        writer = Writer(aws, stream := new_name(), random)
        given = {"streamName": stream, "endpoint": aws.url, "region": "us-east-1", "initialPosition": "trim_horizon"}
        engine = SourceEngine(
            {**given, "minFetchPeriod": "200ms", "shardFetchInterval": "1s", **options},
            random,
            deaths=0.2,
            happens=writer.happens,
        )
        try:
            while engine.crashes < deaths:
                engine.step()
                if engine.sink and random.random() < 0.1:
                    engine.replay(random.randrange(len(engine.sink)))
            engine.deaths, writer.is_over = 0.0, True
            drain(engine, sum(writer.counts.values()))
        finally:
            engine.stop()
        for number in range(0, len(engine.sink), 1 + len(engine.sink) // 10):
            engine.replay(number)
    seen = f"{engine.crashes} deaths, {engine.replays} replays, {writer.reshards} reshards"
    print(f"{world}: {seen}, {len(engine.sink)} batches, {writer.counts.total()} rows")
    assert writer.reshards
    check(engine, writer.counts)


def drain(engine: SourceEngine, count: int) -> None:
    """Until all rows have come, as long as some come within two minutes."""
    come = quiet = 0
    deadline = monotonic() + 120
    while quiet < 5 or come < count:
        quiet = 0 if engine.step() else quiet + 1
        before, come = come, sum(len(rows) for batch in engine.sink for rows in batch.values())
        deadline = monotonic() + 120 if come > before else deadline
        assert monotonic() < deadline, f"of {count} rows {come} have come"
        sleep(0.05 if quiet else 0)
