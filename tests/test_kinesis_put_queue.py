"""What a PutRecords call holds and what becomes of its answer, without time and network."""

import random
from collections import Counter
from typing import Any

import pytest
from fastkcl.kinesis import OutputItem, ShardMap
from fastkcl.kinesis.put_queue import PutLimits, PutQueue, Settled
from fastkcl.kinesis.shards import ShardRange
from hypothesis import given
from hypothesis import strategies as st

THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "too much"}
FAILED = {"ErrorCode": "InternalFailure", "ErrorMessage": ""}


def shard_map(count: int, first: int = 0) -> ShardMap:
    """Shards that divide all hash keys evenly, numbered from `first`."""
    bounds = [2**128 * index // count for index in range(count + 1)]
    return ShardMap(
        ShardRange(f"shard-{first + index}", bounds[index], bounds[index + 1] - 1, is_open=True)
        for index in range(count)
    )


def record(number: int, size: int = 1) -> OutputItem:
    return OutputItem(size, 1, b"%0*d" % (size, number), None)


def fill(queue: PutQueue, keys: Any, size: int = 1) -> None:
    for key in keys:
        queue.add(record(queue.added, size), str(key))


def numbers(call: Any) -> list[int]:
    return [pending.ordinal for pending in call]


def accept(queue: PutQueue, now: float) -> Settled:
    """All of the call is taken by the shards that were expected."""
    return queue.settle([{"ShardId": pending.lane.shard_id or "s"} for pending in queue._call], now)


def send(queue: PutQueue, now: float) -> list[int]:
    """A call, all of it taken."""
    call = numbers(queue.take(now))
    accept(queue, now)
    return call


# Calls.


def test_a_call_has_500_records_in_their_order() -> None:
    queue = PutQueue(shards=shard_map(4))
    fill(queue, range(1200))
    assert queue.is_full_call
    assert [send(queue, 0.0) for _ in range(3)] == [
        list(range(500)),
        list(range(500, 1000)),
        list(range(1000, 1200)),
    ]
    assert (len(queue), queue.added, list(queue)) == (0, 1200, [])
    assert not queue.take(0.0)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([99] * 25, [list(range(10)), list(range(10, 20)), list(range(20, 25))]),
        ([999, 1, 1], [[0], [1, 2]]),  # exactly as much as a call holds
        ([5000, 1, 5000], [[0], [1], [2]]),  # larger than a call: alone
        ([500, 600, 1], [[0], [1, 2]]),  # the third does not overtake the second
    ],
)
def test_a_call_stays_below_the_services_bytes(sizes: list[int], calls: list[list[int]]) -> None:
    queue = PutQueue(PutLimits(call_bytes=1000))
    for size in sizes:
        fill(queue, ["k"], size)
    assert queue.is_full_call
    assert [send(queue, 0.0) for _ in calls] == calls
    assert len(queue) == 0


def test_keys_count_by_their_bytes() -> None:
    queue = PutQueue(PutLimits(call_bytes=4))
    fill(queue, ["ä", "ä"], 1)
    assert queue.is_full_call
    assert send(queue, 0.0) == [0]
    assert not queue.is_full_call


def test_what_is_under_way_is_still_here() -> None:
    queue = PutQueue(PutLimits(call_records=2), shard_map(2))
    fill(queue, range(5))
    assert queue.has_any_of(1)
    assert not queue.has_any_of(0)
    queue.take(0.0)
    assert (len(queue), numbers(queue), queue.has_any_of(1)) == (5, [0, 1, 2, 3, 4], True)
    accept(queue, 0.0)
    assert (len(queue), queue.has_any_of(2), queue.has_any_of(3)) == (3, False, True)
    assert not queue.is_full_call or len(queue) >= 2


# Refusals.


def test_what_was_refused_goes_first_and_after_a_pause() -> None:
    queue = PutQueue(PutLimits(call_records=4))
    fill(queue, range(6))
    queue.take(0.0)
    settled = queue.settle([{"ShardId": "s"}, THROTTLED, {"ShardId": "s"}, FAILED], 10.0)
    assert [item.data for item in settled.accepted] == [b"0", b"2"]
    assert settled.bytes == 4
    assert settled.refused == Counter({THROTTLED["ErrorCode"]: 1, "InternalFailure": 1})
    assert not settled.moved
    assert not queue.take(10.0)
    assert queue.due(10.0) == 10.25
    assert numbers(queue.take(10.25)) == [1, 3, 4, 5]


def test_pauses_grow_while_nothing_is_taken() -> None:
    queue = PutQueue()
    fill(queue, range(2))
    now, pauses = 0.0, []
    for outcomes in ([THROTTLED, THROTTLED],) * 6 + ([{"ShardId": "s"}, THROTTLED],):
        queue.take(now)
        queue.settle(outcomes, now)
        due = queue.due(now)
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 0.25]
    assert send(queue, now) == [1]


def test_a_shard_that_refuses_stops_no_other() -> None:
    shards = shard_map(2)
    mine, other = "shard-0", "shard-1"
    keys = [str(number) for number in range(20)]
    queue = PutQueue(PutLimits(call_records=10), shards)
    fill(queue, keys)
    call = list(queue.take(0.0))
    refused = [p.ordinal for p in call if p.lane.shard_id == mine]
    assert 0 < len(refused) < 10
    queue.settle([THROTTLED if p.lane.shard_id == mine else {"ShardId": other} for p in call], 0.0)
    later = numbers(queue.take(0.0))
    assert later == [n for n in range(10, 20) if shards.owner(keys[n]) == other]
    accept(queue, 0.0)
    assert numbers(queue.take(0.25)) == refused + [n for n in range(10, 20) if shards.owner(keys[n]) == mine]


def test_a_call_that_failed_goes_again_as_it_was() -> None:
    queue = PutQueue(PutLimits(call_records=3), shard_map(2))
    fill(queue, range(5))
    assert numbers(queue.take(0.0)) == [0, 1, 2]
    queue.put_back(7.0)
    assert (len(queue), numbers(queue)) == (5, [0, 1, 2, 3, 4])
    assert queue.due(0.0) is not None
    assert numbers(queue.take(7.0)) == [0, 1, 2]
    queue.put_back()
    assert numbers(queue.take(7.0)) == [0, 1, 2]


def test_an_answer_to_another_call() -> None:
    queue = PutQueue()
    fill(queue, range(2))
    queue.take(0.0)
    with pytest.raises(ValueError, match="an answer of 1 outcomes to a call of 2 records"):
        queue.settle([{"ShardId": "s"}], 0.0)
    queue.put_back()
    assert numbers(queue.take(0.0)) == [0, 1]


def test_an_ordered_call_has_each_key_once() -> None:
    queue = PutQueue(PutLimits(ordered=True))
    fill(queue, ["a", "b", "a", "c", "b"])
    assert [send(queue, 0.0), send(queue, 0.0)] == [[0, 1], [2, 3, 4]]


# Limits of shards.


@pytest.mark.parametrize(
    ("limits", "size", "expected"),
    [
        ({"shard_records": 3.0}, 1, [(0.0, 3), (1.0, 3), (2.0, 3), (3.0, 1)]),
        ({"shard_bytes": 10.0}, 3, [(0.0, 2), (1.0, 2), (2.0, 2), (3.0, 2), (4.0, 2)]),  # a key is a byte
        ({"shard_records": 0.5}, 1, [(0.0, 1), (2.0, 1), (4.0, 1)]),
        ({"shard_bytes": 10.0}, 29, [(0.0, 1), (3.0, 1), (6.0, 1)]),  # three seconds' worth at once
    ],
)
def test_a_shards_second(limits: dict[str, float], size: int, expected: list[tuple[float, int]]) -> None:
    queue = PutQueue(PutLimits(**limits))  # type: ignore[arg-type]
    fill(queue, ["k"] * sum(count for _, count in expected), size)
    seen, now = [], queue.due(0.0)
    while now is not None:
        seen.append((now, len(send(queue, now))))
        now = queue.due(now)
    assert seen == expected


def test_each_shard_has_its_own_second() -> None:
    queue = PutQueue(PutLimits(shard_records=2.0), shard_map(2))
    owners = [shard_map(2).owner(str(number)) for number in range(30)]
    fill(queue, range(30))
    first = send(queue, 0.0)
    assert Counter(owners[number] for number in first) == {"shard-0": 2, "shard-1": 2}
    for shard in ("shard-0", "shard-1"):
        of_shard = [number for number in range(30) if owners[number] == shard]
        assert [number for number in first if owners[number] == shard] == of_shard[:2]


@given(
    limit=st.integers(1, 20),
    steps=st.lists(st.tuples(st.floats(0.0, 0.7), st.integers(0, 30)), max_size=30),
)
def test_no_second_has_more_than_the_limit(limit: int, steps: list[tuple[float, int]]) -> None:
    queue = PutQueue(PutLimits(shard_records=limit))
    now, sent = 0.0, []
    for pause, count in steps:
        now += pause
        fill(queue, ["k"] * count)
        sent += [now] * len(send(queue, now))
        due = queue.due(now)
        assert due is None or due > now
    for moment in sent:
        assert sum(moment - 1 < other <= moment for other in sent) <= limit


# Resharding.


def test_after_a_reshard_all_line_up_again() -> None:
    queue = PutQueue(PutLimits(call_records=4), shard_map(2))
    keys = [str(number % 7) for number in range(20)]
    fill(queue, keys)
    call = list(queue.take(0.0))
    settled = queue.settle([{"ShardId": "shard-9"}, *[THROTTLED] * 3], 0.0)
    assert settled.moved
    assert len(call) == 4
    after = shard_map(3, first=8)
    queue.reshard(after)
    assert numbers(queue) == list(range(1, 20))
    assert {pending.lane.shard_id for pending in queue} == {after.owner(key) for key in keys}
    everything: list[int] = []
    while len(queue):
        everything += send(queue, 1.0)
    assert everything == list(range(1, 20))
    assert not queue.has_any_of(20)


def test_without_a_map_nothing_moves() -> None:
    queue = PutQueue()
    fill(queue, range(2))
    queue.take(0.0)
    assert not queue.settle([{"ShardId": "a"}, {"ShardId": "b"}], 0.0).moved


# Everything together.


@given(seed=st.integers(0, 2**32), ordered=st.booleans(), mapped=st.booleans())
def test_each_record_is_taken_once_and_in_its_keys_order(seed: int, ordered: bool, mapped: bool) -> None:
    rng = random.Random(seed)
    limits = PutLimits(
        call_records=rng.randint(1, 9), call_bytes=rng.randint(10, 60), shard_records=20, ordered=ordered
    )
    queue = PutQueue(limits, shard_map(rng.randint(1, 4)) if mapped else None)
    keys: list[str] = []
    taken: list[int] = []
    now = 0.0
    while queue.added < 60 or len(queue):
        if queue.added < 60:
            more = [f"k{rng.randint(0, 6)}" for _ in range(rng.randint(0, 10))]
            keys += more
            fill(queue, more, rng.randint(1, 30))
        now = max(now, queue.due(now) or now)
        call = list(queue.take(now))
        assert len(call) <= limits.call_records
        assert len(call) == 1 or sum(pending.size for pending in call) <= limits.call_bytes
        assert numbers(call) == sorted(numbers(call))
        if call and rng.random() < 0.1:
            queue.put_back()
        elif call:
            # In a call, some are refused from a record on: so no record of a key overtakes an earlier one of it.
            refused_from = {lane: rng.choice([0, 2, 99, 99]) for lane in {pending.lane for pending in call}}
            seen: Counter[Any] = Counter()
            outcomes: list[dict[str, str]] = []
            for pending in call:
                refuse = rng.random() < 0.3 if ordered else seen[pending.lane] >= refused_from[pending.lane]
                seen[pending.lane] += 1
                outcomes.append(THROTTLED if refuse else {"ShardId": str(pending.lane.shard_id)})
                taken += [] if refuse else [pending.ordinal]
            queue.settle(outcomes, now)
        if mapped and rng.random() < 0.05:
            queue.reshard(shard_map(rng.randint(1, 4), first=rng.randint(0, 9)))
    assert sorted(taken) == list(range(queue.added))
    for key in set(keys):
        of_key = [number for number in taken if keys[number] == key]
        assert of_key == sorted(of_key)
