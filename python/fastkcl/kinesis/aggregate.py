"""User records into records of Kinesis, as the Kinesis Producer Library (KPL) does it.

An aggregate is one record that holds many: it goes to the shard of its first key, and readers take it apart. A reader
drops an aggregate, all of it, if one of its keys does not belong to the shard that it is read from. So there is one
open aggregate for each shard, and a key goes to the aggregate of the shard that owns it.

    user records ──▶ by shard ──┬─▶ shard 0: [key table | records ...] full ─▶ Entry
                                └─▶ shard 1: [key table | records ...]

Rules: the order of a shard's user records is kept. A user record that does not fit into an aggregate becomes a record
by itself, after those before it. The bytes are made by aws-kinesis-agg.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastkcl.kinesis.shards import ShardMap

__all__ = ["AGGREGATE_BYTES", "Aggregator", "Entry", "UserRecord"]

AGGREGATE_BYTES = 51_200
"""Most bytes of an aggregate: the KPL's own default."""


class UserRecord(NamedTuple):
    """What an application wants to put."""

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
    def __init__(self, max_bytes: int) -> None:
        from aws_kinesis_agg.aggregator import AggRecord

        self._record: Any = AggRecord(max_bytes)
        self._users: list[UserRecord] = []

    def add(self, user: UserRecord) -> bool:
        """Whether there is room for it; ValueError if there would be none in an empty one."""
        if not self._record.add_user_record(user.partition_key, user.data):
            return False
        self._users.append(user)
        return True

    def close(self) -> Entry:
        partition_key, _, data = self._record.get_contents()
        return Entry(partition_key, data, tuple(self._users))


class Aggregator:
    """One open aggregate for each shard.

    Args:
        shards: of the stream.
        max_bytes: of an aggregate.
    """

    def __init__(self, shards: ShardMap, max_bytes: int = AGGREGATE_BYTES) -> None:
        self._shards = shards
        self._max_bytes = max_bytes
        self._open: dict[str, _OpenAggregate] = {}

    def add(self, user: UserRecord) -> list[Entry]:
        """Take a user record, and give what is complete by it."""
        shard_id = self._shards.owner(user.partition_key)
        aggregate = self._open.get(shard_id) or _OpenAggregate(self._max_bytes)
        try:
            if aggregate.add(user):
                self._open[shard_id] = aggregate
                return []
            following = _OpenAggregate(self._max_bytes)
            following.add(user)
        except ValueError:  # there is no room for it in any
            before = self._open.pop(shard_id, None)
            return [Entry.plain(user)] if before is None else [before.close(), Entry.plain(user)]
        self._open[shard_id] = following
        return [aggregate.close()]

    def drain(self) -> list[Entry]:
        """Give what is open."""
        aggregates, self._open = self._open, {}
        return [aggregate.close() for aggregate in aggregates.values()]
