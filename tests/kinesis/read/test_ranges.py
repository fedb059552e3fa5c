"""Ranges: a reader's reaction to each answer, and its rows."""

from __future__ import annotations

import pytest
from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import (
    END,
    TRIM,
    CallError,
    GetRecords,
    GetShardIterator,
    Position,
    Range,
    RangeReader,
    Records,
    TimeRange,
    TimeRangeReader,
)

SHARD = "shardId-000000000000"
HOUR = 3_600_000


def records(*numbers: int, behind: int = 0, closed: bool = False, arrivals: tuple[int, ...] | None = None) -> Records:
    arrived = arrivals or tuple(1000 * number for number in numbers)
    sizes = (100,) * len(numbers)
    return Records(tuple(map(str, numbers)), arrived, sizes, behind, None if closed else "next")


class Play:
    """A reader, and what it is answered."""

    def __init__(self, reader: RangeReader | TimeRangeReader) -> None:
        self.reader = reader
        self.now = 0
        self.seen: list[str] = []
        self.positions: list[str] = []

    def give(self, *answers: Records | Failure) -> Play:
        for answer in answers:
            call = self._call()
            while isinstance(call, GetShardIterator):
                self.positions.append(str(call.position))
                self.reader.answered("i", self.now)
                call = self._call()
            assert isinstance(call, GetRecords)
            if isinstance(answer, Failure):
                self.reader.failed(answer, OSError(answer.value), self.now)
            else:
                self.seen += [answer.numbers[row] for row in self.reader.answered(answer, self.now)]
        return self

    def _call(self) -> object:
        self.now += self.reader.wait(self.now)
        call = self.reader.call(self.now)
        assert call is not None, "the reader wants nothing"
        assert self.reader.call(self.now) is None, "it has one call at a time"
        return call


def play(first: int, end: int | None, after: int | None = None, *, fails: bool = True) -> Play:
    part = Range(
        stream="orders",
        shard_id=SHARD,
        first=str(first),
        end=END if end is None else Position(str(end)),
        after=None if after is None else str(after),
    )
    return Play(RangeReader(part, retention=24 * HOUR, fail_on_data_loss=fails))


EXPIRED, THROTTLED, AWAY = Failure.EXPIRED_ITERATOR, Failure.THROTTLED, Failure.UNAVAILABLE


@pytest.mark.parametrize(
    ("of", "answers", "rows"),
    [
        (play(3, 5), [records(3, 4, 5)], "345"),
        (play(3, 5), [records(3, 4, 5, 6, 7)], "345"),
        (play(3, 3), [records(3)], "3"),
        (play(3, 5), [records(3, behind=9), records(4, 5)], "345"),
        (play(3, 5), [records(behind=9), records(3, behind=9), records(behind=9), records(4, 5)], "345"),
        (play(3, 5), [records(), records(), records(), records(), records(), records(3, 4, 5)], "345"),
        (play(3, 5, after=3), [records(3, 4, 5)], "45"),
        (play(3, 5, after=3), [records(3), records(4, 5)], "45"),
        (play(3, 5), [records(3, 4, behind=9), EXPIRED, records(4, behind=9), records(5)], "345"),
        (play(3, 5), [EXPIRED, records(3, 4, 5)], "345"),
        (play(3, 5), [*[THROTTLED] * 200, records(3, 4, 5)], "345"),
        (play(3, 5), [records(3), AWAY, AWAY, records(4, 5)], "345"),
        (play(3, None), [records(3, 4), records(5, closed=True)], "345"),
        (play(3, None), [records(3, 4), records(closed=True)], "34"),
        (play(3, None, after=3), [records(3, closed=True)], ""),
        (play(3, 5), [records(3, 4, 5, closed=True)], "345"),
    ],
)
def test_a_range_is_read_to_its_end(of: Play, answers: list[Records | Failure], rows: str) -> None:
    of.give(*answers)
    assert of.reader.finished
    assert "".join(of.seen) == rows
    assert of.reader.call(of.now) is None


EMPTY = [records()] * 6


@pytest.mark.parametrize(
    ("first", "end", "after", "answers", "left"),
    [
        (3, 5, None, [records(4, 5)], "45"),
        (3, 5, None, [records(6, 7)], ""),
        (3, 5, 3, [records(4, 5)], "45"),
        (3, 5, None, [records(3, behind=9), EXPIRED, records(4, 5)], "345"),
        (3, 5, None, [records(3, 4, 6)], "34"),
        (3, 5, None, [records(3), *EMPTY, records(9)], "3"),
        (3, None, None, [records(4, closed=True)], "4"),
        (3, 5, None, [Failure.NOT_FOUND], ""),
    ],
)
def test_what_was_trimmed_is_an_error_or_left_out(
    first: int, end: int | None, after: int | None, answers: list[Records | Failure], left: str
) -> None:
    with pytest.raises(DataLossError, match=f"orders/{SHARD}: .*failOnDataLoss=false"):
        play(first, end, after).give(*answers)
    of = play(first, end, after, fails=False).give(*answers)
    assert of.reader.finished
    assert "".join(of.seen) == left
    assert of.reader.warnings


@pytest.mark.parametrize(
    ("end", "answers", "message"),
    [
        (5, [records(3), *EMPTY, records(2)], "no more records now, after record 3, and the batch ends at 5"),
        (5, [*EMPTY, records()], "no more records now"),
        (5, [records(3, closed=True)], "is closed, after record"),
        (5, [records(closed=True)], "is closed"),
        (5, [Failure.DENIED], "GetRecords.*denied"),
        (5, [Failure.OTHER], "GetRecords.*other"),
    ],
)
def test_a_range_without_its_end_is_an_error(end: int, answers: list[Records | Failure], message: str) -> None:
    for fails in (True, False):
        with pytest.raises(CallError, match=message):
            play(3, end, fails=fails).give(*answers)


def test_an_outage_ends_a_read_after_ten_minutes() -> None:
    of = play(3, 5)
    with pytest.raises(ConnectionError, match="away for"):
        of.give(*[AWAY] * 1000)
    assert 600_000 < of.now < 620_000


@pytest.mark.parametrize(
    "answers", [[records(1, behind=23 * HOUR)], [records(1, behind=23 * HOUR), records(behind=HOUR)]]
)
def test_a_reader_that_lags_goes_on_where_its_last_record_comes_alone(answers: list[Records]) -> None:
    of = play(1, 2)
    of.give(records(1, behind=23 * HOUR), *answers, records(2, behind=HOUR))
    assert of.reader.finished
    assert of.seen == ["1", "2"]
    assert of.positions == ["1", "1"]


def test_a_reader_that_lags_by_nearly_the_retention_asks_for_its_last_record_again() -> None:
    of = play(3, 5)
    of.give(records(3, behind=22 * HOUR), records(3, 4, behind=22 * HOUR), records(4, 5))
    assert of.positions == ["3", "3", "4"]
    assert "".join(of.seen) == "345"
    of = play(3, 5)
    of.give(records(3, behind=1))
    of.now += 22 * HOUR
    of.give(records(3, 4, behind=HOUR), records(5))
    assert of.positions == ["3", "3"]


ALMOST = 24 * HOUR - 30_000
GAP = [records(3, behind=ALMOST), records(3, behind=ALMOST), records(behind=ALMOST), records(4, 5)]
"""Record 3 comes alone each time, and 4 is far after it."""


def test_a_gap_over_the_retention_has_to_be_proved() -> None:
    of = play(3, 5).give(*GAP)
    assert "".join(of.seen) == "345"
    assert not of.reader.finished
    of.give(THROTTLED, EXPIRED, records(), records(3))
    assert of.reader.finished
    assert of.positions == ["3", "3", "3", "3"]
    with pytest.raises(DataLossError, match="record 3 is gone"):
        play(3, 5).give(*GAP, records(4))
    with pytest.raises(DataLossError, match="no record is left"):
        play(3, 5).give(*GAP, *[records()] * 5)


def test_a_range_goes_on_after_its_proof() -> None:
    of = play(3, 6).give(*GAP, records(3), records(5), records(6))
    assert of.reader.finished
    assert "".join(of.seen) == "3456"
    lost = play(3, 6, fails=False).give(*GAP, records(4), records(5), records(6))
    assert lost.reader.finished
    assert "".join(lost.seen) == "3456"
    assert lost.reader.warnings


def test_a_loss_says_when() -> None:
    part = Range(stream="orders", shard_id=SHARD, first="3", end=Position("5"))
    reader = RangeReader(part, retention=48 * HOUR, planned=1_800_000_000_000)
    assert isinstance(reader.call(0), GetShardIterator)
    reader.answered("i", 0)
    assert isinstance(reader.call(0), GetRecords)
    said = r"record 3 is gone \(retention 48 h; batch planned 2027-01-15T08:00:00Z; now 2027-01-17T10:00:00Z; "
    with pytest.raises(DataLossError, match=said + "the next record left is 4"):
        reader.answered(records(4, 5), 0, 1_800_000_000_000 + 50 * HOUR)


@pytest.mark.parametrize("between", [THROTTLED, records(behind=1)])
def test_failures_that_are_far_apart_are_no_outage(between: Records | Failure) -> None:
    of = play(3, 5).give(records(3, behind=1), AWAY)
    of.now += 300_000
    of.give(between)
    of.now += 400_000
    of.give(AWAY)


def test_a_reader_that_nobody_asks_for_records_has_no_outage() -> None:
    of = play(3, 5).give(records(3, behind=1), AWAY)
    of.now += HOUR
    of.give(AWAY, records(4, 5))
    assert of.reader.finished


@pytest.mark.parametrize(
    ("until", "answers", "rows"),
    [
        (4000, [records(3, 4, 5)], "34"),
        (4000, [records(3, behind=9), records(4, 5)], "34"),
        (9000, [records(3, 4), records(), records()], "34"),
        (9000, [records(3, 4), records(), records(5), records(), records()], "345"),
        (9000, [records(3, behind=9), records(behind=9), records(closed=True)], "3"),
        (9000, [records(3, closed=True)], "3"),
        (4000, [records(3, 4, 5, 6, arrivals=(3000, 4500, 3500, 4000))], "3"),
        (9000, [records(3, behind=9), EXPIRED, records(3, 4, closed=True)], "34"),
        (1000, [records(3)], ""),
    ],
)
def test_a_time_range_ends_before_the_first_record_that_came_later(
    until: int, answers: list[Records | Failure], rows: str
) -> None:
    of = Play(TimeRangeReader(TimeRange(stream="orders", shard_id=SHARD, start=TRIM, until=until)))
    of.give(*answers)
    assert of.reader.finished
    assert "".join(of.seen) == rows
    assert of.positions[0] == "TRIM"
