"""The bytes that shards share: who is let in, when, and how many records a call asks for."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from checkpoint_helpers import awaited
from fastkcl.kinesis.read.budget import SMALLEST_RESERVATION, ByteBudget, CallPlan, CallSizes, Reservation


class Asking:
    """Somebody who asks for bytes, and may have to wait."""

    def __init__(self, asked: Coroutine[Any, Any, Reservation | None]) -> None:
        self.task = asyncio.ensure_future(asked)

    @property
    def waits(self) -> bool:
        return not self.task.done()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@awaited
async def test_room_is_given_in_order() -> None:
    budget = ByteBudget(10)
    first = await budget.reserve(6)
    large, small = Asking(budget.reserve(7)), Asking(budget.reserve(1))
    await settle()
    assert (large.waits, small.waits, budget.used) == (True, True, 6)  # who asks for little does not pass the other
    first.settle(3)
    await settle()
    assert (large.waits, small.waits, budget.used) == (False, True, 10)
    first.release()
    await settle()
    assert (small.waits, budget.used) == (False, 8)


@awaited
async def test_more_than_there_is_comes_alone() -> None:
    budget = ByteBudget(10)
    first = await budget.reserve(1)
    large, after = Asking(budget.reserve(100)), Asking(budget.reserve(1))
    await settle()
    assert large.waits
    first.release()
    await settle()
    assert (large.waits, after.waits, budget.used) == (False, True, 100)
    large.task.result().release()
    await settle()
    assert (after.waits, budget.used) == (False, 1)


@awaited
async def test_who_holds_some_comes_before_who_holds_none() -> None:
    budget = ByteBudget(10)
    first, second = await budget.reserve(5), await budget.reserve(5)
    new, growing = Asking(budget.reserve(3)), Asking(first.grow(8))
    await settle()
    assert new.waits
    assert growing.waits
    second.release()
    await settle()
    assert (growing.waits, new.waits, budget.used) == (False, True, 8)
    first.release()
    await settle()
    assert budget.used == 3
    assert not new.waits


@awaited
async def test_those_that_hold_all_and_want_more_do_not_wait_for_each_other() -> None:
    budget = ByteBudget(10)
    held = [await budget.reserve(5) for _ in range(2)]
    growing = [Asking(each.grow(7)) for each in held]
    await settle()
    assert [each.waits for each in growing] == [False, True]
    held[0].release()
    await settle()
    assert not growing[1].waits
    assert budget.used == 7


@pytest.mark.parametrize("was_let_in", [False, True])
@pytest.mark.parametrize("grows", [False, True])
@awaited
async def test_who_gives_up_leaves_nothing(was_let_in: bool, grows: bool) -> None:
    budget = ByteBudget(10)
    first, own = await budget.reserve(6), await budget.reserve(2)
    asking = Asking(own.grow(9) if grows else budget.reserve(9))
    other = Asking(budget.reserve(1))
    await settle()
    assert asking.waits
    if was_let_in:
        first.release()
        if not grows:
            own.release()
    asking.task.cancel()
    await settle()
    held = (0 if was_let_in else 6) + (0 if was_let_in and not grows else 2)
    assert (other.waits, budget.used) == (False, held + 1)


@awaited
async def test_an_answer_in_pieces_is_held_until_the_last() -> None:
    budget = ByteBudget(10)
    answer = await budget.reserve(4)
    pieces = [answer.share() for _ in range(3)]
    answer.release()
    for piece in pieces[:2]:
        piece.release()
    assert budget.used == 4
    pieces[2].release()
    assert budget.used == 0


@awaited
async def test_what_was_larger_than_expected_counts() -> None:
    budget = ByteBudget(10)
    answer = await budget.reserve(4)
    answer.settle(30)
    assert budget.used == 30
    answer.release()
    assert budget.used == 0


@pytest.mark.parametrize(("shards", "share"), [(0, 800), (1, 800), (2, 800), (4, 400), (16, 100), (1000, 100)])
def test_an_answers_share(shards: int, share: int) -> None:
    assert ByteBudget(1600, lambda: shards).share == share


# Calls.

SHARE = 4_000_000


def planned(*answers: tuple[int, int], aggregates: bool = False, stream: CallSizes | None = None) -> CallPlan:
    """The call after answers of so many records, and bytes of the body."""
    sizes = CallSizes(stream, aggregates=aggregates)
    for records, body in answers:
        sizes.answered(records, body)
    return sizes.plan(10_000, SHARE)


def memory(body: int) -> int:
    return int(body * 2.5) + SMALLEST_RESERVATION


@pytest.mark.parametrize(
    ("answers", "limit", "reserve"),
    [
        ([], 10_000, SHARE),
        ([(0, 300)], 10_000, memory(0)),
        ([(100, 10_000)], 10_000, memory(10_000)),
        ([(1000, 1_500_000)], 1066, memory(1_500_000)),
        ([(10, 13_400_000)], 1, memory(13_400_000)),
        ([(100, 10_000), (1, 1_340_000)], 1, memory(1_340_000)),  # larger at once
        ([(1, 1_340_000), (0, 300)], 1, memory(0)),
        ([(1, 400_000), (1, 200_000), (1, 200_000)], 6, memory(200_000)),  # smaller by and by
    ],
)
def test_what_a_call_asks_for(answers: list[tuple[int, int]], limit: int, reserve: int) -> None:
    assert planned(*answers) == (limit, reserve)


def test_a_shard_begins_with_what_others_have_seen() -> None:
    stream = CallSizes()
    planned((10, 13_400_000), stream=stream)
    assert planned(stream=stream) == (1, SHARE)
    assert planned((100, 10_000), stream=stream) == (10_000, memory(10_000))


def test_aggregates_take_more() -> None:
    assert planned((1000, 1_500_000), aggregates=True).limit < planned((1000, 1_500_000)).limit
    sizes = CallSizes(aggregates=True)
    sizes.answered(10, 1_000_000, 21_000_000)
    assert sizes.plan(10_000, SHARE).limit == 1
    assert sizes.memory(1_000_000) == pytest.approx(21_000_000, rel=0.01)
    for _ in range(10):
        sizes.answered(10, 1_000_000, 2_000_000)
    assert sizes.memory(1_000_000) < 4_000_000


@pytest.mark.parametrize(
    ("limit", "body", "too_many"),
    [(10_000, 13_400_000, True), (2, 13_400_000, True), (1, 13_400_000, False), (10_000, 3_000_000, False)],
)
def test_an_answer_above_the_budget_is_asked_for_record_by_record(limit: int, body: int, too_many: bool) -> None:
    sizes = CallSizes()
    assert sizes.is_too_many(limit, body, 8_000_000) == too_many
    assert sizes.plan(10_000, SHARE).limit == (1 if too_many else 10_000)
    sizes.is_too_many(1, 1_340_000, 8_000_000)
    sizes.answered(1, 1_340_000)
    assert sizes.plan(10_000, 2 * SHARE).limit == 2


def test_an_answer_that_found_no_room_is_reserved_before_the_next_call() -> None:
    sizes = CallSizes()
    sizes.answered(0, 300)
    sizes.refused(13_400_000)
    assert sizes.plan(10_000, SHARE).reserve == memory(13_400_000)
