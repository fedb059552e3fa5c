"""Positions and leases in DynamoDB.

A shard is an item: `shard_id`, `ref` (its owner), `ts` (its last renewal, in seconds), `sequence` (its position),
`stream` (the stream's name), `ttl`, and `ended`, which is true when nobody needs it any more. Each step is one
conditional update. `ref` and `ts` are missing while the shard is free, or null as async-kinesis has it.

Rules:
- A position has no `ttl` while the stream lists its shard, because a restart needs it. DynamoDB deletes only items of
  shards that the stream no longer has, `ttl_hours` after this was seen.
- Consumers that share shards evenly take a shard whose item has not changed for `session_timeout`. `allocate` without
  `share`, and with ``balance=False``, compares the clocks of the consumers: if these differ by more than
  `session_timeout`, consumers take each other's shards. Even then nothing is overwritten, but the records since the
  last position are read twice.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fastkcl.kinesis.bounds import MOST_SECONDS, check_number
from fastkcl.kinesis.checkpoints.base import SHARD_END
from fastkcl.kinesis.checkpoints.dynamodb_table import Item, Table, number, string
from fastkcl.kinesis.checkpoints.leased import LeasedCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict
from fastkcl.leases import Lease, Take
from fastkcl.leases import dynamodb as dynamodb_leases
from fastkcl.stdio.log import module_logger

if TYPE_CHECKING:
    from fastkcl.kinesis.topology import Shard

__all__ = ["DynamoDBCheckPointer"]

log = module_logger(__name__)

_NAMES = {name: name[1:] for name in ("#ref", "#ts", "#sequence", "#stream", "#ttl", "#ended", "#shard_id")}


class DynamoDBCheckPointer(LeasedCheckPointer):
    """A checkpointer in a table of DynamoDB. See `LeasedCheckPointer`.

    Args:
        name: of the group of consumers.
        table_name: default ``kinesis-checkpoints-<name>``.
        id: of this one.
        session_timeout: seconds, kept to the next whole one.
        heartbeat_frequency: seconds; by default 15, or less: a third of session_timeout.
        auto_checkpoint: False keeps positions until `manual_checkpoint`.
        create_table: create the table if it is not there.
        endpoint_url: another DynamoDB.
        region_name: by default that of the environment, else of the session's profile, else of the stream's ARN or
            client, else us-east-1.
        ttl_hours: how long the position of a shard is kept that the stream does not list any more.
        session: aiobotocore's AioSession, with its credentials; a new one by default.
        balance: False takes every shard that is free, and none of another consumer's that lives.

    Raises:
        ValidationError: an argument that cannot be meant.
        TypeError: an argument of another type.
    """

    _grain: ClassVar[float] = dynamodb_leases.GRAIN

    def __init__(
        self,
        name: str,
        table_name: str | None = None,
        id: str | int | None = None,  # noqa: A002
        session_timeout: float = 60,
        heartbeat_frequency: float | None = None,
        auto_checkpoint: bool = True,
        create_table: bool = True,
        endpoint_url: str | None = None,
        region_name: str | None = None,
        ttl_hours: float = 24,
        *,
        balance: bool = True,
        session: Any = None,  # noqa: ANN401 - aiobotocore has no types
    ) -> None:
        super().__init__(
            name,
            id,
            session_timeout=session_timeout,
            heartbeat_frequency=heartbeat_frequency,
            auto_checkpoint=auto_checkpoint,
            balance=balance,
        )
        most = MOST_SECONDS // 3600
        check_number("ttl_hours", ttl_hours, above=0, most=most, expected=f"above 0 h, up to {most:,.0f} h")
        self.ttl_hours = ttl_hours
        self._now = time.time
        self._listed: set[str] = set()
        self._gone: set[str] = set()  # shards that were listed, and whose items are to expire
        self._table = Table(
            table_name or f"kinesis-checkpoints-{name}",
            "shard_id",
            create=create_table,
            ttl="ttl",
            endpoint_url=endpoint_url,
            region_name=region_name,
            session=session,
        )

    def bind_stream(self, stream_name: str, region_name: str | None = None) -> None:
        """See `BaseCheckPointer.bind_stream`; the table is in the stream's region if no other is given."""
        super().bind_stream(stream_name, region_name)
        self._table.bind_region(region_name)

    async def shards_listed(self, shards: Sequence[Shard]) -> None:
        """Let the items of shards expire that the stream no longer lists."""
        self._enter_loop()
        listed = {shard.shard_id for shard in shards}
        self._gone = (self._gone | (self._listed - listed)) - listed
        self._listed = listed
        for shard_id in sorted(self._gone):
            expires = int(self._now() + self.ttl_hours * 3600)
            try:
                await self._update(
                    shard_id,
                    "SET #ttl = :ttl",
                    "attribute_exists(#shard_id) AND (attribute_not_exists(#ref) OR attribute_type(#ref, :null))",
                    ttl=number(expires),
                    null=string("NULL"),
                )
            except Exception as error:
                log.warning("%s stays in table %s, the next list tries again: %s", shard_id, self._table.name, error)
                return
            self._gone.discard(shard_id)

    async def _keep(self, shard_id: str) -> None:
        """Let a finished shard's item stay, to which a member of an earlier version has given a `ttl`."""
        try:
            await self._update(
                shard_id,
                "REMOVE #ttl",
                "attribute_exists(#ttl) AND (attribute_not_exists(#ref) OR attribute_type(#ref, :null))",
                null=string("NULL"),
            )
        except Exception as error:
            log.warning(
                "%s in table %s is to expire, and the stream still lists it; the next look tries again: %s",
                shard_id,
                self._table.name,
                error,
            )

    async def _update(self, shard_id: str, expression: str, condition: str, **values: dict[str, Any]) -> Item | None:
        text = expression + condition
        names = {placeholder: name for placeholder, name in _NAMES.items() if placeholder in text}
        given = {f":{name}": value for name, value in values.items()}
        return await self._table.update(shard_id, expression, condition, names, given)

    async def position(self, shard_id: str) -> str | None:
        """The position of a shard, with any owner; None if it has none."""
        self._enter_loop()
        item = await self._table.read(shard_id)
        return None if item is None else _position(item)

    async def positions(self, besides: Collection[str]) -> dict[str, str]:
        """The positions of all shards but these, with any owner."""
        self._enter_loop()
        items = {item["shard_id"]["S"]: item for item in await self._table.read_all()}
        return {
            shard_id: position
            for shard_id, item in items.items()
            if shard_id not in besides and (position := _position(item)) is not None
        }

    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        now = int(self._now())
        # Whole seconds: more than the timeout apart, they are at least the timeout apart.
        is_free = "attribute_not_exists(#ref) OR attribute_type(#ref, :null) OR #ref = :ref OR #ts < :oldest"
        bound = {} if self._stream is None else {"stream": string(self._stream)}
        item = await self._update(
            shard_id,
            "SET #ref = :ref, #ts = :now" + (", #stream = :stream" if bound else "") + " REMOVE #ttl",
            f"({is_free}) AND (attribute_not_exists(#stream) OR #stream = :stream)" if bound else is_free,
            ref=string(self.get_ref()),
            now=number(now),
            null=string("NULL"),
            oldest={"N": str(now - self.session_timeout)},
            **bound,
        )
        if item is None:
            held = await self._table.read(shard_id)
            kept = (held or {}).get("stream", {}).get("S")
            self._check_stream(kept, f"table {self._table.name}")
            return False, None
        return True, item.get("sequence", {}).get("S")

    async def _look(self, shard_ids: Collection[str]) -> list[Lease]:
        now = self._now()
        items = await self._table.read_all()
        for item in items:
            if "ttl" in item and "ended" in item and item["shard_id"]["S"] in self._listed:
                await self._keep(item["shard_id"]["S"])
        return [dynamodb_leases.lease(item, now, self.session_timeout) for item in items]

    async def _seize(self, shard_id: str, take: Take) -> tuple[bool, str | None]:
        condition, seen = dynamodb_leases.seize_condition(take)
        item = await self._update(
            shard_id,
            "SET #ref = :ref, #ts = :now REMOVE #ttl",
            condition,
            ref=string(self.get_ref()),
            now=number(int(self._now())),
            **seen,
        )
        return item is not None, None if item is None else item.get("sequence", {}).get("S")

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
        await self._update(shard_id, "REMOVE #ref, #ts", "#ref = :ref", ref=string(self.get_ref()))

    async def _finish(self, shard_id: str) -> None:
        await self._update(
            shard_id,
            "SET #ended = :yes REMOVE #ref, #ts",
            "#ref = :ref",
            ref=string(self.get_ref()),
            yes={"BOOL": True},
        )

    def _second(self) -> DynamoDBCheckPointer:
        second = copy.copy(self)
        second._table = self._table.again()
        return second

    async def _connect(self) -> None:
        await self._table.open()

    def _leave_loop(self) -> None:
        self._table = self._table.again()

    async def _disconnect(self) -> None:
        await self._table.close()


def _position(item: Item) -> str | None:
    """The position of an item that is not to be taken."""
    if "ended" in item:
        return SHARD_END
    position: str | None = item.get("sequence", {}).get("S")
    return position
