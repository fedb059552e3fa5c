"""The oddities of the service that clients have to live with: empty answers, a false tip, times that fall.

    empty answers   GetRecords gives no records where there are some, MillisBehindLatest above 0, and a new iterator
    false zeros     MillisBehindLatest is 0 where there are more records; never twice in a row for a shard
    falling times   ApproximateArrivalTimestamp is up to so many seconds before the time at which a record came
    another clock   the service's time is so many seconds ahead, and calls signed more than 5 minutes off are refused

Rules: no I/O and no clock. Records, their order and their numbers stay as they are; so does the retention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from fastkcl.local_aws.errors import ServiceError

__all__ = ["WhimOptions", "Whims"]

SKEW = 300.0
"""Seconds that the time of a signature may be off."""
_FORMAT = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhimOptions:
    """How often, and how far.

    Attributes:
        empty_answers: the share of answers with records that come without them, 0 to 1.
        false_zeros: the share of answers before the tip that say 0, 0 to 1.
        falling_seconds: up to which arrival times fall.
        clock_seconds: that the service's clock is ahead; negative for behind.
    """

    empty_answers: float = 0.0
    false_zeros: float = 0.0
    falling_seconds: float = 0.0
    clock_seconds: float = 0.0


class Whims:
    """The service's.

    Args:
        options: see there.
        random: decides.
    """

    def __init__(self, options: WhimOptions | None = None, random: Random | None = None) -> None:
        self._options = options or WhimOptions()
        self._random = random or Random()
        self._false: set[tuple[str, str]] = set()

    def hides(self) -> bool:
        """Whether an answer comes without its records."""
        return self._random.random() < self._options.empty_answers

    def behind(self, stream_arn: str, shard_id: str, millis: int) -> int:
        """The MillisBehindLatest of an answer."""
        key = stream_arn, shard_id
        if millis and key not in self._false and self._random.random() < self._options.false_zeros:
            self._false.add(key)
            return 0
        self._false.discard(key)
        return millis

    def arrival(self, sequence: int, millis: int) -> int:
        """The arrival time that answers have: always the same for a record."""
        most = int(1000 * self._options.falling_seconds)
        return millis - (sequence * 0x9E3779B97F4A7C15 >> 20) % (most + 1) if most else millis

    def check_time(self, headers: Mapping[str, str], now: float) -> None:
        """Refuse a signature of another time, where the clock is another.

        Args:
            headers: by their names in lower case.
            now: the service's time, in s since the epoch.

        Raises:
            ServiceError: it is more than 5 minutes off.
        """
        signed = headers.get("x-amz-date")
        if not self._options.clock_seconds or signed is None:
            return
        try:
            off = now - datetime.strptime(signed, _FORMAT).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise ServiceError("IncompleteSignatureException", f"X-Amz-Date {signed} is not a time") from None
        if abs(off) > SKEW:
            what = "expired" if off > 0 else "not yet current"
            text = datetime.fromtimestamp(now, UTC).strftime(_FORMAT)
            raise ServiceError(
                "InvalidSignatureException", f"Signature {what}: {signed} is {abs(off):.0f} s off {text}"
            )
