"""Positions and leases in DynamoDB.

A shard is an item: `shard_id`, `ref` (its owner), `ts` (its last renewal, in seconds), `sequence` (its position) and
`ttl`. Each step is one conditional update. `ref` and `ts` are missing while the shard is free, or null as async-kinesis
has it.

Rules:
- A shard that has an owner has no `ttl`: DynamoDB deletes the items of free shards alone, `ttl_hours` after they were
  given back.
- Ages are counted by the clocks of the consumers: those that differ by more than `session_timeout` take each other's
  shards. Nothing is overwritten then, either; the records since the last position are read twice.
"""

from __future__ import annotations

import time

from fastkcl.kinesis.checkpoints.dynamodb_table import Item, Table, number, string
from fastkcl.kinesis.checkpoints.leased import LeasedCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict, ValidationError

__all__ = ["DynamoDBCheckPointer"]

_NAMES = {"#ref": "ref", "#ts": "ts", "#sequence": "sequence", "#ttl": "ttl"}


class DynamoDBCheckPointer(LeasedCheckPointer):
    """A checkpointer in a table of DynamoDB. See `LeasedCheckPointer`.

    Args:
        name: of the group of consumers.
        table_name: default ``kinesis-checkpoints-<name>``.
        id: of this one.
        session_timeout: seconds, kept to the next whole one.
        heartbeat_frequency: seconds.
        auto_checkpoint: False keeps positions until `manual_checkpoint`.
        create_table: create the table if it is not there.
        endpoint_url: another DynamoDB.
        region_name: default: that of the environment, else us-east-1.
        ttl_hours: how long the position of a shard is kept that was given back.

    Raises:
        ValidationError: an argument that cannot be meant.
    """

    def __init__(
        self,
        name: str,
        table_name: str | None = None,
        id: str | int | None = None,  # noqa: A002
        session_timeout: float = 60,
        heartbeat_frequency: float = 15,
        auto_checkpoint: bool = True,
        create_table: bool = True,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        ttl_hours: float = 24,
    ) -> None:
        super().__init__(
            name,
            id,
            session_timeout=session_timeout,
            heartbeat_frequency=heartbeat_frequency,
            auto_checkpoint=auto_checkpoint,
        )
        if ttl_hours <= 0:
            raise ValidationError(
                f"ttl_hours has to be more than 0, not {ttl_hours}: it is how long positions are kept"
            )
        self.ttl_hours = ttl_hours
        self._now = time.time
        self._table = Table(
            table_name or f"kinesis-checkpoints-{name}",
            "shard_id",
            create=create_table,
            ttl="ttl",
            endpoint_url=endpoint_url,
            region_name=region_name,
        )

    async def _update(self, shard_id: str, expression: str, condition: str, **values: dict[str, str]) -> Item | None:
        text = expression + condition
        names = {placeholder: name for placeholder, name in _NAMES.items() if placeholder in text}
        given = {f":{name}": value for name, value in values.items()}
        return await self._table.update(shard_id, expression, condition, names, given)

    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        now = int(self._now())
        item = await self._update(
            shard_id,
            "SET #ref = :ref, #ts = :now REMOVE #ttl",
            # Whole seconds: more than the timeout apart, they are at least the timeout apart.
            "attribute_not_exists(#ref) OR attribute_type(#ref, :null) OR #ref = :ref OR #ts < :oldest",
            ref=string(self.get_ref()),
            now=number(now),
            null=string("NULL"),
            oldest={"N": str(now - self.session_timeout)},
        )
        if item is None:
            return False, None
        return True, item.get("sequence", {}).get("S")

    async def _owned(self, shard_id: str, expression: str, **values: dict[str, str]) -> None:
        item = await self._update(
            shard_id, expression, "#ref = :ref", ref=string(self.get_ref()), now=number(int(self._now())), **values
        )
        if item is None:
            raise CheckpointOwnershipConflict(
                f"{shard_id} in table {self._table.name} no longer belongs to {self.get_ref()}: nothing was written"
            )

    async def _store(self, shard_id: str, position: str) -> None:
        await self._owned(shard_id, "SET #sequence = :sequence, #ts = :now", sequence=string(position))

    async def _renew(self, shard_id: str) -> None:
        await self._owned(shard_id, "SET #ts = :now")

    async def _release(self, shard_id: str) -> None:
        expires = int(self._now() + self.ttl_hours * 3600)
        await self._update(
            shard_id, "SET #ttl = :ttl REMOVE #ref, #ts", "#ref = :ref", ref=string(self.get_ref()), ttl=number(expires)
        )

    async def _disconnect(self) -> None:
        await self._table.close()
