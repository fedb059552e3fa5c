"""Packs user records into records of Kinesis, as the Kinesis Producer Library (KPL) does.

An aggregate is one record that holds many. It goes to the shard of its first key, and readers split it again. If one of
its keys does not belong to the shard that it is read from, a reader drops the whole aggregate. So there is one open
aggregate for each shard, and a key goes to the aggregate of the shard that owns it.

    user records ──▶ by shard ──┬─▶ shard 0: [key table | records ...] full ─▶ Entry
                                └─▶ shard 1: [key table | records ...]

Rules: the order of a shard's user records is kept. A user record that does not fit into an aggregate becomes a record
by itself, after those before it.
"""

from __future__ import annotations

from typing import NamedTuple

from fastkcl import _core
from fastkcl.shard import ShardMap

__all__ = ["AGGREGATE_BYTES", "Aggregator", "Entry", "UserRecord"]

AGGREGATE_BYTES = 51_200
"""Most bytes of an aggregate, its partition key included: the KPL's own default."""


class UserRecord(NamedTuple):
    """A record of an application."""

    partition_key: str
    data: bytes


class Entry(NamedTuple):
    """A record as it is put: an aggregate of user records, or one of them as it is."""

    partition_key: str
    data: bytes
    users: tuple[UserRecord, ...]

    @classmethod
    def plain(cls, user: UserRecord) -> Entry:
        """A user record as it is."""
        return cls(user.partition_key, user.data, (user,))

    @property
    def size(self) -> int:
        """Bytes that count against the limits of the service."""
        return len(self.data) + len(self.partition_key.encode())


class _OpenAggregate:
    def __init__(self) -> None:
        self._record = _core.Aggregate()
        self._users: list[UserRecord] = []

    def add(self, user: UserRecord, max_bytes: int) -> bool:
        """Whether there is room for it."""
        if self._record.size_with(user.partition_key, len(user.data)) > max_bytes:
            return False
        self._record.add(user.partition_key, user.data)
        self._users.append(user)
        return True

    def close(self) -> Entry:
        partition_key = self._record.partition_key
        assert partition_key is not None
        return Entry(partition_key, self._record.encode(), tuple(self._users))


class Aggregator:
    """One open aggregate for each shard.

    Args:
        shards: of the stream.
        max_bytes: of an aggregate, its partition key included.
    """

    def __init__(self, shards: ShardMap, max_bytes: int = AGGREGATE_BYTES) -> None:
        self._shards = shards
        self._max_bytes = max_bytes
        self._open: dict[str, _OpenAggregate] = {}

    def add(self, user: UserRecord) -> list[Entry]:
        """Take a user record, and return the aggregate that it completes.

        Raises:
            ValueError: its partition key has not 1 to 256 characters.
        """
        shard_id = self._shards.owner(user.partition_key)
        aggregate = self._open.get(shard_id)
        if aggregate is not None and aggregate.add(user, self._max_bytes):
            return []
        complete = [] if aggregate is None else [self._open.pop(shard_id).close()]
        following = _OpenAggregate()
        if not following.add(user, self._max_bytes):  # there is no room for it in any
            return [*complete, Entry.plain(user)]
        self._open[shard_id] = following
        return complete

    def drain(self) -> list[Entry]:
        """Return the open record."""
        aggregates, self._open = self._open, {}
        return [aggregate.close() for aggregate in aggregates.values()]
