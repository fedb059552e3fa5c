"""A shard: the input of each look, its next call, and where a batch may end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import END, TRIM, GetRecords, GetShardIterator, Position, Records
from fastkcl.kinesis.read.plan.look import Look
from fastkcl.kinesis.read.plan.taken import Gone, LookRules

HOUR = 3_600_000
DATE = 1_800_000_000_000
RULES = LookRules(
    limit=3, slice=10_000, rows=None, bytes=None, until=None, everything=False, period=400, retention=24 * HOUR
)
Answer = Records | Failure


def records(*numbers: int, behind: int = 0, closed: bool = False, at: Sequence[int] = ()) -> Records:
    """Records that have arrived so many seconds after an hour ago."""
    arrived = tuple(DATE - HOUR + 1000 * second for second in (at or numbers))
    sizes = (100,) * len(numbers)
    return Records(tuple(map(str, numbers)), arrived, sizes, behind, None if closed else "next")


class Play:
    """A look, and what it is answered."""

    def __init__(self, position: Position = TRIM, rules: LookRules = RULES, covered: int = DATE) -> None:
        self.look = Look("orders", "a", position, covered, unsure=False)
        self.rules, self.now = rules, 0
        self.asked: list[str] = []
        self.gone: list[Gone] = []

    def give(self, *answers: Answer) -> Play:
        for answer in answers:
            call = self._call()
            while isinstance(call, GetShardIterator):
                self.asked.append(_short(call.position))
                if isinstance(answer, Failure) and answer is Failure.OTHER:
                    break
                self.look.answered("i", self.now, DATE, self.rules)
                call = self._call()
            if isinstance(answer, Failure):
                assert self.look.failed(answer, self.now)
                continue
            assert isinstance(call, GetRecords)
            self.asked.append(str(call.limit))
            gone = self.look.answered(answer, self.now, DATE, self.rules)
            self.gone += [gone] if gone else []
        return self

    def _call(self) -> GetShardIterator | GetRecords:
        due = self.look.due(self.rules)
        self.now = self.now if due is None else max(self.now, due)
        call = self.look.call(self.now, DATE, self.rules)
        assert call is not None, "nothing is looked for"
        assert self.look.call(self.now, DATE, self.rules) is None, "a shard has one call at a time"
        return call

    def end(self, rows: int | None = None) -> tuple[str | None, str, str | None]:
        taken = self.look.take(self.rules, rows)
        return taken.first, str(taken.end), taken.after


def _short(position: Position) -> str:
    time = position.time
    return str(position) if time is None else f"T{(time - DATE + HOUR) / 1000:g}"


AWAY, EXPIRED, THROTTLED = Failure.UNAVAILABLE, Failure.EXPIRED_ITERATOR, Failure.THROTTLED
MISS = records()
"""Nothing there, MillisBehindLatest 0."""


@pytest.mark.parametrize(
    ("answers", "asked", "end"),
    [
        ([records(1, 2)], "TRIM 3", ("1", "2", None)),
        ([records(1, 2, behind=9), records(11)], "TRIM 3 T11 1", ("1", "11", "2")),
        ([records(1, 2, behind=9), records(2)], "TRIM 3 T11 1", ("1", "2", None)),
        ([records(1, 12, behind=9)], "TRIM 3", ("1", "12", None)),
        ([records(1, 2, behind=9), records(closed=True)], "TRIM 3 T11 1", ("1", "END", "2")),
        ([records(1, 2, behind=9), MISS, records(7), MISS, MISS], "TRIM 3 T11 1 T6.5 1 T9 1 T8 1", ("1", "7", "2")),
        ([records(1, 2, behind=9), *[MISS] * 5], "TRIM 3 T11 1 T6.5 1 T4.25 1 T3.125 1 T2.562 1", ("1", "2", None)),
        ([records(1, 2, behind=9), records(behind=5), records(11)], "TRIM 3 T11 1 1", ("1", "11", "2")),
        ([records(1, 2, behind=9), THROTTLED], "TRIM 3 T11", ("1", "2", None)),
        ([records(1, 2, behind=9), AWAY], "TRIM 3 T11", ("1", "2", None)),
        ([records(1, 2, behind=9), EXPIRED], "TRIM 3 T11", ("1", "2", None)),
        ([records(1, 2, behind=9), Failure.OTHER], "TRIM 3 T11", ("1", "2", None)),
        ([records(behind=9), records(1)], "TRIM 3 3", ("1", "1", None)),
        ([records()], "TRIM 3", (None, "TRIM", None)),
        ([records(1, 2, closed=True)], "TRIM 3", ("1", "END", None)),
        ([records(closed=True)], "TRIM 3", (None, "END", None)),
        ([THROTTLED, records(1)], "TRIM 3", ("1", "1", None)),
        ([EXPIRED, records(1)], "TRIM TRIM 3", ("1", "1", None)),
        ([AWAY, records(1)], "TRIM 3", ("1", "1", None)),
    ],
)
def test_what_a_look_sees(answers: list[Answer], asked: str, end: tuple[str | None, str, str | None]) -> None:
    play = Play().give(*answers)
    assert " ".join(play.asked) == asked
    assert play.look.is_resting
    assert play.end() == end


def test_a_new_iterator_asks_for_the_position_and_drops_it() -> None:
    play = Play(Position("5")).give(records(4, 5, 6))
    assert play.asked == ["5", "4"]
    assert play.gone == []
    assert play.end() == ("6", "6", None)


def test_a_first_record_above_the_position_shows_that_it_is_gone() -> None:
    play = Play(Position("5"), covered=DATE - 30 * HOUR).give(records(), records(behind=9), records(7))
    assert play.gone == [Gone(Position("5"), "7", DATE - 30 * HOUR)]
    assert play.end() == ("7", "7", None)


def test_answers_without_records_do_not_show_that_an_old_position_is_there() -> None:
    old = Play(Position("5"), covered=DATE - 30 * HOUR).give(*[MISS] * 5)
    assert old.look.covered == DATE - 30 * HOUR
    new = Play(Position("5"), covered=DATE - 3 * HOUR).give(MISS)
    assert new.look.covered == DATE - 3 * HOUR  # one may be false
    assert new.give(MISS).look.covered == DATE


@pytest.mark.parametrize("before", [[], [records()]])
def test_a_shard_that_was_not_read_for_long_shows_what_was_trimmed_of_it(before: list[Answer]) -> None:
    play = Play(covered=DATE - 25 * HOUR).give(*before)
    play.now += 25 * HOUR
    play.give(records(7))
    assert play.gone == [Gone(TRIM, "7", DATE - 25 * HOUR)]


def test_an_iterator_is_kept_for_four_minutes() -> None:
    play = Play().give(records(1))
    play.end()
    play.give(records(2))
    play.end()
    play.now += 240_001
    play.give(records(2, 3))
    assert " ".join(play.asked) == "TRIM 3 3 2 4"
    assert play.end() == ("3", "3", None)


def test_a_lag_near_the_retention_asks_anew_before_each_look() -> None:
    play = Play(Position("1"), covered=DATE - 22 * HOUR).give(
        records(1, behind=22 * HOUR), records(1, behind=22 * HOUR)
    )
    assert " ".join(play.asked) == "1 4 1 4"


def test_a_lag_near_the_retention_goes_on_where_the_position_comes_alone() -> None:
    play = Play(Position("1"), covered=DATE - 23 * HOUR)
    lag = 23 * HOUR
    play.give(records(1, behind=lag), records(1, behind=lag), records(behind=lag), records(2))
    assert " ".join(play.asked) == "1 4 1 4 3 3"
    assert play.end() == ("2", "2", None)


ALMOST = 24 * HOUR - 30_000
"""A lag of the retention but for half a minute."""


@pytest.mark.parametrize(("proof", "is_gone"), [(records(1), False), (records(3), True), (records(closed=True), True)])
@pytest.mark.parametrize(
    ("answer", "end"), [(records(4), ("4", "4", None)), (records(closed=True), (None, "END", None))]
)
def test_a_gap_over_the_retention_has_to_be_proved(
    answer: Records, end: tuple[str | None, ...], proof: Records, is_gone: bool
) -> None:
    alone = records(1, behind=ALMOST, at=[1 - 23 * 3600])
    play = Play(Position("1"), covered=DATE - ALMOST).give(alone, alone, answer)
    assert " ".join(play.asked) == "1 4 1 4 3"
    assert not play.look.is_resting
    assert not play.look.has_news(RULES)
    assert play.end() == (None, "1", None), "nothing is planned before the proof"
    play.give(THROTTLED, proof)
    assert " ".join(play.asked[5:]) == "1 1 1"
    oldest = answer.numbers[0] if answer.numbers else None
    assert play.gone == ([Gone(Position("1"), oldest, DATE - ALMOST)] if is_gone else [])
    assert play.end() == end


def test_a_proof_takes_empty_answers_for_six_calls() -> None:
    alone = records(1, behind=ALMOST, at=[1 - 23 * 3600])
    play = Play(Position("1"), covered=DATE - ALMOST).give(alone, alone, records(4), *[records(behind=9)] * 5)
    assert not play.look.is_resting
    assert play.give(records(behind=9)).gone == [Gone(Position("1"), "4", DATE - ALMOST)]


@pytest.mark.parametrize("position", [TRIM, Position("5")])
@pytest.mark.parametrize("hours", [1, 30])
def test_a_closed_shard_of_which_nothing_is_left_shows_it(position: Position, hours: int) -> None:
    play = Play(position, covered=DATE - hours * HOUR)
    play.now += 25 * HOUR
    play.give(records(closed=True))
    assert play.gone == [Gone(position, None, DATE - hours * HOUR)]


def test_a_found_record_is_where_the_next_look_begins() -> None:
    play = Play().give(records(1, 2, behind=9), records(11))
    play.end()
    play.give(records(11, 12))
    assert " ".join(play.asked[-2:]) == "11 4"
    assert play.end() == ("12", "12", None)


def test_the_lowest_time_without_a_record_is_kept() -> None:
    play = Play().give(records(1, 2, behind=9), MISS, THROTTLED)
    assert play.end()[1] == "2"
    play.give(records(3, behind=9), records(8), MISS, MISS)
    assert " ".join(play.asked[-7:]) == "3 T7 1 T9.5 1 T8.75 1"


def test_the_next_head_is_large_where_the_end_is_within_a_second() -> None:
    play = Play().give(records(1, 2, behind=9), *[MISS] * 5)
    play.end()
    play.give(records(3))
    assert play.asked[-1] == "1000"


@pytest.mark.parametrize(
    ("rules", "rows", "end", "rest"),
    [
        ({"rows": 2}, 2, ("1", "2", None), ("3", "END", None)),
        ({"bytes": 250}, None, ("1", "2", None), ("3", "END", None)),
        ({"bytes": 1}, None, ("1", "1", None), ("2", "2", None)),
        ({"until": DATE - HOUR + 2500}, None, ("1", "2", None), (None, "2", None)),
        ({"until": DATE - HOUR}, None, (None, "TRIM", None), (None, "TRIM", None)),
        ({}, 0, (None, "TRIM", None), (None, "TRIM", None)),
    ],
)
def test_heads_are_cut_to_the_record(
    rules: dict[str, int], rows: int | None, end: tuple[str | None, ...], rest: tuple[str | None, ...]
) -> None:
    changed = replace(RULES, **rules)
    play = Play(rules=changed).give(records(1, 2, 3, closed=True))
    assert play.end(rows) == end
    assert play.end(rows) == rest


def test_twice_quiet_or_a_late_record_is_done() -> None:
    until = replace(RULES, until=DATE - HOUR + 5500)
    play = Play(rules=until).give(records())
    assert not play.look.is_done(until)
    assert play.give(records()).look.is_done(until)
    play.look.prepare()
    assert not play.look.is_done(until)
    assert play.give(records(5, 6)).look.is_done(until)
    assert play.end() == ("5", "5", None)
    assert not play.look.has_news(until)


@pytest.mark.parametrize(("calls", "pause"), [([records(1)], 400), ([records(1, 2, behind=9), *[MISS] * 5], 1200)])
def test_a_look_is_followed_by_a_pause(calls: list[Answer], pause: int) -> None:
    play = Play().give(*calls)
    play.end()
    assert play.look.due(RULES) == pause


def test_a_shard_that_is_gone_ends() -> None:
    play = Play(Position("5"))
    play.look.vanish()
    assert play.look.due(RULES) is None
    assert play.end() == (None, str(END), None)
