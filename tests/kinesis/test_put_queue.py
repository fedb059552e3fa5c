"""The records of a PutRecords call and the outcomes of its answer, without time and network."""

import random
from collections import Counter
from typing import Any

import pytest
from fastkcl.kinesis import OutputItem, ShardMap
from fastkcl.kinesis.write.put_queue import PutLimits, PutQueue, Settled
from fastkcl.shard import ShardRange
from hypothesis import given
from hypothesis import strategies as st

THROTTLED = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "too much"}
FAILED = {"ErrorCode": "InternalFailure", "ErrorMessage": ""}


def ranges(count: int, first: int = 0) -> list[ShardRange]:
    """Shards that divide all hash keys evenly, numbered from `first`."""
    bounds = [2**128 * index // count for index in range(count + 1)]
    return [
        ShardRange(f"shard-{first + index}", bounds[index], bounds[index + 1] - 1, is_open=True)
        for index in range(count)
    ]


def shard_map(count: int, first: int = 0) -> ShardMap:
    return ShardMap(ranges(count, first))


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
    steps=st.lists(st.tuples(st.integers(0, 45), st.integers(0, 30)), max_size=30),
)
def test_no_second_has_more_than_the_limit(limit: int, steps: list[tuple[int, int]]) -> None:
    queue = PutQueue(PutLimits(shard_records=limit))
    now, sent = 0.0, []
    for pause, count in steps:
        now += pause / 64  # which floats can add exactly
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


# Aggregates.


def pack(queue: PutQueue, numbers: range, keys: int = 9, size: int = 1) -> None:
    for number in numbers:
        queue.add(record(number, size), str(number % keys))


def users(pendings: Any) -> list[bytes]:
    return [user.data for pending in pendings for user in pending.users]


def test_records_are_packed_for_each_shard() -> None:
    shards = shard_map(3)
    queue = PutQueue(PutLimits(aggregate=True), shards)
    pack(queue, range(3000), 3000, 100)
    assert 0 < queue.added < 30  # 50 kB each
    queue.close_aggregates()
    queue.close_aggregates()
    call = list(queue.take(0.0))
    assert sorted(users(call)) == sorted(b"%0*d" % (100, number) for number in range(3000))
    for pending in call:
        assert {shards.owner(user.partition_key) for user in pending.users} == {pending.lane.shard_id}
        assert pending.item.n == len(pending.users)
        assert pending.size <= 51_200
        assert users([pending]) == sorted(users([pending]))
    settled = accept(queue, 0.0)
    assert sum(item.n for item in settled.accepted) == 3000


@pytest.mark.parametrize("after", [2, 3])
def test_an_aggregate_that_another_shard_has_taken_is_in_doubt_until_the_shards_are_known(after: int) -> None:
    queue = PutQueue(PutLimits(aggregate=True), shard_map(1))
    pack(queue, range(30))
    queue.close_aggregates()
    mark = queue.added
    pack(queue, range(30, 50))
    queue.close_aggregates()
    pack(queue, range(50, 60))  # still open
    assert [len(pending.users) for pending in queue.take(0.0)] == [30, 20]
    settled = queue.settle([{"ShardId": "new-0"}, THROTTLED], 0.0)
    assert (settled.accepted, settled.moved, queue.is_in_doubt, len(queue)) == ([], True, True, 2)
    assert queue.has_any_of(mark)
    now = shard_map(after, first=5)
    assert queue.reshard(now).accepted == []
    assert not queue.is_in_doubt
    assert queue.has_any_of(mark)
    queue.close_aggregates()
    call = list(queue.take(9.0))
    assert sorted(users(call)) == sorted(b"%d" % number for number in range(60))
    for pending in call:
        assert {now.owner(user.partition_key) for user in pending.users} == {pending.lane.shard_id}
    for key in map(str, range(9)):
        of_key = [int(user.data) for pending in call for user in pending.users if user.partition_key == key]
        assert of_key == sorted(of_key)
    accept(queue, 9.0)
    assert (len(queue), queue.has_any_of(queue.added)) == (0, False)


def test_an_aggregate_whose_new_shard_owns_all_of_it_is_taken() -> None:
    queue = PutQueue(PutLimits(aggregate=True), shard_map(1))
    fill(queue, ["a"] * 5)
    queue.close_aggregates()
    queue.take(0.0)
    now = shard_map(4, first=1)
    assert queue.settle([{"ShardId": now.owner("a")}], 0.0).accepted == []
    (item,) = queue.reshard(now).accepted
    assert (item.n, len(queue), queue.due(0.0)) == (5, 0, None)


def test_an_ordered_call_has_each_key_in_one_aggregate() -> None:
    queue = PutQueue(PutLimits(aggregate=True, ordered=True), shard_map(1))
    for keys in ("ab", "bc", "d"):
        fill(queue, keys)
        queue.close_aggregates()
    assert [send(queue, 0.0), send(queue, 0.0)] == [[0], [1, 2]]


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


@given(seed=st.integers(0, 2**32), ordered=st.booleans())
def test_readers_keep_each_packed_record_once_and_if_ordered_in_its_keys_order(seed: int, ordered: bool) -> None:
    rng = random.Random(seed)
    listed = ranges(rng.randint(1, 4))
    service = ShardMap(listed)
    number, now = 0, 0.0
    queue = PutQueue(PutLimits(call_records=rng.randint(1, 5), aggregate=True, ordered=ordered), service)
    kept: dict[str, list[int]] = {}
    while number < 200 or len(queue):
        if number < 200:
            more = rng.randint(0, 40)
            pack(queue, range(number, number + more), size=rng.choice([1, 100, 4000]))
            number += more
        if rng.random() < 0.5 or number >= 200:
            queue.close_aggregates()
        if rng.random() < 0.2:
            listed = [shard._replace(is_open=False) for shard in listed]  # which the service still lists
            listed += ranges(rng.randint(1, 4), first=len(listed))
            service = ShardMap(listed)
        if queue.is_in_doubt:
            queue.reshard(service)
        now = max(now, queue.due(now) or now)
        outcomes = []
        for pending in queue.take(now):
            if rng.random() < 0.1:
                outcomes.append(THROTTLED)
                continue
            shard_id = service.owner(pending.partition_key)
            outcomes.append({"ShardId": shard_id})
            if all(service.owns(shard_id, user.partition_key) for user in pending.users):
                for user in pending.users:
                    kept.setdefault(user.partition_key, []).append(int(user.data))
        queue.settle(outcomes, now)
    for key in range(9):
        values = kept.get(str(key), [])
        assert (values if ordered else sorted(values)) == list(range(key, number, 9))
