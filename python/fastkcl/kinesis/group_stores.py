"""The stores of groups' positions, one for each checkpointer: keys in Redis, tables in DynamoDB, KCL's table.

Rules: calls block. A position is written only if its row has not changed since it was read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastkcl.kinesis.checkpoints.base import SHARD_END, Place
from fastkcl.kinesis.checkpoints.redis import server_options
from fastkcl.kinesis.checkpoints.table_errors import account_of_arn, is_lasting
from fastkcl.kinesis.exceptions import CheckpointTableError
from fastkcl.kinesis.failures import pages_of
from fastkcl.kinesis.groups import Row
from fastkcl.kinesis.topology import Shard
from fastkcl.leases import dynamodb as dynamodb_leases
from fastkcl.leases import kcl as kcl_leases
from fastkcl.leases import redis as redis_leases

__all__ = ["DynamoDBStore", "KCLStore", "RedisStore", "redis_client"]

_LAST_SUB_SEQUENCE_NUMBER = 2**63 - 1


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
        pages = pages_of(self._client, "scan", TableName=self._name(group), ConsistentRead=True)
        with self._named(group):
            items = [item for page in pages for item in page["Items"]]
        if any("S" not in item.get(self.key, {}) for item in items):
            raise self._error(group, "Scan", f"its items have no text {self.key}: it is not a table of this kind")
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
        return [name for page in pages_of(self._client, "list_tables") for name in page["TableNames"]]

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
