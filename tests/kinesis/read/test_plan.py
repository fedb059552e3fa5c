"""Plans: when and where a batch may end, and the ends of a query."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from fastkcl.kinesis.exceptions import AnotherStream, DataLossError, StreamDoesNotExist
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import (
    END,
    TRIM,
    Call,
    CallError,
    Described,
    DescribeStream,
    GetRecords,
    GetShardIterator,
    ListShards,
    Offset,
    OffsetError,
    Plan,
    Planner,
    PlanOptions,
    Position,
    StreamOffset,
)
from simulated_stream import Faults, ServiceError, SimulatedStream

HOUR = 3_600_000
A, B, C = (f"shardId-000{index:09d}" for index in range(3))


class Driver:
    """A planner over a stream without faults of its own; `fault` may fail a call, or leave it without an answer."""

    def __init__(self, shards: int = 1, *, retention: int = 24 * HOUR, **options: object) -> None:
        self.stream = SimulatedStream(Random(0), shards, retention, Faults())
        self.stream.created -= self.stream.created % 1000
        self.options = options
        self.offset = Offset()
        self.fault: Callable[[Call], Failure | None] = lambda call: None
        self.hangs: Callable[[Call], bool] = lambda call: False
        self.called: list[Call] = []
        self.restart()

    def restart(self) -> Driver:
        options: dict[str, object] = {"streams": ("orders",), "initial": TRIM, **self.options}
        self.planner = Planner(PlanOptions(**options))  # type: ignore[arg-type]
        return self

    @property
    def now(self) -> int:
        return self.stream.time - 1_000_000

    def put(self, *keys: int, every: int = 0) -> Driver:
        for key in keys:
            self.stream.put([key])
            self.stream.time += every
        return self

    def plan(self, *, everything: bool = False) -> Plan:
        """Plan a batch, and go on after it."""
        self.called = []
        self.planner.begin(self.offset, self.now, everything=everything)
        while pause := self.planner.wait(self.now):
            calls = [call for call in self.planner.calls(self.now, 32) if not self.hangs(call)]
            self.called += calls
            for call in calls:
                self._answer(call)
            self.stream.time += 0 if calls else pause
        plan = self.planner.plan(self.now)
        self.offset = Offset.parse(str(plan.offset))
        return plan

    def plan_often(self, times: int) -> None:
        for _ in range(times):
            self.plan()
            self.stream.time += 1_000

    def _answer(self, call: Call) -> None:
        failure = self.fault(call)
        try:
            if failure is not None:
                raise ServiceError(failure, failure.value)
            answer = self.stream.answer(call)
        except ServiceError as error:
            self.planner.failed(call, error.failure, error, self.now)
        else:
            self.planner.answered(call, answer, self.now, self.stream.time)  # type: ignore[arg-type]

    def shards(self) -> dict[str, str]:
        return {key: position.text for key, position in self.offset.streams["orders"].shards.items()}

    def first(self) -> dict[str, str]:
        return dict(self.offset.streams["orders"].first)

    def numbers(self, shard_id: str = A) -> list[str]:
        return [str(number) for number in self.stream.shards[shard_id].numbers]


def test_a_batch_is_the_closed_ranges_of_its_shards() -> None:
    driver = Driver().put(1, 2, 3)
    plan = driver.plan()
    numbers = driver.numbers()
    assert (driver.first(), driver.shards()) == ({A: numbers[0]}, {A: numbers[2]})
    assert [(part.shard_id, len(part.head or ()), part.range) for part in plan.parts] == [(A, 3, None)]
    driver.stream.time += 500
    driver.put(4).plan()
    assert (driver.first(), driver.shards()) == ({A: driver.numbers()[3]}, {A: driver.numbers()[3]})


def test_the_very_start_comes_back_if_nothing_is_new() -> None:
    driver = Driver()
    driver.plan()
    before, began = driver.offset, driver.now
    assert str(driver.plan().offset) == str(before)
    assert driver.now - began >= 200, "an idle query waits"


def test_a_quiet_query_has_a_new_offset_each_hour() -> None:
    driver = Driver()
    driver.plan()
    for _ in range(2):
        before = driver.offset
        driver.stream.time += HOUR - 60_000
        assert str(driver.plan().offset) == str(before)
        driver.stream.time += 60_000
        plan = driver.plan()
        assert plan.offset.at == driver.stream.time
        assert not plan.parts


def test_a_shard_that_hangs_delays_no_other() -> None:
    driver = Driver(2).put(*range(40))
    driver.hangs = lambda call: getattr(call, "shard_id", "") == A
    began = driver.now
    plan = driver.plan()
    assert [part.shard_id for part in plan.parts] == [B]
    assert driver.now - began <= 300
    driver.hangs = lambda call: False
    driver.restart().plan()
    assert driver.first().keys() == {A}


def test_without_news_a_plan_takes_a_second_at_most() -> None:
    driver = Driver()
    driver.plan()
    driver.hangs = lambda call: isinstance(call, GetRecords)
    driver.restart()
    began, before = driver.now, driver.offset
    assert str(driver.plan().offset) == str(before)
    assert driver.now - began == 1_000


def test_what_hung_counts_as_lag() -> None:
    driver = Driver(2)
    driver.plan()
    driver.hangs = lambda call: getattr(call, "shard_id", "") == A
    driver.restart()
    driver.stream.time += HOUR
    driver.put(*range(40))
    driver.plan()
    assert driver.offset.streams["orders"].lag[A] >= HOUR


# Where it begins.


def test_the_latest_record_is_a_time() -> None:
    driver = Driver(2, initial=None)
    driver.put(*range(30))
    driver.stream.split(A)
    driver.stream.time += 5_000
    driver.plan()
    time = f"T{driver.stream.time}"
    assert set(driver.shards().values()) == {time}
    assert A not in driver.shards()
    driver.stream.time += 1_000
    driver.put(*range(30)).plan()
    assert sum(len(part.head or ()) for part in [*driver.plan().parts]) == 0
    assert len(driver.first()) >= 1


def test_a_query_begins_at_a_time() -> None:
    driver = Driver()
    driver.put(1, 2, 3, every=10_000)
    driver.options["initial"] = Position.since(driver.stream.shards[A].arrivals[1])
    driver.restart().plan()
    assert driver.first() == {A: driver.numbers()[1]}


# Generations.


def test_children_come_in_a_later_batch_than_their_parents_records() -> None:
    driver = Driver().put(1, 2)
    driver.stream.split(A)
    driver.put(*range(20)).plan()
    assert (driver.shards(), set(driver.first())) == ({A: "END"}, {A})
    driver.plan()
    assert driver.shards().keys() == driver.first().keys() == {B, C}


def test_children_of_an_empty_parent_come_at_once() -> None:
    driver = Driver()
    driver.stream.split(A)
    driver.put(*range(20)).plan()
    assert driver.first().keys() <= {B, C}
    assert driver.shards().keys() == {B, C}


def test_a_child_of_unread_parents_begins_at_their_time() -> None:
    driver = Driver(initial=None)
    driver.plan()
    time = driver.shards()[A]
    driver.stream.split(A)
    driver.stream.time += 60_000
    driver.restart().plan()
    assert driver.shards() == {B: time, C: time}


def test_a_thousand_empty_closed_shards_are_one_batch() -> None:
    driver = Driver()
    for index in range(100):
        driver.stream._close(list(driver.stream.shards)[index])
        driver.stream._add((0, 2**128 - 1), (list(driver.stream.shards)[index],))
    batches = 0
    while driver.shards().get(list(driver.stream.shards)[-1]) is None if driver.offset.streams else True:
        driver.plan()
        batches += 1
    assert batches <= 100
    assert len(driver.shards()) == 1


# What is lost.


def test_a_stop_over_the_retention_is_an_error_that_says_what_to_do() -> None:
    driver = Driver().put(1)
    driver.plan()
    number = driver.numbers()[0]
    driver.stream.time += 30 * HOUR
    driver.put(2).stream.trim()
    with pytest.raises(
        DataLossError,
        match=rf"orders/{A}: record {number}, the last one read, is gone \(retention 24 h; last batch planned "
        rf"2027-01-15T08:00:00Z; .*records after it may be missing. failOnDataLoss=false goes on",
    ) as caught:
        driver.restart().plan()
    assert caught.value.oldest == str(driver.stream.shards[A].numbers[1])
    driver.options["fail_on_data_loss"] = False
    driver.restart().plan()
    assert driver.first() == {A: str(driver.stream.shards[A].numbers[1])}
    assert "may be missing" in driver.planner.warnings()[0]


def test_a_quiet_shard_whose_last_record_is_trimmed_has_lost_nothing() -> None:
    driver = Driver().put(1)
    for _ in range(60):
        driver.plan()
        driver.stream.time += HOUR
        driver.stream.trim()
    driver.put(2).plan()
    assert driver.first() == {A: driver.numbers()[1]}
    assert "nothing after it is missing" in driver.planner.warnings()[0]


def test_a_shard_that_began_before_a_long_stop_may_have_lost_records() -> None:
    driver = Driver()
    driver.plan()
    driver.stream.time += 30 * HOUR
    driver.put(1)
    with pytest.raises(DataLossError, match="nothing was read since TRIM"):
        driver.restart().plan()


@pytest.mark.parametrize("fails", [True, False])
def test_a_shard_that_vanished_is_an_error_or_ends(fails: bool) -> None:
    driver = Driver(fail_on_data_loss=fails).put(1)
    driver.plan()
    driver.stream.split(A)
    del driver.stream.shards[A]
    driver.stream.time += 60_000
    driver.put(*range(20))
    driver.restart()
    if fails:
        with pytest.raises(DataLossError, match=f"orders/{A}: the shard is gone .*read up to"):
            driver.plan_often(20)
    else:
        driver.plan_often(20)
        assert driver.shards().keys() == {B, C}
        assert "the shard is gone" in "".join(driver.planner.warnings())


def test_a_stream_made_again_is_an_error() -> None:
    driver = Driver().put(1)
    driver.plan()
    driver.stream.created += 86_400
    with pytest.raises(AnotherStream, match="created .* the checkpoint is of one created .*new checkpointLocation"):
        driver.restart().plan()


def test_a_stream_of_the_checkpoint_has_to_be_named() -> None:
    driver = Driver()
    driver.offset = Offset(1, {"clicks": StreamOffset()})
    with pytest.raises(OffsetError, match="clicks, and the options do not"):
        driver.plan()


# What fails.


@pytest.mark.parametrize(
    ("operation", "failure", "error", "message"),
    [
        (ListShards, Failure.DENIED, CallError, r"kinesis:ListShards on orders is denied \(denied\)"),
        (ListShards, Failure.NOT_FOUND, StreamDoesNotExist, "no stream orders"),
        (GetShardIterator, Failure.DENIED, CallError, "kinesis:GetShardIterator on orders"),
        (GetRecords, Failure.DENIED, CallError, "kinesis:GetRecords on orders"),
        (GetRecords, Failure.OTHER, CallError, "kinesis:GetRecords on orders"),
        (GetRecords, Failure.UNAVAILABLE, ConnectionError, "so for 6.. s, and maxOutage is 600 s"),
        (ListShards, Failure.UNAVAILABLE, ConnectionError, "so for 6.. s, and maxOutage is 600 s"),
    ],
)
def test_what_no_repetition_mends_is_an_error(
    operation: type, failure: Failure, error: type[Exception], message: str
) -> None:
    driver = Driver().put(1)
    driver.fault = lambda call: failure if isinstance(call, operation) else None
    with pytest.raises(error, match=message):
        driver.plan_often(2_000)


def test_failures_of_triggers_that_are_far_apart_are_no_outage() -> None:
    driver = Driver().put(1)
    failed: set[int] = set()

    def fault(call: Call) -> Failure | None:
        if not isinstance(call, GetRecords) or len(failed) > 5 or driver.stream.time in failed:
            return None
        failed.add(driver.stream.time)
        return Failure.UNAVAILABLE

    driver.fault = fault
    for _ in range(8):
        driver.plan()
        driver.stream.time += HOUR
    assert len(failed) > 5
    assert driver.shards()[A] == driver.numbers()[-1]


def test_records_that_came_and_went_while_the_process_slept_are_lost() -> None:
    driver = Driver(retention=HOUR)
    driver.plan_often(3)
    assert driver.shards()[A] == "TRIM"
    driver.put(1)
    driver.stream.time += 2 * HOUR
    driver.stream.trim()
    driver.put(2)
    with pytest.raises(DataLossError, match=f"orders/{A}: nothing was read since TRIM"):
        driver.plan_often(10)


@pytest.mark.parametrize("operation", [ListShards, DescribeStream, GetShardIterator, GetRecords])
@pytest.mark.parametrize("failure", [Failure.THROTTLED, Failure.UNAVAILABLE])
def test_throttling_and_outages_are_waited_for(operation: type, failure: Failure) -> None:
    driver = Driver().put(1)
    failures = 20

    def fault(call: Call) -> Failure | None:
        nonlocal failures
        failures -= isinstance(call, operation)
        return failure if isinstance(call, operation) and failures >= 0 else None

    driver.fault = fault
    while not (driver.offset.streams and driver.first()):
        driver.plan()
        driver.stream.time += 500
    assert driver.first() == {A: driver.numbers()[0]}


def test_the_time_between_triggers_is_no_outage() -> None:
    driver = Driver(2).put(*range(10))
    driver.plan()
    driver.fault = lambda call: (
        Failure.UNAVAILABLE if isinstance(call, GetRecords | GetShardIterator) and call.shard_id == A else None
    )
    for _ in range(3):
        driver.stream.time += HOUR // 2
        driver.put(*range(10)).plan()
    driver.fault = lambda call: None
    driver.plan_often(3)
    assert driver.shards()[A] == driver.numbers()[-1]


def test_without_leave_to_describe_the_retention_is_a_day() -> None:
    driver = Driver().put(1)
    driver.fault = lambda call: Failure.DENIED if isinstance(call, DescribeStream) else None
    driver.plan()
    assert driver.offset.streams["orders"].created is None
    assert "retention is taken as 24 h" in driver.planner.warnings()[0]


def test_an_answer_that_nobody_waits_for_is_left_out() -> None:
    driver = Driver().put(1)
    driver.planner.begin(driver.offset, driver.now)
    (first, *_) = driver.planner.calls(driver.now, 32)
    driver.restart().plan()
    before = str(driver.offset)
    driver.planner.answered(first, Described(1, 1), driver.now, driver.stream.time)
    assert str(driver.plan().offset) == before


# Limits.


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"max_records": 4}, 4),
        ({"max_records": 1}, 1),
        ({"max_bytes": 400}, 4),
        ({"max_records": 50}, 50),
        ({"max_shard_records": 3}, 3),
    ],
)
def test_a_batch_is_limited(options: dict[str, int], most: int) -> None:
    driver = Driver(**options).put(*range(100), every=1)
    taken, total = 0, 0
    while total < 100:
        plan = driver.plan()
        end, numbers = driver.shards()[A], driver.numbers()
        taken = numbers.index(end) + 1 - total
        assert 0 <= taken <= most + 1
        total += taken
        driver.stream.time += 500
        assert plan.offset == driver.offset


def test_few_records_of_many_shards_take_turns() -> None:
    driver = Driver(4, max_records=2).put(*range(100))
    seen: set[str] = set()
    for _ in range(3):
        plan = driver.plan()
        assert sum(len(part.head or ()) for part in plan.parts) <= 2
        seen |= driver.first().keys()
    assert len(seen) >= 2


def test_a_backlog_comes_in_slices_of_time() -> None:
    driver = Driver(max_slice=60_000, inline_bytes=3_000)
    driver.put(*range(600), every=1_000)
    driver.stream.time += 60_000
    batches = 0
    while driver.shards().get(A) != driver.numbers()[-1] if driver.offset.streams else True:
        driver.plan()
        batches += 1
        driver.stream.time += 2_000
    assert 9 <= batches <= 12


@pytest.mark.parametrize("inline_bytes", [0, 200, 8 << 20])
def test_a_quiet_backlog_comes_in_few_batches(inline_bytes: int) -> None:
    driver = Driver(inline_bytes=inline_bytes)
    driver.put(*range(5_000), every=50)
    driver.stream.time += 3 * HOUR
    batches = 0
    while driver.shards().get(A) != driver.numbers()[-1] if driver.offset.streams else True:
        driver.plan()
        batches += 1
        driver.stream.time += 2_000
    assert batches <= 4


@pytest.mark.parametrize(("inline_bytes", "inline"), [(0, 0), (150, 1), (8 << 20, 3)])
def test_small_heads_travel_and_large_ones_are_read_by_range(inline_bytes: int, inline: int) -> None:
    driver = Driver(3)
    driver.put(*range(30)).plan()
    driver.options["inline_bytes"] = inline_bytes
    driver.offset = Offset()
    plan = driver.restart().plan()
    heads = [part for part in plan.parts if part.head is not None]
    assert sum(part.head.size for part in heads if part.head) <= inline_bytes
    assert len(heads) == inline
    assert all(part.range is not None for part in plan.parts if part.head is None)


def test_a_thousand_shards_take_two_calls_each() -> None:
    driver = Driver(1_000, max_slice=300_000)
    driver.put(*range(2_000))
    driver.stream.time += 10_000
    driver.plan()
    while driver.stream.time and len(driver.shards()) < 1_000:
        driver.plan()
    counts = driver.stream.calls
    assert counts["GetRecords"] <= 2_000
    assert counts["GetShardIterator"] <= 2_000
    assert counts["ListShards"] == 1


def test_first_answers_are_bounded_together() -> None:
    driver = Driver(32)
    driver.planner.begin(Offset(), driver.now)
    for _ in range(2):
        for call in driver.planner.calls(driver.now, 32):
            driver._answer(call)
    reads = driver.planner.calls(driver.now, 32)
    assert {type(call) for call in reads} == {GetRecords}
    assert len(reads) == 7, "10 MiB each, until a record is seen"
    assert driver.planner.wait(driver.now) > 1, "nothing can be called before an answer"
    driver.put(*range(100))
    for call in reads:
        driver._answer(call)
    assert len(driver.planner.calls(driver.now, 32)) == 25


def test_large_heads_are_not_kept() -> None:
    driver = Driver(8, inline_bytes=300).put(*range(64))
    driver.planner.begin(Offset(), driver.now)
    for _ in range(20):
        for call in driver.planner.calls(driver.now, 32):
            driver._answer(call)
    looks = driver.planner.streams["orders"].looks.values()
    kept = sum(sum(look.head.records.sizes) for look in looks if look.head and look.head.records.content is not None)
    assert 0 < kept <= 300
    plan = driver.planner.plan(driver.now)
    assert len(plan.parts) == 8
    assert sum(part.head.size for part in plan.parts if part.head) <= 300
    ranged = [part for part in plan.parts if part.head is None]
    assert ranged
    for part in ranged:
        assert part.range is not None
        assert part.range.first == plan.offset.streams["orders"].first[part.shard_id]


def test_busy_threads_are_waited_for() -> None:
    driver = Driver(8)
    driver.plan()
    driver.stream.time += 1_000
    driver.planner.begin(driver.offset, driver.now)
    calls = driver.planner.calls(driver.now, 3)
    assert len(calls) == 3
    assert driver.planner.wait(driver.now) > 100
    driver._answer(calls[0])
    assert len(driver.planner.calls(driver.now, 3)) == 1


def test_options_that_read_nothing_are_refused() -> None:
    for wrong in (
        {"streams": ()},
        {"streams": ("a", "a")},
        {"max_records": 0},
        {"max_shard_records": 0},
        {"max_bytes": 0},
        {"max_slice": 0},
        {"inline_bytes": -1},
        {"min_fetch_period": 100},
        {"initial": END},
    ):
        with pytest.raises(ValueError, match="must be|named once|cannot begin"):
            PlanOptions(**{"streams": ("orders",), **wrong})  # type: ignore[arg-type]
