"""The parts that all checkpointers share, and the one in memory. The contract of all of them has a table of its own."""

import asyncio

import pytest
from fastkcl.kinesis.checkpoints import (
    SHARD_END,
    STANDALONE_STREAM_LABEL,
    BindsMetrics,
    CheckPointer,
    EndsShards,
    MemoryCheckPointer,
    Place,
)
from fastkcl.kinesis.exceptions import CheckpointFlushError, CheckpointOwnershipConflict
from fastkcl.kinesis.metrics import (
    InMemoryMetricsCollector,
    MetricType,
    reset_metrics_collector,
    set_metrics_collector,
)

SHARD = "shardId-000000000000"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("49", Place("49")),
        ("49/3", Place("49", 3)),
        ("0/0", Place("0", 0)),
        (SHARD_END, None),
        ("TRIM_HORIZON", None),
        ("LATEST", None),
        ("AT_TIMESTAMP", None),
    ],
)
def test_positions_as_text(text: str, place: Place | None) -> None:
    assert Place.parse(text) == place
    assert place is None or str(place) == text


@pytest.mark.parametrize("text", ["", "49/", "/3", "-1", "4 9", "49/x", "latest", "\u0664\u0669"])
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        Place.parse(text)


def test_order_of_positions() -> None:
    ordered = [Place("9", 0), Place("9", 10), Place("9"), Place("10", 2), Place("10", 10), Place("10")]
    assert [place.order for place in ordered] == sorted({place.order for place in ordered})


def test_memory() -> None:
    async def main() -> None:
        kept = MemoryCheckPointer("group", id=7)
        assert isinstance(kept, CheckPointer)
        assert isinstance(kept, BindsMetrics)
        assert isinstance(kept, EndsShards)
        metrics = InMemoryMetricsCollector()
        kept.bind_metrics(metrics, {"stream_name": "s"})
        assert kept.get_ref() == "group/7"
        assert await kept.allocate(SHARD) == (True, None)
        assert kept.is_allocated(SHARD)
        await kept.checkpoint(SHARD, "5/1")
        await kept.deallocate(SHARD)
        await kept.deallocate(SHARD)
        assert not kept.is_allocated(SHARD)
        with pytest.raises(CheckpointOwnershipConflict):
            await kept.checkpoint(SHARD, "6")
        assert await kept.allocate(SHARD) == (True, "5/1")
        await kept.close()
        assert not kept.is_allocated(SHARD)
        assert kept.get_all_checkpoints() == {SHARD: "5/1"}
        assert sorted(metrics.get_metrics().values()) == [1, 1]
        assert {name.partition("{")[0] for name in metrics.get_metrics()} == {
            MetricType.CONSUMER_CHECKPOINT_SUCCESS.value,
            MetricType.CONSUMER_CHECKPOINT_FAILURE.value,
        }

    asyncio.run(main())


def test_counts_without_a_consumer() -> None:
    """As async-kinesis has them: of the process's collector, for a stream that is none."""
    metrics = InMemoryMetricsCollector()
    set_metrics_collector(metrics)
    try:
        kept = MemoryCheckPointer("group")
    finally:
        reset_metrics_collector()

    async def main() -> None:
        await kept.allocate(SHARD)
        await kept.checkpoint(SHARD, "5")

    asyncio.run(main())
    assert STANDALONE_STREAM_LABEL == "<standalone>"
    assert metrics.counters == {f"consumer_checkpoint_success_total{{shard_id={SHARD},stream_name=<standalone>}}": 1}


def test_what_could_not_be_flushed() -> None:
    error = CheckpointFlushError([(SHARD, OSError("away")), ("other", ValueError("bad"))])
    assert [shard_id for shard_id, _ in error.errors] == [SHARD, "other"]
    assert "2 checkpoints" in str(error)
    assert "away" in str(error)
