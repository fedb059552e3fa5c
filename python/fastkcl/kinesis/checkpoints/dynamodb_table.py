"""A DynamoDB table with one item a shard: what the checkpointers in DynamoDB ask of it.

Rules: items and values are the wire's (``{"S": "text"}``); reads are consistent; a write whose condition is not met is
None, not an error. The client is made by the first call, and made again after `close`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastkcl.kinesis.exceptions import ValidationError

__all__ = ["Item", "Table", "number", "string"]

log = logging.getLogger(__name__)

Item = Mapping[str, Mapping[str, Any]]

_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def string(text: str) -> dict[str, str]:
    """The value of a text."""
    return {"S": text}


def number(value: int) -> dict[str, str]:
    """The value of a number."""
    return {"N": str(value)}


class Table:
    """A table whose hash key is a text.

    Args:
        name: the table's.
        key: the hash key's name.
        create: create it if it is not there.
        ttl: attribute with the time at which an item may be deleted; a table that is created has it switched on.
        endpoint_url: another DynamoDB.
        region_name: default: that of the environment, else us-east-1.
    """

    def __init__(
        self,
        name: str,
        key: str,
        *,
        create: bool,
        ttl: str | None = None,
        endpoint_url: str | None = None,
        region_name: str | None = None,
    ) -> None:
        self.name = name
        self._key = key
        self._create = create
        self._ttl = ttl
        self._endpoint_url = endpoint_url
        self._region_name = region_name or next(filter(None, map(os.environ.get, _REGIONS)), "us-east-1")
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()

    async def read(self, key: str) -> Item | None:
        """An item, or None."""
        client = await self._open()
        answer = await client.get_item(TableName=self.name, Key={self._key: string(key)}, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    async def put_new(self, key: str, item: Item) -> bool:
        """Write an item if there is none of its key; whether it was written."""
        client = await self._open()
        try:
            await client.put_item(
                TableName=self.name,
                Item={self._key: string(key), **item},
                ConditionExpression="attribute_not_exists(#key)",
                ExpressionAttributeNames={"#key": self._key},
            )
        except client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    async def update(
        self, key: str, expression: str, condition: str, names: Mapping[str, str], values: Item
    ) -> Item | None:
        """Change an item if the condition is met.

        Args:
            key: which one.
            expression: e.g. ``SET #ts = :now REMOVE #ttl``.
            condition: e.g. ``#ref = :ref``.
            names: attributes by their placeholders.
            values: by their placeholders.

        Returns:
            The item as it is now, or None if the condition is not met.
        """
        client = await self._open()
        try:
            answer = await client.update_item(
                TableName=self.name,
                Key={self._key: string(key)},
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
                ReturnValues="ALL_NEW",
            )
        except client.exceptions.ConditionalCheckFailedException:
            return None
        item: Item = answer["Attributes"]
        return item

    async def close(self) -> None:
        """Close the client."""
        self._client = None
        await self._stack.aclose()

    async def _open(self) -> Any:  # noqa: ANN401 - aiobotocore's clients have no types
        async with self._opening:
            if self._client is None:
                from aiobotocore.config import AioConfig
                from aiobotocore.session import get_session

                config = AioConfig(connect_timeout=5, read_timeout=10, retries={"mode": "standard", "max_attempts": 3})
                client = await self._stack.enter_async_context(
                    get_session().create_client(
                        "dynamodb", endpoint_url=self._endpoint_url, region_name=self._region_name, config=config
                    )
                )
                try:
                    await self._find(client)
                except BaseException:
                    await self._stack.aclose()
                    raise
                self._client = client
            return self._client

    async def _find(self, client: Any) -> None:  # noqa: ANN401
        try:
            await client.describe_table(TableName=self.name)
        except client.exceptions.ResourceNotFoundException:
            if not self._create:
                raise ValidationError(
                    f"there is no DynamoDB table {self.name} in {self._region_name}; create_table=True makes it"
                ) from None
        else:
            return
        try:
            await client.create_table(
                TableName=self.name,
                KeySchema=[{"AttributeName": self._key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": self._key, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except client.exceptions.ResourceInUseException:
            created = False  # by somebody else, just now
        else:
            created = True
        await client.get_waiter("table_exists").wait(TableName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        if created and self._ttl is not None:
            try:
                await client.update_time_to_live(
                    TableName=self.name,
                    TimeToLiveSpecification={"Enabled": True, "AttributeName": self._ttl},
                )
            except client.exceptions.ClientError as error:
                log.warning("table %s: items that are out of date stay, there is no time to live: %s", self.name, error)
