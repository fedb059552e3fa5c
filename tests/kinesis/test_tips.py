"""One answer alone may say by mistake that a shard is at its tip: two in a row let an iteration end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastkcl.kinesis import Consumer, KCLCheckPointer
from fastkcl.kinesis.read.fetch import ShardReader
from fastkcl.local_aws import Fault, LocalAws
from kinesis_helpers import QUICK, assert_each_once, numbered, put, take
from kinesis_helpers import environment as environment  # a fixture
from kinesis_helpers import stream as stream  # a fixture
from local_aws_helpers import make_stream, new_name


def test_one_false_tip_does_not_end_an_iteration(
    own_aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer after it takes longer than the rest of the idle_timeout."""
    put(own_aws, stream, numbered(1, 3))
    own_aws.faults(Fault("GetRecords", delay=1.0, skip=1, times=1))
    take = ShardReader._take
    answers = 0

    async def taken(reader: ShardReader, answer: Any) -> bool:
        nonlocal answers
        answers += 1
        return await take(reader, answer._replace(millis_behind_latest=0) if answers == 1 else answer)

    monkeypatch.setattr(ShardReader, "_take", taken)

    async def main() -> list[Any]:
        async with Consumer(stream, **QUICK, record_limit=1) as consumer:
            return [item async for item in consumer]

    assert_each_once(asyncio.run(main()), 1, 3)


def test_the_second_answer_is_not_waited_for(own_aws: LocalAws, stream: str) -> None:
    """It comes before a pause of sleep_time_no_records, also where that is longer than the idle_timeout."""

    async def main() -> None:
        options = {**QUICK, "sleep_time_no_records": 3600}
        async with Consumer(stream, **options) as consumer:
            assert [item async for item in consumer] == []

    asyncio.run(main())


def test_an_iteration_does_not_end_while_a_lost_shard_is_free(aws: LocalAws) -> None:
    """The next look at the leases comes later than the idle_timeout; the shard has records."""
    stream = make_stream(aws, 2)
    put(aws, stream, numbered(1, 10))

    async def main() -> list[Any]:
        checkpointer = KCLCheckPointer(new_name())
        assert checkpointer.look_interval > QUICK["idle_timeout"]
        async with Consumer(stream, **QUICK, checkpointer=checkpointer, record_limit=1) as consumer:
            await consumer.wait_ready()
            items = await take(consumer, 1)
            assert consumer._delivery is not None
            checkpointer._keeper.dropped(consumer._delivery.fetched.reader.shard_id)
            return items + [item async for item in consumer]

    assert {item["n"] for item in asyncio.run(main())} == set(range(10))
