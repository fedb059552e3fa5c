"""The limits of a shard for each second: 1,000 records and 1 MiB in, five reads and 2 MiB out.

A read that gives more than 2 MiB is answered, and the shard then refuses reads until the mean is met: 10 MiB, the most
of one answer, cost five seconds. Writes count by the second of the clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ShardThroughput", "Throughput"]

_RECORDS_IN = 1000
_BYTES_IN = 2**20
_READS = 5
_BYTES_OUT = 2 * 2**20


@dataclass(slots=True)
class ShardThroughput:
    """Of one shard."""

    _second: int = 0
    _records: int = 0
    _bytes: int = 0
    _reads: list[float] = field(default_factory=list)
    _reads_from: float = 0.0

    def take(self, size: int, now: float) -> bool:
        """Whether a record of `size` bytes may come in now; if so it is counted."""
        if int(now) != self._second:
            self._second, self._records, self._bytes = int(now), 0, 0
        # A record above the limit is taken by itself: streams may be set up for records of up to 10 MiB.
        if self._records >= _RECORDS_IN or (self._records and self._bytes + size > _BYTES_IN):
            return False
        self._records += 1
        self._bytes += size
        return True

    def may_read(self, now: float) -> bool:
        """Whether a read may be answered now; if so it is counted."""
        self._reads = [moment for moment in self._reads if now - 1 < moment <= now]
        if len(self._reads) >= _READS or now < self._reads_from:
            return False
        self._reads.append(now)
        return True

    def gave(self, size: int, now: float) -> None:
        """Count the bytes of a read."""
        self._reads_from = max(self._reads_from, now - 1) + size / _BYTES_OUT


class Throughput:
    """Of all shards."""

    def __init__(self) -> None:
        self._shards: dict[tuple[str, str], ShardThroughput] = {}

    def of(self, stream_arn: str, shard_id: str) -> ShardThroughput:
        """That of one shard."""
        return self._shards.setdefault((stream_arn, shard_id), ShardThroughput())
