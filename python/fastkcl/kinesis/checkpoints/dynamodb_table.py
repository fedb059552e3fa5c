"""A DynamoDB table with one item for each shard: the calls of the checkpointers in DynamoDB.

Rules: items and values have the form of the wire (``{"S": "text"}``). Reads are consistent. A write whose condition is
not met returns None; this is not an error. The client is made by the first call, and made again after `close`.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastkcl.kinesis.checkpoints.table_errors import account_of_arn, is_lasting, is_unreachable, table_error
from fastkcl.kinesis.event_loops import cut_off_in_silence
from fastkcl.kinesis.exceptions import CheckpointTableError, ValidationError
from fastkcl.kinesis.sessions import check_session, has_http_session, masked, new_session
from fastkcl.stdio.log import module_logger

__all__ = ["Item", "Table", "number", "string"]

log = module_logger(__name__)

Item = Mapping[str, Mapping[str, Any]]

FIRST_SECONDS = 8.0
"""Until a table that does not answer is reported to be away."""
FIRST_LOOKS = 8
CONNECT_TIMEOUT, READ_TIMEOUT = 5, 10  # seconds

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
        region_name: by default that of the environment, else of the session's profile, else of `bind_region`, else
            us-east-1.
        session: aiobotocore's; a new one by default.

    Raises:
        TypeError: `session` is not a session of aiobotocore.
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
        session: Any = None,  # noqa: ANN401 - aiobotocore has no types
    ) -> None:
        check_session(session)
        self.name = name
        self._key = key
        self._create = create
        self._ttl = ttl
        self._endpoint_url = endpoint_url
        self._given_region = region_name
        self._bound_region: str | None = None
        self._given_session = session
        self._session: Any = None
        self._account: str | None = None
        self._stack = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()

    def bind_region(self, region_name: str | None) -> None:
        """The region where no other is given."""
        self._bound_region = region_name

    def _region_of(self, session: Any) -> str:  # noqa: ANN401
        environment = next(filter(None, map(os.environ.get, _REGIONS)), None)
        region: str | None = self._given_region or environment or session.get_config_variable("region")
        return region or self._bound_region or "us-east-1"

    def again(self) -> Table:
        """The same table with a separate client, for another event loop."""
        table = copy.copy(self)
        table._stack, table._client, table._opening = AsyncExitStack(), None, asyncio.Lock()
        return table

    async def read(self, key: str) -> Item | None:
        """An item, or None."""
        answer = await self._call("GetItem", Key={self._key: string(key)}, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    async def read_all(self) -> list[Item]:
        """All items."""
        items: list[Item] = []
        page: dict[str, Any] = {}
        while True:
            answer = await self._call("Scan", ConsistentRead=True, **page)
            items += answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return items
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def put_new(self, key: str, item: Item) -> bool:
        """Write an item unless there is one with its key; whether it was written."""
        answer = await self._call(
            "PutItem",
            Item={self._key: string(key), **item},
            ConditionExpression="attribute_not_exists(#key)",
            ExpressionAttributeNames={"#key": self._key},
        )
        return answer is not None

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
        answer = await self._call(
            "UpdateItem",
            Key={self._key: string(key)},
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_NEW",
        )
        item: Item | None = None if answer is None else answer["Attributes"]
        return item

    async def close(self) -> None:
        """Close the client."""
        self._client = None
        await self._stack.aclose()

    async def _call(self, operation: str, **request: object) -> Any:  # noqa: ANN401
        """Call the service; None if the request's condition is not met."""
        from botocore import xform_name

        client = await self.open()
        try:
            with cut_off_in_silence():
                return await getattr(client, xform_name(operation))(TableName=self.name, **request)
        except client.exceptions.ConditionalCheckFailedException:
            return None
        except Exception as error:
            if not (is_lasting(error) or is_unreachable(error)):
                raise
            raise await self._named(error, operation) from error

    async def _named(self, error: BaseException, operation: str) -> CheckpointTableError:
        return await table_error(
            error,
            operation,
            self.name,
            self._region_of(self._session),
            self._session,
            self._endpoint_url,
            self._account,
        )

    async def open(self) -> Any:  # noqa: ANN401 - aiobotocore's clients have no types
        """The client, connected; the table is there.

        Raises:
            ValidationError: there is no such table, or it has another key.
            CheckpointTableError: it cannot be used, or does not answer.
        """
        async with self._opening:
            if self._client is None:
                from aiobotocore.config import AioConfig

                from fastkcl.kinesis.read.bodies import GatedSession

                self._session = self._session or self._given_session or new_session()
                config = AioConfig(
                    connect_timeout=CONNECT_TIMEOUT,
                    read_timeout=READ_TIMEOUT,
                    retries={"mode": "standard", "max_attempts": 3},
                    **({} if has_http_session(self._session) else {"http_session_cls": GatedSession}),
                )
                region = self._region_of(self._session)
                operation = "DescribeTable"
                try:
                    client = await self._stack.enter_async_context(
                        self._session.create_client(
                            "dynamodb", endpoint_url=self._endpoint_url, region_name=region, config=config
                        )
                    )
                    masked(client)
                    is_there = await self._look(client)
                    if not is_there:
                        operation = "CreateTable"
                        await self._make(client)
                except BaseException as error:
                    await self._stack.aclose()
                    if isinstance(error, Exception) and (is_lasting(error) or is_unreachable(error)):
                        raise await self._named(error, operation) from error
                    raise
                self._client = client
            return self._client

    async def _look(self, client: Any) -> bool:  # noqa: ANN401
        """Whether the table exists. It waits for a slow service, and reports it as away in that time."""
        looking = asyncio.create_task(self._is_there(client), name=f"look at table {self.name}")
        try:
            for _ in range(FIRST_LOOKS):  # one long wait would count a loop blocked by the program as silence
                await asyncio.wait([looking], timeout=FIRST_SECONDS / FIRST_LOOKS)
            if not looking.done():
                silence = TimeoutError(f"for {FIRST_SECONDS:g} s; it is waited for")
                log.warning("%s", await self._named(silence, "DescribeTable"))
            return await looking
        finally:
            if not looking.done():
                looking.cancel()
                await asyncio.wait([looking])

    async def _is_there(self, client: Any) -> bool:  # noqa: ANN401
        """Whether there is such a table.

        Raises:
            ValidationError: the table is not there, or has another key.
        """
        try:
            table = (await client.describe_table(TableName=self.name))["Table"]
        except client.exceptions.ResourceNotFoundException:
            if self._create:
                return False
            region = self._region_of(self._session)
            raise ValidationError(
                f"there is no DynamoDB table {self.name} in {region}; create_table=True makes it"
            ) from None
        self._account = account_of_arn(table.get("TableArn", ""))
        keys = [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]]
        types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
        if keys != [(self._key, "HASH")] or types.get(self._key) != "S":
            raise ValidationError(
                f"DynamoDB table {table.get('TableArn', self.name)} has the key {keys}, and not the text "
                f"{self._key}: it is not a table of positions of this kind"
            )
        return True

    async def _make(self, client: Any) -> None:  # noqa: ANN401
        try:
            answer = await client.create_table(
                TableName=self.name,
                KeySchema=[{"AttributeName": self._key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": self._key, "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        except client.exceptions.ResourceInUseException:
            created = False  # by somebody else, just now
        else:
            created = True
            self._account = account_of_arn(answer["TableDescription"].get("TableArn", ""))
        await client.get_waiter("table_exists").wait(TableName=self.name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        if created and self._ttl is not None:
            try:
                await client.update_time_to_live(
                    TableName=self.name,
                    TimeToLiveSpecification={"Enabled": True, "AttributeName": self._ttl},
                )
            except client.exceptions.ClientError as error:
                log.warning("table %s: expired items stay, as the table has no time to live: %s", self.name, error)
