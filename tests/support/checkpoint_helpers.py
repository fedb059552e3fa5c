"""Shared by tests of checkpointers: coroutines as tests, and one handle for every backend."""

from __future__ import annotations

import abc
import asyncio
import functools
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import redis
from fastkcl.kinesis.checkpoints import DynamoDBCheckPointer, KCLCheckPointer, LeasedCheckPointer, RedisCheckPointer
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import LocalAws, steal_lease
from local_aws_helpers import client

A, B = "shardId-000000000000", "shardId-000000000001"
HEARTBEAT = 1.0
"""Seconds between two heartbeats, and the bound of each: a busy server takes longer than tenths of one."""
ALL_HASH_KEYS = (0, 2**128 - 1)


def awaited(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A coroutine as a test, in an event loop of its own, which has no task left at the end."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def whole() -> None:
            await test(*arguments, **named)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left

        asyncio.run(whole())

    return run


class Backend(abc.ABC):
    """A kind of checkpointer, and what others see of it, or do to it, behind its back.

    Args:
        group: a name of its own for each test.
    """

    def __init__(self, group: str) -> None:
        self.group = group

    @abc.abstractmethod
    async def make(self, id: str | None, **options: Any) -> LeasedCheckPointer:
        """A checkpointer of the group."""

    def owner(self, id: str) -> str:
        """How the backend names it."""
        return f"{self.group}/{id}"

    def position(self, number: int) -> str:
        """A position as the backend gives it back."""
        return str(10**55 + number)

    @abc.abstractmethod
    def stored(self, shard_id: str) -> tuple[str | None, str | None]:
        """Owner and position of a shard."""

    @abc.abstractmethod
    def steal(self, shard_id: str) -> None:
        """Make it a thief's."""

    @abc.abstractmethod
    def touch(self, shard_id: str) -> Callable[[], bool]:
        """Whether the owner has renewed the shard since now."""

    @abc.abstractmethod
    async def outlive(self, checkpointer: LeasedCheckPointer, shard_id: str) -> None:
        """Let a session pass in which the owner of the shard gives no sign of life to a checkpointer."""

    first: str | None = None
    """The position of a shard that has none."""


class Redis(Backend):
    def __init__(self, group: str, variables: dict[str, str]) -> None:
        super().__init__(group)
        self.client = redis.Redis(host=variables["REDIS_HOST"], port=int(variables["REDIS_PORT"]))

    async def make(self, id: str | None, **options: Any) -> LeasedCheckPointer:
        return RedisCheckPointer(self.group, id, **options)

    def value(self, shard_id: str) -> dict[str, Any]:
        return dict(json.loads(self.client.get(f"pyredis-{self.group}-{shard_id}")))

    def write(self, shard_id: str, **change: Any) -> None:
        self.client.set(f"pyredis-{self.group}-{shard_id}", json.dumps({**self.value(shard_id), **change}))

    def stored(self, shard_id: str) -> tuple[str | None, str | None]:
        value = self.value(shard_id)
        return value["ref"], value["sequence"]

    def steal(self, shard_id: str) -> None:
        self.write(shard_id, ref="thief", ts=int(time.time()))

    def touch(self, shard_id: str) -> Callable[[], bool]:
        self.write(shard_id, ts=1)
        return lambda: bool(self.value(shard_id)["ts"] > 1)

    async def outlive(self, checkpointer: LeasedCheckPointer, shard_id: str) -> None:
        self.write(shard_id, ts=self.value(shard_id)["ts"] - checkpointer.session_timeout - 1)


class _OfDynamoDB(Backend):
    key: str

    def __init__(self, group: str, aws: LocalAws) -> None:
        super().__init__(group)
        self.client = client(aws, "dynamodb")

    @property
    @abc.abstractmethod
    def table(self) -> str:
        """Its name."""

    def item(self, shard_id: str) -> dict[str, Any]:
        answer = self.client.get_item(TableName=self.table, Key={self.key: {"S": shard_id}}, ConsistentRead=True)
        return {name: next(iter(value.values())) for name, value in answer["Item"].items()}

    def remove(self, *shard_ids: str) -> None:
        for shard_id in shard_ids:
            self.client.delete_item(TableName=self.table, Key={self.key: {"S": shard_id}})

    def set(self, shard_id: str, **values: dict[str, Any]) -> None:
        self.client.update_item(
            TableName=self.table,
            Key={self.key: {"S": shard_id}},
            AttributeUpdates={name: {"Value": value, "Action": "PUT"} for name, value in values.items()},
        )


class DynamoDB(_OfDynamoDB):
    key = "shard_id"

    @property
    def table(self) -> str:
        return f"kinesis-checkpoints-{self.group}"

    async def make(self, id: str | None, **options: Any) -> LeasedCheckPointer:
        return DynamoDBCheckPointer(self.group, id=id, **options)

    def stored(self, shard_id: str) -> tuple[str | None, str | None]:
        item = self.item(shard_id)
        return item.get("ref"), item.get("sequence")

    def steal(self, shard_id: str) -> None:
        self.set(shard_id, ref={"S": "thief"}, ts={"N": str(int(time.time()))})

    def touch(self, shard_id: str) -> Callable[[], bool]:
        self.set(shard_id, ts={"N": "1"})
        return lambda: int(self.item(shard_id)["ts"]) > 1

    async def outlive(self, checkpointer: LeasedCheckPointer, shard_id: str) -> None:
        old = int(self.item(shard_id)["ts"]) - int(checkpointer.session_timeout) - 1
        self.set(shard_id, ts={"N": str(old)})


class KCL(_OfDynamoDB):
    key = "leaseKey"
    first = "TRIM_HORIZON"

    @property
    def table(self) -> str:
        return self.group

    async def make(self, id: str | None, **options: Any) -> LeasedCheckPointer:
        times = {"session_timeout": 60, "heartbeat_frequency": 30}  # which move no counter in the course of a test
        checkpointer = KCLCheckPointer(self.group, id=id, **{**times, **options})
        await checkpointer.shards_listed([Shard(shard_id=shard_id, hash_range=ALL_HASH_KEYS) for shard_id in (A, B)])
        return checkpointer

    def owner(self, id: str) -> str:
        return id

    def position(self, number: int) -> str:
        return f"{super().position(number)}/0"

    def stored(self, shard_id: str) -> tuple[str | None, str | None]:
        item = self.item(shard_id)
        place = item["checkpoint"]
        return item.get("leaseOwner"), f"{place}/{item['checkpointSubSequenceNumber']}" if place.isdecimal() else place

    def steal(self, shard_id: str) -> None:
        steal_lease(self.client, application=self.table, shard_id=shard_id)

    def touch(self, shard_id: str) -> Callable[[], bool]:
        counter = int(self.item(shard_id)["leaseCounter"])
        return lambda: int(self.item(shard_id)["leaseCounter"]) > counter

    async def outlive(self, checkpointer: LeasedCheckPointer, shard_id: str) -> None:
        assert await checkpointer.allocate(shard_id) == (False, None)  # the first look at the counter
        clock, session = checkpointer._clock, checkpointer.session_timeout
        checkpointer._clock = lambda: clock() + session + 1
