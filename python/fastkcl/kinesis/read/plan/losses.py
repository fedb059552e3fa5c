"""Records that a stream no longer has, and that were not read.

    position P ──▶ iterator AT P ──▶ first record ─┬─ P                nothing is missing
                                                   └─ Q, and P is not  P was trimmed, and maybe more

P alone may be trimmed with nothing missing: a shard that was quiet for longer than the retention. So a shard has a time
until which it is known to be read, ``covered``. Records that came later than that are missing if they are older than
the retention.

Rules: no state. Times are ms since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.read.plan.offset import Position

__all__ = ["DAY", "MARGIN", "NEARLY", "Trimmed", "moment"]

DAY = 24 * 3_600_000
"""No stream keeps its records for less; it is the retention where that may not be asked."""
MARGIN = 60_000
"""How far times of the service may be apart."""
NEARLY = 0.9
"""From which part of the retention on records may be trimmed while they are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed:
    """A position that is gone.

    Attributes:
        stream: name or ARN.
        shard_id: which.
        position: up to where the shard was read.
        covered: until when it is known to be read.
        planned: when the last batch was planned; None if none was.
        oldest: sequence number of the oldest record left; None if there is none.
        retention: of the stream.
        now: when it was seen.
    """

    stream: str
    shard_id: str
    position: Position
    covered: int
    planned: int | None
    oldest: str | None
    retention: int
    now: int

    @property
    def is_loss(self) -> bool:
        """Whether records may be missing, and not the position alone."""
        return self.covered - MARGIN < self.now - self.retention

    @property
    def error(self) -> DataLossError:
        """What to raise."""
        return DataLossError(str(self), self.shard_id, self.position.text, self.oldest)

    def __str__(self) -> str:
        number = self.position.number
        what = f"record {number}, the last one read, is gone" if number else f"nothing was read since {self.position}"
        planned = "no batch was planned" if self.planned is None else f"last batch planned {moment(self.planned)}"
        left = "no record is left" if self.oldest is None else f"the oldest record left is {self.oldest}"
        return (
            f"{self.stream}/{self.shard_id}: {what} (retention {self.retention / 3_600_000:g} h; {planned}; read until "
            f"{moment(self.covered)}; now {moment(self.now)}; {left}): records after it may be missing. "
            "failOnDataLoss=false goes on with what is left"
        )


def moment(milliseconds: int) -> str:
    """A time as people read it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
