"""KCL's own lease table: a group of consumers that moves off the JVM, or back, and keeps its positions.

A lease is an item of the table that has the application's name:

===============================  =====================================================================================
``leaseKey``                     the shard
``leaseOwner``                   the worker that has it; missing while it is free
``leaseCounter``                 goes up by one with everything that is written, on condition that it is as it was read
``checkpoint``                   a sequence number, ``TRIM_HORIZON``, ``LATEST``, ``AT_TIMESTAMP`` or ``SHARD_END``
``checkpointSubSequenceNumber``  of a user record in an aggregate; 0 for a plain record
``ownerSwitchesSinceCheckpoint`` how many owners have come since the last checkpoint
``parentShardId``                a set; a worker waits until their leases are at ``SHARD_END``, or gone
``childShardIds``                a set, of a finished shard
``startingHashKey``, ``ending…`` the shard's hash keys
``checkpointOwner``              the worker that still has it, while KCL 3 hands the lease over to `leaseOwner`
``pendingCheckpoint``, ``…``     of a two-phase checkpoint, which a checkpoint takes away
``fastkclStream``                the stream's name, where one of ours has had the lease; KCL leaves it alone
===============================  =====================================================================================

No clock is compared with another one: a worker is gone when its counter has stood still for `session_timeout` seconds,
as watched from here. So a lease whose owner died is free no sooner than that after the first look at it.

Rules, which are KCL's (DynamoDBLeaseRefresher, DynamoDBLeaseRenewer, DynamoDBCheckpointer, ShutdownTask of 3.1):
- Every write is conditional on the counter, which is the lease's version. An update whose answer got lost is recognised
  by owner and counter, and does not lose the lease.
- The leases of a finished shard's children are there before its lease is at ``SHARD_END``.
- The load is balanced as KCL 2 does: a worker with less than its share takes a lease, of a live owner too. The owner
  notices at its next write.
- A lease that KCL 3 wants handed over is given up at the next heartbeat.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fastkcl.kinesis.checkpoints.base import SHARD_END, Place, left_behind, was_read
from fastkcl.kinesis.checkpoints.dynamodb_table import Item, Table, number, string
from fastkcl.kinesis.checkpoints.leased import LeasedCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict, ValidationError
from fastkcl.leases import Lease, Take, Why
from fastkcl.leases import kcl as kcl_leases

if TYPE_CHECKING:
    from fastkcl.kinesis.topology import Shard

__all__ = ["KCLCheckPointer"]

LAST_SUB_SEQUENCE_NUMBER = 2**63 - 1
"""After every user record of a record: the position of a record whose user records nobody has counted."""

ATTEMPTS = 3
"""How often an update is tried that finds an earlier one of ours, whose answer got lost."""

_FOLLOWS = "fastkclFollows"
"""Attribute of a lease of ours: its shard begins at its first record, after a shard that is gone."""
_PENDING = ("pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState")


class KCLCheckPointer(LeasedCheckPointer):
    """A checkpointer in the lease table of a KCL application. See `LeasedCheckPointer`.

    Args:
        name: the application's, which is the table's.
        table_name: if the table has another one.
        id: the worker's, as `leaseOwner` has it.
        session_timeout: KCL's ``failoverTimeMillis`` in seconds, and the same for all workers.
        heartbeat_frequency: seconds; by default 3, or less: a third of session_timeout, as KCL's.
        auto_checkpoint: False keeps positions until `manual_checkpoint`.
        create_table: create the table if it is not there; KCL adds the index that it needs.
        initial_position: of a lease that is not there yet, and has no parents: KCL's ``initialPositionInStream``. It
            wins over the consumer's `iterator_type`, as each position of a checkpointer does.
        endpoint_url: another DynamoDB.
        region_name: by default that of the environment, else of the session's profile, else of the stream's ARN or
            client, else us-east-1.
        session: aiobotocore's AioSession, with its credentials; a new one by default.
        balance: False takes every lease that is free, and none of another worker's that lives.

    Raises:
        ValidationError: an argument that cannot be meant.
        TypeError: an argument of another type.
    """

    sub_sequences: ClassVar[bool] = True
    _heartbeat: ClassVar[float] = 3.0

    def __init__(
        self,
        name: str,
        table_name: str | None = None,
        id: str | int | None = None,  # noqa: A002
        session_timeout: float = 10,
        heartbeat_frequency: float | None = None,
        auto_checkpoint: bool = True,
        create_table: bool = True,
        initial_position: str = "TRIM_HORIZON",
        endpoint_url: str | None = None,
        region_name: str | None = None,
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
        if initial_position not in ("TRIM_HORIZON", "LATEST"):
            raise ValidationError(f"initial_position has to be TRIM_HORIZON or LATEST, not {initial_position!r}")
        self._initial_position = initial_position
        self._owner = str(self.get_id())
        self._shards: dict[str, Shard] = {}
        self._counters: dict[str, int] = {}  # of our leases
        self._watched: dict[str, tuple[int, float]] = {}  # counters of others' leases, and since when
        self._table = Table(
            table_name or name,
            "leaseKey",
            create=create_table,
            endpoint_url=endpoint_url,
            region_name=region_name,
            session=session,
        )

    def bind_stream(self, stream_name: str, region_name: str | None = None) -> None:
        """See `BaseCheckPointer.bind_stream`; the table is in the stream's region if no other is given."""
        super().bind_stream(stream_name, region_name)
        self._table.bind_region(region_name)

    async def shards_listed(self, shards: Sequence[Shard]) -> None:
        """Note parents and hash keys, which leases have that are not there yet."""
        self._enter_loop()
        self._shards.update((shard.shard_id, shard) for shard in shards)

    async def shard_ended(self, shard_id: str) -> None:
        """Write ``SHARD_END``, and give the shard back; with ``auto_checkpoint=False`` at the next `manual_checkpoint`.

        Raises:
            CheckpointOwnershipConflict: the shard is not ours, or not any more.
        """
        await self.checkpoint(shard_id, SHARD_END)
        await self.deallocate(shard_id)

    async def begin_at_first(self, shard_id: str) -> None:
        """See `KeepsBeginnings`. KCL's own position of such a shard, ``TRIM_HORIZON``, is that of many others too.

        Raises:
            CheckpointOwnershipConflict: the shard is not ours, or not any more.
        """
        self._enter_loop()
        lease = self._ours(shard_id)
        async with lease.lock:
            with self._renewal(shard_id, lease):
                await self._write(shard_id, {_FOLLOWS: {"BOOL": True}})

    async def begins_at_first(self, shard_id: str) -> bool:
        """See `KeepsBeginnings`."""
        self._enter_loop()
        lease = await self._table.read(shard_id)
        return lease is not None and _FOLLOWS in lease

    @property
    def _member(self) -> str:
        return str(self.get_id())

    async def _look(self, shard_ids: Collection[str]) -> list[Lease]:
        return [kcl_leases.lease(item) for item in await self._table.read_all() if kcl_leases.is_of_shard(item)]

    async def share(self, shard_ids: Collection[str], *, restartable: bool = True) -> bool:
        """See `LeasedCheckPointer.share`. A lease at ``LATEST`` is never taken from a worker that lives."""
        del restartable  # the lease's own position wins over the consumer's
        return await super().share(shard_ids, restartable=False)

    async def _seize(self, shard_id: str, take: Take) -> tuple[bool, str | None]:
        seen, item = take.seen, await self._table.read(shard_id)
        if seen is None or item is None:
            return False, None
        lease = kcl_leases.lease(item)
        is_as_seen = (lease.owner, lease.heir, lease.finished) == (seen.owner, seen.heir, seen.finished)
        if not is_as_seen or (take.why is not Why.BALANCE and lease.version != seen.version):
            return False, None
        return await self._own(shard_id, item)

    async def position(self, shard_id: str) -> str | None:
        """The position of a shard, with any owner of its lease; None if there is no lease."""
        self._enter_loop()
        lease = await self._table.read(shard_id)
        return None if lease is None else _position(lease)

    async def positions(self, besides: Collection[str]) -> dict[str, str]:
        """The positions of all shards but these, with any owner of their leases."""
        self._enter_loop()
        leases = [lease for lease in await self._table.read_all() if kcl_leases.is_of_shard(lease)]
        found = {str(lease["leaseKey"]["S"]): _position(lease) for lease in leases}
        return {shard_id: position for shard_id, position in found.items() if shard_id not in besides}

    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        lease = await self._table.read(shard_id)
        if lease is None:
            await self._create(shard_id)
            lease = await self._table.read(shard_id)
        if lease is None:
            return False, None  # gone again
        self._check_stream(_text(lease, "fastkclStream"), f"table {self._table.name}")
        position = _position(lease)
        if position == SHARD_END:
            return False, SHARD_END
        is_others = _owner(lease) not in (None, self._owner)
        if is_others and not self._stands_still(shard_id, _number(lease, "leaseCounter")):
            return False, None
        return await self._own(shard_id, lease)

    async def _own(self, shard_id: str, lease: Item) -> tuple[bool, str | None]:
        """Own a lease that is as it was read."""
        self._counters[shard_id] = _number(lease, "leaseCounter")  # that of an earlier lease may be higher
        switches = _number(lease, "ownerSwitchesSinceCheckpoint") + (_owner(lease) not in (None, self._owner))
        taken = await self._update(
            shard_id,
            _number(lease, "leaseCounter"),
            {
                "leaseOwner": string(self._owner),
                "ownerSwitchesSinceCheckpoint": number(switches),
                **({} if self._stream is None else {"fastkclStream": string(self._stream)}),
            },
            remove=("checkpointOwner",),
        )
        if taken is None:
            return False, None  # somebody was quicker
        self._watched.pop(shard_id, None)
        return True, _position(taken)

    def _stands_still(self, shard_id: str, counter: int) -> bool:
        """Whether a counter has not moved for as long as a lease lasts."""
        watched, since = self._watched.get(shard_id, (None, 0.0))
        if watched != counter:
            self._watched[shard_id] = counter, self._clock()
            return False
        return self._clock() - since > self.session_timeout

    async def _create(self, shard_id: str) -> None:
        """Write a lease that nobody has, unless there is one."""
        shard = self._shards.get(shard_id)
        if shard is None:
            raise ValidationError(
                f"there is no lease of {shard_id} in table {self._table.name}, and none can be made before "
                "shards_listed was called with its parents"
            )
        is_child = any(parent in self._shards for parent in shard.parents)
        for parent in () if is_child else shard.parents:  # no longer listed, but perhaps read
            is_child |= was_read(await self.position(parent))
        if not is_child and shard.parents:
            is_child = bool(left_behind(await self.positions(self._shards), self._shards.values()))
        low, high = shard.hash_range
        lease: dict[str, Mapping[str, Any]] = {
            "leaseCounter": number(0),
            "ownerSwitchesSinceCheckpoint": number(0),
            "checkpoint": string("TRIM_HORIZON" if is_child else self._initial_position),
            "checkpointSubSequenceNumber": number(0),
            "startingHashKey": string(str(low)),
            "endingHashKey": string(str(high)),
        }
        if shard.parents:
            lease["parentShardId"] = {"SS": sorted(shard.parents)}
        await self._table.put_new(shard_id, lease)

    async def _store(self, shard_id: str, position: str) -> None:
        sequence, sub = Place.parse(position) or Place(position, 0)
        assign: dict[str, Mapping[str, Any]] = {
            "checkpoint": string(sequence),
            "checkpointSubSequenceNumber": number(LAST_SUB_SEQUENCE_NUMBER if sub is None else sub),
            "ownerSwitchesSinceCheckpoint": number(0),
        }
        if position == SHARD_END:
            children = sorted(child.shard_id for child in self._shards.values() if shard_id in child.parents)
            for child in children:
                await self._create(child)
            if children:
                assign["childShardIds"] = {"SS": children}
        await self._write(shard_id, assign, remove=_PENDING)

    async def _renew(self, shard_id: str) -> None:
        await self._write(shard_id, {}, absent="checkpointOwner")

    async def _release(self, shard_id: str) -> None:
        try:
            await self._write(shard_id, {}, remove=("leaseOwner",), absent="checkpointOwner")
        except CheckpointOwnershipConflict:
            pass  # it is another's already
        finally:
            del self._counters[shard_id]

    async def _write(self, shard_id: str, assign: Item, *, remove: Sequence[str] = (), absent: str = "") -> None:
        """Change a lease of ours.

        Raises:
            CheckpointOwnershipConflict: it is not, or KCL wants it handed over.
        """
        for _ in range(ATTEMPTS):
            counter = self._counters[shard_id]
            if await self._update(shard_id, counter, assign, remove=remove, absent=absent) is not None:
                return
            lease = await self._table.read(shard_id)
            known = self._counters.get(shard_id, counter)  # also moved by another thread's renewals meanwhile
            if lease is None or _owner(lease) != self._owner:
                break
            moved = _number(lease, "leaseCounter")
            if moved not in (counter + 1, known, known + 1):
                break
            # An update of ours came through, and its answer did not: this one, or one before it.
            self._counters[shard_id] = moved
            if assign and all(lease.get(name) == value for name, value in assign.items()):
                return
        await self._hand_over(shard_id)
        lease = await self._table.read(shard_id)
        became = "is gone" if lease is None else f"went to {_text(lease, 'leaseOwner') or 'nobody'}"
        raise CheckpointOwnershipConflict(
            f"{self._owner}'s lease of {shard_id} in table {self._table.name} {became}: nothing was written"
        )

    async def _hand_over(self, shard_id: str) -> None:
        """Leave a lease to the worker that KCL has chosen for it, if it has."""
        names = {"#counter": "leaseCounter", "#handed": "checkpointOwner"}
        values = {":one": number(1), ":owner": string(self._owner)}
        await self._table.update(shard_id, "REMOVE #handed ADD #counter :one", "#handed = :owner", names, values)

    async def _update(
        self, shard_id: str, counter: int, assign: Item, *, remove: Sequence[str] = (), absent: str = ""
    ) -> Item | None:
        """Change a lease whose counter is this one, and move the counter; None if it has moved."""
        assign = {**assign, "leaseCounter": number(counter + 1)}
        attributes = (*assign, *remove, *filter(None, (absent,)))
        expression = "SET " + ", ".join(f"#{name} = :{name}" for name in assign)
        if remove:
            expression += " REMOVE " + ", ".join(f"#{name}" for name in remove)
        lease = await self._table.update(
            shard_id,
            expression,
            "#leaseCounter = :counter" + (f" AND attribute_not_exists(#{absent})" if absent else ""),
            {f"#{name}": name for name in attributes},
            {":counter": number(counter), **{f":{name}": value for name, value in assign.items()}},
        )
        if lease is not None:  # meanwhile another thread's renewals may have moved it further
            self._counters[shard_id] = max(counter + 1, self._counters.get(shard_id, 0))
        return lease

    def _second(self) -> KCLCheckPointer:
        second = copy.copy(self)
        second._table = self._table.again()
        return second

    async def _connect(self) -> None:
        await self._table.open()

    def _leave_loop(self) -> None:
        self._table = self._table.again()

    async def _disconnect(self) -> None:
        await self._table.close()


def _text(lease: Item, attribute: str) -> str | None:
    value = lease.get(attribute)
    return None if value is None else str(value["S"])


def _owner(lease: Item) -> str | None:
    """Who may write to it."""
    return _text(lease, "checkpointOwner") or _text(lease, "leaseOwner")


def _number(lease: Item, attribute: str) -> int:
    value = lease.get(attribute)
    return 0 if value is None else int(value["N"])


def _position(lease: Item) -> str:
    checkpoint = _text(lease, "checkpoint") or "TRIM_HORIZON"
    if Place.parse(checkpoint) is None:
        return checkpoint
    return str(Place(checkpoint, _number(lease, "checkpointSubSequenceNumber")))
