"""Records that a stream no longer has, and that its consumer has not read.

A stream keeps a record for its retention. If a record is gone, an iterator that should begin after it silently begins
at the oldest record left. So a shard is continued AT its last record, which is read again and skipped:

    position P ──▶ iterator AT P ──▶ first record ─┬─ P                nothing is missing
                                                   └─ Q, and P is not  P was trimmed: `TrimWatch.judge`

A kept iterator also skips silently. Records may have been trimmed since the last answer if the reader lags by nearly
the retention or was stopped. Then the next call uses a new iterator: see `TrimWatch.is_due`. A retention that is made
shorter is not announced: an answer that may begin at its new end is checked afterwards, see `TrimWatch.is_leap`.

Rules: no I/O and no clock; times are seconds since the epoch. An answer without records decides nothing. A trimmed
position counts as a loss, unless no later record can have been trimmed: this is known if the shard was read up to its
tip within the retention.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

__all__ = ["LEAST_RETENTION", "DataLoss", "TrimWatch", "arrival_of", "is_of_shard"]

LEAST_RETENTION = 24 * 3600.0
"""Seconds: no stream keeps its records for less."""
NEARLY = 0.9
"""From which part of the retention on the oldest records may be trimmed while they are asked for."""
STOPPED = 10.0
"""Seconds between two calls after which a reader looks whether its position is still there."""
MARGIN = 60.0
"""Seconds that clocks may differ."""
JITTER = 2.0
"""Seconds by which ages of two answers, both by the service's clock, may be wrong."""
HOUR = 3600.0
"""Seconds: each retention is a number of them."""


def arrival_of(sequence_number: str) -> float | None:
    """When a record came, to the second, as its number says; None if the number has another layout.

    From the top, in hexadecimal digits: 2, creation of the shard (9), 1, a counter (16), 2, arrival (9), shard (8), 2.
    """
    number = int(sequence_number)
    return float(number >> 36 & (1 << 36) - 1) if _has_layout(number) else None


def is_of_shard(sequence_number: str, starting_sequence_number: str) -> bool:
    """Whether a record can be in the shard that begins with that number."""
    number, start = int(sequence_number), int(starting_sequence_number)
    if _has_layout(number) and _has_layout(start):
        return number >> 144 == start >> 144  # the second in which the shard was made
    return True


def _has_layout(number: int) -> bool:
    return number.bit_length() == 186 and number & 0xF == 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLoss:
    """A position that was trimmed.

    Attributes:
        shard_id: the position's.
        position: sequence number of the last record that was read.
        arrived: when it came; None if that is not known.
        oldest: sequence number of the oldest record left; None if there is none.
        oldest_arrived: when that came.
        retention: the stream's, in seconds.
        now: when it was found.
    """

    shard_id: str
    position: str
    arrived: float | None
    oldest: str | None
    oldest_arrived: float | None
    retention: float
    now: float

    @property
    def seconds(self) -> float | None:
        """At least so long a time of the shard's records is missing; None if that is not known."""
        end = self.now - self.retention if self.oldest_arrived is None else self.oldest_arrived
        return None if self.arrived is None else max(0.0, end - self.arrived)

    def __str__(self) -> str:
        came = "" if self.arrived is None else f", which came at {_time(self.arrived)},"
        left = (
            "the shard has none left, or is no longer listed"
            if self.oldest is None
            else f"the oldest record left is {self.oldest}"
            + ("" if self.oldest_arrived is None else f" of {_time(self.oldest_arrived)}")
        )
        since = "after it" if self.oldest is None else "between"
        span = "" if self.seconds is None else f": the records of {self.seconds:.0f} s"
        return (
            f"{self.shard_id}: record {self.position}{came} was the last one read, and the stream has trimmed it; "
            f"{left}. Records {since} are lost{span}. Now is {_time(self.now)}, the retention "
            f"{self.retention / 3600:g} h"
        )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class TrimWatch:
    """The knowledge of one shard's reader about its position."""

    def __init__(self) -> None:
        self._arrived: float | None = None  # of the position
        self._covered: float | None = None  # everything that came until then was read
        self._called: float | None = None  # the last answer
        self._is_at_tip = False  # it said so
        self._checks = False  # the next records decide
        self._is_new = False  # the position was not looked for since it moved

    def resumed(self) -> None:
        """The next answer is of an iterator AT the position."""
        self._checks = True
        self._is_new = False

    @property
    def is_open(self) -> bool:
        """Whether no record has shown yet that the position is there."""
        return self._checks

    def answered(self, millis_behind: int | None, now: float) -> None:
        """An answer came, and its records follow the position."""
        self._called = now
        is_at_tip = millis_behind == 0
        # One 0 may be a mistake of the service's: the second one in a row is believed.
        if millis_behind is not None and not self._checks and (self._is_at_tip or not is_at_tip):
            self._covered = now - millis_behind / 1000
        self._is_at_tip = is_at_tip

    def moved(self, arrived: float | None) -> None:
        """The position is another record, which came then."""
        self._arrived = arrived
        self._is_new = True

    def is_trimmed(self, position: str, first: str) -> bool:
        """Whether the first record of an answer shows that the position is gone."""
        return self._checks and int(first) > int(position)

    def is_leap(self, age: float, now: float) -> bool:
        """Whether a kept iterator may have passed over records, if the retention was made shorter a moment ago.

        The end of some retention then lies between the position and the first record of the answer.

        Args:
            age: of that record, in seconds.
            now: the time of the answer.
        """
        end = max(math.ceil((age - JITTER) / HOUR) * HOUR, LEAST_RETENTION)
        return self.is_past(end - JITTER, now)

    def is_past(self, retention: float, now: float) -> bool:
        """Whether a kept iterator's position is older than the retention, and what came after it was not read."""
        return not self._checks and self._covered is not None and now - self._covered >= retention

    def decided(self) -> None:
        """A record has shown whether the position is there; later answers are not checked until `resumed`."""
        self._checks = False

    def is_due(self, retention: float, now: float) -> bool:
        """Whether a call needs a new iterator, as records may have been trimmed since the last one."""
        if self._checks or self._called is None:
            return False
        if now - self._called > STOPPED:
            return True
        return self._is_new and self._covered is not None and now - self._covered > NEARLY * retention

    def judge(
        self,
        shard_id: str,
        position: str,
        retention: float,
        now: float,
        oldest: str | None = None,
        oldest_arrived: float | None = None,
    ) -> DataLoss | None:
        """The loss that a missing position means; None if nothing that came after it can be gone."""
        arrived = arrival_of(position) if self._arrived is None else self._arrived
        is_old = arrived is not None and now - arrived >= retention  # otherwise the retention is another one
        if is_old and self._covered is not None and self._covered > now - retention + MARGIN:
            return None
        return DataLoss(
            shard_id=shard_id,
            position=position,
            arrived=arrived,
            oldest=oldest,
            oldest_arrived=oldest_arrived,
            retention=retention,
            now=now,
        )
