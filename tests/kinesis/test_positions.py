"""Deferred positions, deliveries, the queue and the failure table: a consumer's decisions, without I/O."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from fastkcl import RecordBatch
from fastkcl._core import deaggregate, encode_base64
from fastkcl.kinesis import JsonLineProcessor, JsonProcessor, KPLStringProcessor, StringProcessor, decode_get_records
from fastkcl.kinesis.checkpoints import Place
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.items.aggregators import BaseAggregator
from fastkcl.kinesis.read.delivery import AHEAD_BYTES, EXHAUSTED, BatchDelivery, ItemDelivery, RecordError
from fastkcl.kinesis.read.fetch import Start, whole_records
from fastkcl.kinesis.read.fetch_policy import ABSENCE_SECONDS, MAX_FAILURES, FetchPolicy, Next
from fastkcl.kinesis.read.positions import Handed, Positions
from fastkcl.kinesis.read.record_queue import Fetched, RecordQueue


def handed(sequence: int) -> Handed:
    return Handed(Place(str(sequence)), sequence)


def test_a_position_is_pending_when_more_is_asked_for() -> None:
    positions = Positions()
    positions.hand_out("a", handed(1))
    assert positions.pending == {}
    positions.acknowledge()
    assert positions.pending == {"a": handed(1)}


def test_the_last_position_wins_and_none_goes_back() -> None:
    positions = Positions()
    for sequence in (5, 9, 10, 7, 10):
        positions.hand_out("a", handed(sequence))
        positions.acknowledge()
    assert positions.pending == {"a": handed(10)}


def test_a_newer_position_is_not_lost_while_an_older_one_is_written() -> None:
    positions = Positions()
    positions.hand_out("a", handed(1))
    positions.acknowledge()
    written = positions.pending["a"]
    positions.hand_out("a", handed(2))
    positions.acknowledge()
    positions.committed("a", written)
    assert positions.pending == {"a": handed(2)}
    positions.committed("a", positions.pending["a"])
    assert positions.pending == {}


def test_positions_of_a_shard_that_is_lost() -> None:
    positions = Positions()
    for shard in ("a", "b"):
        positions.hand_out(shard, handed(5))
        positions.acknowledge()
        positions.hand_out(shard, handed(6))
    positions.drop("a")
    positions.acknowledge()
    assert positions.pending == {"b": handed(6)}
    positions.hand_out("a", handed(3))  # it is ours again, from where the other one was
    positions.acknowledge()
    assert positions.pending["a"] == handed(3)


# Failures.

TABLE = [
    (Failure.THROTTLED, False, Next.AGAIN, 0.25),
    (Failure.THROTTLED, True, Next.AGAIN, 0.25),
    (Failure.EXPIRED_ITERATOR, False, Next.NEW_ITERATOR, 0),
    (Failure.NOT_FOUND, False, Next.NEW_ITERATOR, 0),
    (Failure.NOT_FOUND, True, Next.LOOK, 0),
    (Failure.UNAVAILABLE, False, Next.AGAIN, 0.25),
    (Failure.OTHER, False, Next.AGAIN, 0.25),
    (Failure.OTHER, True, Next.AGAIN, 0.25),
]


@pytest.mark.parametrize(("failure", "of_iterator", "then", "pause"), TABLE)
def test_what_a_failure_leads_to(failure: Failure, of_iterator: bool, then: Next, pause: float) -> None:
    assert FetchPolicy().failed(failure, of_iterator=of_iterator)[:2] == (then, pause)


@pytest.mark.parametrize("failure", [Failure.EXPIRED_ITERATOR, Failure.UNAVAILABLE, Failure.OTHER])
def test_ten_in_a_row_are_too_many(failure: Failure) -> None:
    policy = FetchPolicy()
    for _ in range(3):
        steps = [policy.failed(failure).next for _ in range(MAX_FAILURES - 1)]
        assert Next.GIVE_UP not in steps
        policy.succeeded()
    steps = [policy.failed(failure).next for _ in range(MAX_FAILURES)]
    assert steps.index(Next.GIVE_UP) == MAX_FAILURES - 1 == 9


def test_a_shard_is_gone_when_two_lists_in_a_row_do_not_have_it() -> None:
    policy = FetchPolicy()
    assert policy.looked(is_listed=False)[:2] == (Next.AGAIN, ABSENCE_SECONDS)
    assert policy.looked(is_listed=True)[:2] == (Next.AGAIN, 0.25)
    assert policy.looked(is_listed=False).next is Next.AGAIN
    policy.succeeded()
    assert [policy.looked(is_listed=False).next for _ in range(2)] == [Next.AGAIN, Next.SHARD_GONE]


def test_a_listed_shard_is_never_gone() -> None:
    policy = FetchPolicy()
    steps = [policy.looked(is_listed=True).next for _ in range(MAX_FAILURES)]
    assert steps == [Next.AGAIN] * (MAX_FAILURES - 1) + [Next.GIVE_UP]


def test_what_is_denied_is_said_after_four_seconds() -> None:
    policy = FetchPolicy()
    steps = [policy.failed(Failure.DENIED, of_iterator=True) for _ in range(5)]
    assert [step.next for step in steps] == [Next.AGAIN] * 4 + [Next.GIVE_UP]
    assert sum(step.pause for step in steps) == 3.75


def test_throttling_is_waited_for_without_end() -> None:
    policy = FetchPolicy()
    pauses = [policy.failed(Failure.THROTTLED).pause for _ in range(50)]
    assert pauses[:6] == [0.25, 0.5, 1, 2, 4, 5]
    assert set(pauses[6:]) == {5.0}
    policy.succeeded()
    assert policy.failed(Failure.THROTTLED).pause == 0.25


def test_requests_of_iterators() -> None:
    assert Start("TRIM_HORIZON").request == {"ShardIteratorType": "TRIM_HORIZON"}
    after = Start("LATEST", place=Place("5")).request
    assert after == {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": "5"}
    inside = Start("LATEST", place=Place("5", 2)).request
    assert inside == {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": "5"}


# Deliveries.


class Reader:
    shard_id = "shardId-000000000000"
    lost = False


def batch_of(*data: bytes) -> RecordBatch:
    records = [
        {"SequenceNumber": str(100 + n), "PartitionKey": f"k{n}", "Data": encode_base64(each).decode()}
        for n, each in enumerate(data)
    ]
    return decode_get_records(json.dumps({"Records": records, "MillisBehindLatest": 7}).encode()).batch


def fetched(batch: RecordBatch, place: str = "999", rows: int | None = None) -> Fetched:
    reader: Any = Reader()
    return Fetched(reader, batch, Place(place), batch.num_rows if rows is None else rows)


def take_all(delivery: ItemDelivery) -> list[Any]:
    items = []
    while (item := delivery.take()) is not EXHAUSTED:
        items.append(item)
    return items


def test_items_and_what_is_acknowledged_by_asking_for_more() -> None:
    delivery = ItemDelivery(fetched(batch_of(b"1", b"2", b"3"), rows=13), JsonProcessor(), "items", deaggregated=False)
    seen: list[Any] = []
    for _ in range(4):
        seen += [delivery.take(), delivery.acknowledged]
    assert seen == [
        1,
        None,
        2,
        Handed(Place("100"), 11),
        3,
        Handed(Place("101"), 12),
        EXHAUSTED,
        Handed(Place("999"), 13),
    ]


def test_records_of_several_items_and_of_none() -> None:
    delivery = ItemDelivery(
        fetched(batch_of(b"1\n2\n", b"\n", b"3\n", b"")), JsonLineProcessor(), "items", deaggregated=False
    )
    seen = [(delivery.take(), delivery.acknowledged and delivery.acknowledged.place) for _ in range(4)]
    assert seen == [(1, None), (2, None), (3, Place("101")), (EXHAUSTED, Place("999"))]


def test_a_record_that_cannot_be_parsed_stays_the_next_one() -> None:
    delivery = ItemDelivery(fetched(batch_of(b"1", b"{", b"3")), JsonProcessor(), "items", deaggregated=False)
    assert delivery.take() == 1
    for _ in range(2):
        with pytest.raises(RecordError) as caught:
            delivery.take()
        assert (caught.value.record.data, caught.value.record.sequence_number) == (b"{", "101")
        assert delivery.acknowledged == Handed(Place("100"), 1)
    delivery.skip()
    assert take_all(delivery) == [3]
    assert delivery.acknowledged == Handed(Place("999"), 3)


@pytest.mark.parametrize("processor", [JsonProcessor(), JsonLineProcessor()], ids=["one item", "several"])
def test_a_batch_of_more_bytes_than_are_copied_at_a_time(processor: BaseAggregator) -> None:
    """The record that cannot be parsed is the last one of what was copied, or the first."""
    items = [f"{n:05}" + "x" * size for n, size in enumerate([993] * 200 + [2 * AHEAD_BYTES, 0, AHEAD_BYTES, 1])]
    data = [json.dumps(item).encode() for item in items]
    first_of_the_next = AHEAD_BYTES // len(data[0])
    for bad in (0, first_of_the_next - 1, first_of_the_next, 200, 201, len(items) - 1):
        batch = batch_of(*(b"{" if n == bad else each for n, each in enumerate(data)))
        delivery = ItemDelivery(fetched(batch), processor, "items", deaggregated=False)
        assert [delivery.take() for _ in range(bad)] == items[:bad]
        with pytest.raises(RecordError) as caught:
            delivery.take()
        assert caught.value.record.sequence_number == str(100 + bad)
        delivery.skip()
        assert take_all(delivery) == items[bad + 1 :]
        assert delivery.acknowledged == Handed(Place("999"), len(items))


def test_metadata() -> None:
    delivery = ItemDelivery(fetched(batch_of(b"1")), JsonProcessor(), "records", deaggregated=False)
    (record,) = take_all(delivery)
    assert record._asdict() == {
        "data": 1,
        "partition_key": "k0",
        "explicit_hash_key": None,
        "sequence_number": "100",
        "sub_sequence_number": None,
        "approximate_arrival_timestamp": None,
        "shard_id": "shardId-000000000000",
        "encryption_type": None,
        "millis_behind_latest": 7,
    }


def aggregates() -> RecordBatch:
    """A plain record, an aggregate of three, a plain record."""
    processor = KPLStringProcessor()
    for item in "abc":
        processor.add_item(item)
    return deaggregate(batch_of(b"plain", processor.get_items()[0].data, b"last")).batch


def test_positions_inside_of_an_aggregate() -> None:
    delivery = ItemDelivery(fetched(aggregates()), KPLStringProcessor(), "items", deaggregated=True)
    seen = [(delivery.take(), delivery.acknowledged and str(delivery.acknowledged.place)) for _ in range(6)]
    assert seen == [
        ("plain", None),
        ("a", "100"),
        ("b", "101/0"),
        ("c", "101/1"),
        ("last", "101"),
        (EXHAUSTED, "999"),
    ]


def test_user_data_that_looks_aggregated_is_not_opened_again() -> None:
    inner, outer = KPLStringProcessor(), KPLStringProcessor()
    inner.add_item("x")
    aggregate = inner.get_items()[0].data
    outer._open.add("a", aggregate)
    batch = deaggregate(batch_of(outer.get_items()[0].data)).batch

    class Raw(KPLStringProcessor):
        def deserialize(self, data: bytes) -> Any:
            return data

    assert take_all(ItemDelivery(fetched(batch), Raw(), "items", deaggregated=True)) == [aggregate]


def test_a_batch_is_acknowledged_as_a_whole() -> None:
    delivery = BatchDelivery(fetched(batch_of(b"1", b"2")))
    batch = delivery.take()
    assert isinstance(batch, RecordBatch)
    assert ([record.data for record in batch], batch.millis_behind_latest) == ([b"1", b"2"], 7)
    assert delivery.acknowledged is None
    assert delivery.take() is EXHAUSTED
    assert delivery.acknowledged == Handed(Place("999"), 2)


def test_a_batch_without_records_is_not_handed_out() -> None:
    for delivery in (
        BatchDelivery(fetched(batch_of())),
        ItemDelivery(fetched(batch_of()), StringProcessor(), "items", deaggregated=False),
    ):
        assert delivery.take() is EXHAUSTED
        assert delivery.acknowledged == Handed(Place("999"), 0)


# The queue.


@pytest.mark.parametrize(
    ("offset", "room", "end"), [(0, 1, 1), (0, 2, 4), (0, 3, 4), (1, 1, 4), (0, 4, 4), (4, 9, 5), (0, 0, 1), (0, 99, 5)]
)
def test_aggregates_are_not_cut(offset: int, room: int, end: int) -> None:
    assert whole_records(aggregates(), offset, room) == end


def put(queue: RecordQueue, sizes: Sequence[int]) -> None:
    for size in sizes:
        queue.put(fetched(batch_of(*[b"1"] * size)))


def test_room_in_the_queue() -> None:
    queue = RecordQueue(5)
    put(queue, [3])
    assert (queue.rows, queue.room) == (3, 2)
    put(queue, [4])
    assert (queue.rows, queue.room) == (7, 0)
    queue.take()
    assert (queue.rows, queue.room) == (4, 1)
    queue.take()
    assert (queue.rows, queue.room, queue.take()) == (0, 5, None)


def test_waiting_for_the_queue() -> None:
    async def main() -> None:
        queue = RecordQueue(1)
        await asyncio.wait_for(queue.wait_for_room(), 60)
        reader = asyncio.create_task(queue.wait_for_entries())
        await asyncio.sleep(0)
        assert not reader.done()
        put(queue, [1])
        await asyncio.wait_for(reader, 60)
        writer = asyncio.create_task(queue.wait_for_room())
        await asyncio.sleep(0)
        assert not writer.done()
        queue.take()
        await asyncio.wait_for(writer, 60)
        reader = asyncio.create_task(queue.wait_for_entries())
        await asyncio.sleep(0)
        queue.close()
        await asyncio.wait_for(reader, 60)

    asyncio.run(main())


class Putters:
    """Tasks that wait to put, by number; `served` in the order in which they were let in.

    Args:
        takes: how many rows each puts at once, when it is let in.
    """

    def __init__(self, queue: RecordQueue, count: int, *, takes: int = 0) -> None:
        self.queue = queue
        self.takes = takes
        self.served: list[int] = []
        self.tasks = [asyncio.create_task(self._put(number)) for number in range(count)]

    async def _put(self, number: int) -> None:
        await self.queue.wait_to_put()
        self.served.append(number)
        if self.takes:
            put(self.queue, [self.takes])

    async def settle(self) -> list[int]:
        for _ in range(20):
            await asyncio.sleep(0)
        return self.served


def test_who_waits_longest_puts_first() -> None:
    async def main() -> None:
        queue = RecordQueue(1)
        put(queue, [1])
        putters = Putters(queue, 4, takes=1)
        assert await putters.settle() == []
        for count in range(1, 5):
            queue.take()
            assert await putters.settle() == [*range(count)]

    asyncio.run(main())


def test_all_that_find_room_put() -> None:
    """Room for five rows, one each: a putter that leaves some wakes the next."""

    async def main() -> None:
        queue = RecordQueue(5)
        put(queue, [5])
        putters = Putters(queue, 7, takes=1)
        await putters.settle()
        queue.take()
        assert await putters.settle() == [*range(5)]

    asyncio.run(main())


def test_who_is_woken_in_vain_stays_the_first() -> None:
    async def main() -> None:
        queue = RecordQueue(1)
        put(queue, [1])
        putters = Putters(queue, 3, takes=1)
        await putters.settle()
        queue.take()  # wakes the first, and before it runs somebody else puts
        put(queue, [1])
        assert await putters.settle() == []
        for count in range(1, 4):
            queue.take()
            assert await putters.settle() == [*range(count)]

    asyncio.run(main())


@pytest.mark.parametrize("was_woken", [False, True])
def test_who_waits_no_more_passes_the_turn_on(was_woken: bool) -> None:
    async def main() -> None:
        queue = RecordQueue(1)
        put(queue, [1])
        putters = Putters(queue, 3, takes=1)
        await putters.settle()
        if was_woken:
            queue.take()
        putters.tasks[0].cancel()
        assert await putters.settle() == ([1] if was_woken else [])
        queue.take()
        assert await putters.settle() == ([1, 2] if was_woken else [1])

    asyncio.run(main())
