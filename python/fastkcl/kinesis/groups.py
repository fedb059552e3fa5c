"""Groups of consumers, seen and moved from outside: the owner of each shard, its position, and a new position.

    store ── rows ──▶ Standing of each shard ──▶ lag, owners
      ▲                     │
      └── write ◀── Move ◀──┴── plan: TRIM_HORIZON, LATEST, a time, a position

A store is where a checkpointer keeps its positions: `RedisStore`, `DynamoDBStore`, `KCLStore`.

A time becomes the position of the last record before it, which any version and async-kinesis can read; a shard without
such a record begins at its first one, and a closed shard without a later record is finished. LATEST is the time of now.

Rules: calls block. A position is written on condition that its row is unchanged since it was read, so a member's write
is never replaced; `live_members` returns the members that still write.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from fastkcl.kinesis.checkpoints.base import SHARD_END, Place
from fastkcl.kinesis.checkpoints.redis import server_options
from fastkcl.kinesis.checkpoints.table_errors import account_of_arn, is_lasting
from fastkcl.kinesis.exceptions import AnotherStream, CheckpointTableError
from fastkcl.kinesis.read.trimmed import is_of_shard
from fastkcl.kinesis.topology import Shard
from fastkcl.leases import Lease
from fastkcl.leases import dynamodb as dynamodb_leases
from fastkcl.leases import kcl as kcl_leases
from fastkcl.leases import redis as redis_leases

__all__ = [
    "DynamoDBStore",
    "KCLStore",
    "Move",
    "RedisStore",
    "Row",
    "Standing",
    "Store",
    "check_stream",
    "live_members",
    "plan",
    "standings",
]

WINDOWS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
"""Seconds before a time in which the last record before it is looked for, one after the other."""
_LAST_SUB_SEQUENCE_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Row:
    """A store's row of a shard.

    Attributes:
        lease: see there.
        position: None where there is none.
        raw: the value that `Store.write` compares.
    """

    lease: Lease
    position: str | None
    raw: Any


class Store(Protocol):
    """Where a kind of checkpointer keeps its positions."""

    def groups(self) -> list[str]:
        """The names of all groups."""

    def rows(self, group: str, shards: Sequence[Shard]) -> dict[str, Row]:
        """The rows of a group, by shard."""

    def write(self, group: str, shard: Shard, row: Row | None, position: str) -> bool:
        """Write a position, or `SHARD_END`, and free the shard; False if its row is not as it was read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group is in a shard.

    Attributes:
        shard: which.
        position: see `Row`.
        owner: None while it is free.
        seconds_behind: how long ago the first record came that is not read; 0 at the tip. None where that is not
            known: there is no position, or nothing is left to read.
    """

    shard: Shard
    position: str | None
    owner: str | None
    seconds_behind: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """A shard's position, and the one that it is to have."""

    shard: Shard
    row: Row | None
    position: str


# Streams.


def check_stream(group: str, stream: str, rows: Mapping[str, Row]) -> None:
    """Refuse a group that is another stream's.

    Args:
        group: its name.
        stream: the stream's name.
        rows: of the group.

    Raises:
        AnotherStream: a row names another stream.
    """
    for shard_id, row in sorted(rows.items()):
        if row.lease.stream not in (None, stream):
            raise AnotherStream(
                f"{group} keeps positions of stream {row.lease.stream}, and not of {stream}: {shard_id}"
            )


def standings(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shards: Sequence[Shard],
    rows: Mapping[str, Row],  # noqa: ANN401 - boto3's and redis' clients have no types
) -> list[Standing]:
    """Where a group is.

    Args:
        kinesis: a boto3 client.
        address: StreamName or StreamARN.
        shards: all of the stream.
        rows: of the group.
    """
    found = []
    for shard in shards:
        row = rows.get(shard.shard_id)
        position = None if row is None else SHARD_END if row.lease.finished else row.position
        behind = None
        if position not in (None, SHARD_END, "AT_TIMESTAMP") and _can_be_in(shard, str(position)):
            behind = _behind(kinesis, address, shard, str(position))
        found.append(Standing(shard, position, None if row is None else row.lease.holder, behind))
    return found


def _can_be_in(shard: Shard, position: str) -> bool:
    """Whether a position can be one of this shard."""
    place, first = Place.parse(position), shard.starting_sequence_number
    if place is None or first is None:
        return True
    last = int(shard.sequence_range.get("EndingSequenceNumber", place.sequence_number))
    return is_of_shard(place.sequence_number, first) and int(first) <= int(place.sequence_number) <= last


def _behind(kinesis: Any, address: Mapping[str, str], shard: Shard, position: str) -> float | None:  # noqa: ANN401
    place = Place.parse(position)
    if place is None:
        where: dict[str, Any] = {"ShardIteratorType": position}
    else:
        where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": place.sequence_number}
    for records, _ in _pages(kinesis, address, shard, where, limit=1):
        if records:
            arrived: datetime = records[0]["ApproximateArrivalTimestamp"]
            return max(0.0, (datetime.now(UTC) - arrived).total_seconds())
    return 0.0


def _pages(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shard: Shard,
    where: Mapping[str, Any],
    limit: int = 10_000,  # noqa: ANN401
) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Answers up to the tip, or the end: records, and milliseconds behind the tip."""
    request = {**address, "ShardId": shard.shard_id, **where}
    iterator: str | None = kinesis.get_shard_iterator(**request)["ShardIterator"]
    while iterator is not None:
        answer = kinesis.get_records(ShardIterator=iterator, Limit=limit)
        behind = int(answer.get("MillisBehindLatest") or 0)
        yield answer["Records"], behind
        iterator = answer.get("NextShardIterator")
        if not behind and not shard.is_closed:
            return


def plan(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shards: Sequence[Shard],
    rows: Mapping[str, Row],
    to: str | datetime,
) -> list[Move]:
    """The rows to write so that a group continues there; none for shards that are there already.

    Args:
        kinesis: a boto3 client.
        address: StreamName or StreamARN.
        shards: those that are to be moved.
        rows: of the group.
        to: TRIM_HORIZON, LATEST, an aware time, or a position.

    Raises:
        ValueError: it is no position, or one that this cannot stand for.
    """
    if to == "LATEST":
        to = datetime.now(UTC)
    moves = []
    for shard in shards:
        row = rows.get(shard.shard_id)
        position = to if isinstance(to, str) else _position_at(kinesis, address, shard, to)
        if position == "AT_TIMESTAMP":
            raise ValueError("AT_TIMESTAMP is no position by itself: give the time")
        if not _can_be_in(shard, position):
            raise ValueError(
                f"{position} is no position in {shard.shard_id}, whose records have the numbers from "
                f"{shard.starting_sequence_number} to {shard.sequence_range.get('EndingSequenceNumber', 'now')}"
            )
        now = None if row is None else SHARD_END if row.lease.finished else row.position
        if now != position:
            moves.append(Move(shard, row, position))
    return moves


def _position_at(kinesis: Any, address: Mapping[str, str], shard: Shard, moment: datetime) -> str:  # noqa: ANN401
    """The position after the last record that came before a time."""
    if shard.is_closed and not _has_later(kinesis, address, shard, moment):
        return SHARD_END
    for seconds in WINDOWS:
        begin = max(moment - timedelta(seconds=seconds), datetime(1970, 1, 2, tzinfo=UTC))
        last = None
        where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": begin}
        for records, _ in _pages(kinesis, address, shard, where):
            before = [record for record in records if record["ApproximateArrivalTimestamp"] < moment]
            last = before[-1] if before else last
            if len(before) < len(records):
                break
        if last is not None:
            return str(last["SequenceNumber"])
    return "TRIM_HORIZON"


def _has_later(kinesis: Any, address: Mapping[str, str], shard: Shard, moment: datetime) -> bool:  # noqa: ANN401
    if moment > datetime.now(UTC) - timedelta(seconds=1):
        return False
    where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
    return any(records for records, _ in _pages(kinesis, address, shard, where))


def live_members(
    look: Callable[[], Mapping[str, Row]], failover: float, *, sleep: Callable[[float], None] = time.sleep
) -> set[str]:
    """Who of a group lives: owners that renew a lease within the failover time, or take one. Waits for as long.

    Args:
        look: reads the group's rows.
        failover: seconds after which a lease that stands still has no owner any more.
        sleep: waits.
    """
    first = _leases(look)
    now, left = first, failover + 1.0
    while left > 0 and any(lease.holder is not None and not lease.expired for lease in now.values()):
        sleep(min(1.0, left))
        left -= 1.0
        now = _leases(look)
        moved = {str(lease.holder) for key, lease in now.items() if lease.holder and _has_moved(first.get(key), lease)}
        if moved:
            return moved
    return set()


def _leases(look: Callable[[], Mapping[str, Row]]) -> dict[str, Lease]:
    return {key: row.lease for key, row in look().items()}


def _has_moved(before: Lease | None, now: Lease) -> bool:
    return before is None or (before.holder, before.version) != (now.holder, now.version)


# Stores.


class RedisStore:
    """The keys of `RedisCheckPointer`.

    Args:
        client: of redis.
        failover: seconds without a renewal after which a lease is free.
    """

    def __init__(self, client: Any, failover: float) -> None:  # noqa: ANN401
        self._client = client
        self._failover = failover

    def groups(self) -> list[str]:
        """By the keys."""
        keys = (_text(key) for key in self._client.scan_iter(match="pyredis-*", count=1000))
        return sorted({key.removeprefix("pyredis-").rpartition("-shardId-")[0] for key in keys} - {""})

    def rows(self, group: str, shards: Sequence[Shard]) -> dict[str, Row]:
        """By one script."""
        ids = [shard.shard_id for shard in shards]
        answer = self._client.eval(redis_leases.LOOK, len(ids), *(_key(group, shard_id) for shard_id in ids))
        leases = {lease.key: lease for lease in redis_leases.leases(ids, answer, self._failover)}
        texts = dict(zip(ids, map(_text, answer[2:]), strict=True))
        return {
            shard_id: Row(lease, json.loads(texts[shard_id]).get("sequence"), texts[shard_id])
            for shard_id, lease in leases.items()
        }

    def write(self, group: str, shard: Shard, row: Row | None, position: str) -> bool:
        """By one script, which compares the text."""
        value = {} if row is None else json.loads(row.raw)
        value |= {"ref": None, "ts": None}
        value.pop("ended", None)
        if position == SHARD_END:
            value |= {"ended": True, "sequence": value.get("sequence")}
        else:
            value["sequence"] = position
        script = """
        local text = redis.call('GET', KEYS[1])
        if (text or '') ~= ARGV[1] then return 0 end
        redis.call('SET', KEYS[1], ARGV[2])
        return 1
        """
        seen = "" if row is None else row.raw
        return bool(self._client.eval(script, 1, _key(group, shard.shard_id), seen, json.dumps(value)))


def _key(group: str, shard_id: str) -> str:
    return f"pyredis-{group}-{shard_id}"


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class _Tables:
    """Tables of DynamoDB, an item a shard.

    Args:
        client: of boto3.
        table: of all groups, instead of the one that a group's name says.
    """

    key: str

    def __init__(self, client: Any, table: str | None = None) -> None:  # noqa: ANN401
        self._client = client
        self._table = table

    def _items(self, group: str) -> list[dict[str, Any]]:
        pages = self._client.get_paginator("scan").paginate(TableName=self._name(group), ConsistentRead=True)
        with self._named(group):
            items = [item for page in pages for item in page["Items"]]
        if any("S" not in item.get(self.key, {}) for item in items):
            raise self._error(group, "Scan", f"its items have no text {self.key}: it is no table of this kind")
        return [item for item in items if item[self.key]["S"].startswith("shardId-")]

    @contextmanager
    def _named(self, group: str) -> Iterator[None]:
        """Have errors of calls name the table."""
        try:
            yield
        except self._client.exceptions.ClientError as error:
            raise self._error(group, error.operation_name, str(error), is_lasting=is_lasting(error)) from error

    def _error(self, group: str, operation: str, said: str, *, is_lasting: bool = True) -> CheckpointTableError:
        table, account = self._name(group), account_of_arn(self._name(group)) or account_of_arn(said)
        where = f"{operation} of DynamoDB table {table} in {self._client.meta.region_name}"
        where += "" if account is None else f", account {account}"
        return CheckpointTableError(f"{where}: {said}", operation, table, account, is_lasting=is_lasting)

    def _name(self, group: str) -> str:
        raise NotImplementedError

    def _tables(self) -> list[str]:
        return [name for page in self._client.get_paginator("list_tables").paginate() for name in page["TableNames"]]

    def _change(
        self, group: str, shard_id: str, set_: dict[str, Any], remove: Sequence[str], seen: dict[str, Any]
    ) -> bool:
        """Change an item in which these attributes are as they were; None for one that was missing."""
        names = {f"#{name}": name for name in {*set_, *remove, *seen}}
        conditions = [
            f"attribute_not_exists(#{name})" if value is None else f"#{name} = :seen_{name}"
            for name, value in seen.items()
        ]
        values = {f":{name}": value for name, value in set_.items()}
        values |= {f":seen_{name}": value for name, value in seen.items() if value is not None}
        with self._named(group):
            try:
                self._client.update_item(
                    TableName=self._name(group),
                    Key={self.key: {"S": shard_id}},
                    UpdateExpression=_expression(set_, remove),
                    ConditionExpression=" AND ".join(conditions),
                    ExpressionAttributeNames=names,
                    ExpressionAttributeValues=values,
                )
            except self._client.exceptions.ConditionalCheckFailedException:
                return False
        return True


def _expression(set_: Mapping[str, Any], remove: Sequence[str]) -> str:
    parts = ["SET " + ", ".join(f"#{name} = :{name}" for name in set_)]
    if remove:
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in remove))
    return " ".join(parts)


class DynamoDBStore(_Tables):
    """The tables of `DynamoDBCheckPointer`.

    Args:
        client: of boto3.
        failover: seconds without a renewal after which a lease is free.
        table: if the group has another one than ``kinesis-checkpoints-<name>``.
    """

    key = "shard_id"
    _prefix = "kinesis-checkpoints-"

    def __init__(self, client: Any, failover: float, table: str | None = None) -> None:  # noqa: ANN401
        super().__init__(client, table)
        self._failover = failover

    def _name(self, group: str) -> str:
        return self._table or f"{self._prefix}{group}"

    def groups(self) -> list[str]:
        """By the tables' names."""
        return [name.removeprefix(self._prefix) for name in self._tables() if name.startswith(self._prefix)]

    def rows(self, group: str, shards: Sequence[Shard]) -> dict[str, Row]:
        """By a scan."""
        del shards
        found = {}
        for item in self._items(group):
            lease = dynamodb_leases.lease(item, time.time(), self._failover)
            found[lease.key] = Row(lease, item.get("sequence", {}).get("S"), item)
        return found

    def write(self, group: str, shard: Shard, row: Row | None, position: str) -> bool:
        """By one conditional update."""
        item = {} if row is None else row.raw
        seen = {name: item.get(name) for name in ("ref", "ts", "sequence")}
        if position == SHARD_END:
            return self._change(group, shard.shard_id, {"ended": {"BOOL": True}}, ["ref", "ts", "ttl"], seen)
        return self._change(group, shard.shard_id, {"sequence": {"S": position}}, ["ref", "ts", "ttl", "ended"], seen)


class KCLStore(_Tables):
    """KCL's lease tables.

    Args:
        client: of boto3.
        table: if the application has another one than its name says.
    """

    key = "leaseKey"

    def _name(self, group: str) -> str:
        return self._table or group

    def groups(self) -> list[str]:
        """The tables whose hash key is `leaseKey`."""
        described = (self._client.describe_table(TableName=name)["Table"] for name in self._tables())
        return [table["TableName"] for table in described if table["KeySchema"][0]["AttributeName"] == self.key]

    def rows(self, group: str, shards: Sequence[Shard]) -> dict[str, Row]:
        """By a scan."""
        del shards
        found = {}
        for item in self._items(group):
            position = item["checkpoint"]["S"]
            if position.isdecimal():
                sub = int(item.get("checkpointSubSequenceNumber", {}).get("N", 0))
                position = str(Place(position, None if sub == _LAST_SUB_SEQUENCE_NUMBER else sub))
            lease = kcl_leases.lease(item)
            found[lease.key] = Row(lease, position, item)
        return found

    def write(self, group: str, shard: Shard, row: Row | None, position: str) -> bool:
        """By one conditional update; a lease that is not there is made."""
        sequence, sub = Place.parse(position) or Place(position, 0)
        values: dict[str, Any] = {
            "checkpoint": {"S": sequence},
            "checkpointSubSequenceNumber": {"N": str(_LAST_SUB_SEQUENCE_NUMBER if sub is None else sub)},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
            "leaseCounter": {"N": "0" if row is None else str(row.lease.version + 1)},  # type: ignore[operator]
        }
        if row is None:
            low, high = shard.hash_range
            values |= {"startingHashKey": {"S": str(low)}, "endingHashKey": {"S": str(high)}}
            if shard.parents:
                values["parentShardId"] = {"SS": sorted(shard.parents)}
            return self._change(group, shard.shard_id, values, (), {"leaseKey": None})
        pending = ("pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState")
        remove = ("leaseOwner", "checkpointOwner", *pending)
        return self._change(group, shard.shard_id, values, remove, {"leaseCounter": row.raw["leaseCounter"]})


def redis_client() -> Any:  # noqa: ANN401
    """A client of the server that REDIS_HOST, REDIS_PORT, REDIS_PASSWORD and REDIS_DB name.

    Raises:
        ImportError: redis is not installed.
        ValidationError: a variable that cannot be meant.
    """
    import redis

    return redis.Redis(**server_options())
