"""Leases that are kept by a heartbeat: the base of checkpointers that share their shards with other processes.

    free ── allocate ──▶ held ── deallocate ──▶ free          the position stays with the backend
                         │  ▲
                         │  └── heartbeat, checkpoint         each is a renewal
                         ▼
                        lost ── allocate ──▶ held             from the last position that was committed

A lease is lost when the backend shows another owner, or when it was not renewed for `session_timeout` seconds: by then
another process may have taken it. The order of the two does not matter, since a backend refuses every write that does
not come from the owner.

A `fastkcl.leases.Keeper` chooses the shards to allocate, from the leases that `share` has seen last: an even share of
the shards, those of the dead first, then the surplus of others. Where nobody calls `share`, `allocate` takes free
leases.

Rules:
- A position is written after its lease was compared, in one step of the backend; no other owner is ever overwritten.
- Positions of a shard only grow; an older one is dropped silently, since a newer one covers it.
- A failure of a backend is raised, and the call may be tried again; a failed heartbeat is logged, and tried again.
- A lost shard's buffered position is dropped: its new owner begins at the last one that was committed.
- One request for a shard at a time: heartbeats and positions of a shard do not race.
- A heartbeat that is late, since the event loop is busy, comes from a thread (`fastkcl.leases.guard`).
- What belongs to an event loop that has ended without `close` is made anew, whichever call comes first in another one:
  leases are taken again, as after a death, or given back.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import ClassVar
from uuid import uuid4

from fastkcl.kinesis.bounds import within
from fastkcl.kinesis.checkpoints.base import FIRST, SHARD_END, is_later
from fastkcl.kinesis.checkpoints.guarded import GuardedLeases
from fastkcl.kinesis.checkpoints.held import HeldLease, seconds_between_heartbeats
from fastkcl.kinesis.checkpoints.lease_backend import LeaseBackend
from fastkcl.kinesis.exceptions import CheckpointFlushError, CheckpointOwnershipConflict, ValidationError, described
from fastkcl.leases import Keeper, Rules, Take, Why
from fastkcl.leases.guard import Guard
from fastkcl.stdio.log import module_logger

__all__ = ["LeasedCheckPointer"]

log = module_logger(__name__)

LOOK_SECONDS = 2.0
"""Between two looks at the group's leases, at the most."""
CLOSE_SECONDS = 5.0
"""Seconds for each step of `close`. A shard that is not given back by then is free after `session_timeout`."""


class LeasedCheckPointer(LeaseBackend):
    """A checkpointer over a backend that others write to as well.

    Backends implement `_take`, `_store`, `_renew`, `_release` and `_disconnect` of `LeaseBackend`; those whose shards
    are to be divided evenly `_look` and `_seize` as well, and those that remember finished shards `_finish`. Each
    public coroutine of theirs begins with `_enter_loop`.

    Args:
        name: of the group of consumers that share a stream.
        id: of this consumer within its group, which no other one may have at the same time. Default: host, process and
            a random part. With one that stays the same from run to run, a consumer that starts again has its shards
            at once.
        session_timeout: seconds without a renewal after which others may take a shard.
        heartbeat_frequency: seconds between renewals; by default 15, or less: a third of session_timeout.
        auto_checkpoint: False keeps positions until `manual_checkpoint`.
        balance: False takes every shard that is free, and none of another consumer's that lives.

    Attributes:
        look_interval: seconds between two looks at the group's leases.

    Raises:
        ValidationError: an argument that cannot be meant; TypeError, if it is of another type.
    """

    _grain: ClassVar[float] = 0.0
    """Seconds within which two renewals may look alike."""
    _heartbeat: ClassVar[float] = 15.0  # at most, by default

    def __init__(
        self,
        name: str,
        id: str | int | None = None,  # noqa: A002 - the name that programs know
        *,
        session_timeout: float = 60,
        heartbeat_frequency: float | None = None,
        auto_checkpoint: bool = True,
        balance: bool = True,
    ) -> None:
        if not name:
            raise ValidationError("name cannot be empty: it keeps this group's positions apart from those of others")
        heartbeat_frequency = seconds_between_heartbeats(session_timeout, heartbeat_frequency, self._heartbeat)
        super().__init__(name, f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}" if id is None else id)
        self.session_timeout = session_timeout
        self.heartbeat_frequency = heartbeat_frequency
        self.auto_checkpoint = auto_checkpoint
        self.balance = balance
        self.look_interval = min(LOOK_SECONDS, session_timeout / 5)
        self._clock: Callable[[], float] = monotonic
        rules = Rules(failover=session_timeout, renew_every=heartbeat_frequency, grain=self._grain)
        self._keeper = Keeper(self._member, rules)
        self._shares: dict[str, Take] | None = None  # leases that allocate may give; None for free ones
        self._finished: frozenset[str] | None = None
        self._leases: dict[str, HeldLease] = {}
        self._buffer: dict[str, str] = {}
        self._flushing = asyncio.Lock()
        self._taking: dict[str, asyncio.Task[tuple[bool, str | None]]] = {}
        self._heart: asyncio.Task[None] | None = None
        self._guard: Guard | None = None
        self._left: set[str] = set()  # shards that were ours in an event loop that has ended

    # For consumers.

    async def allocate(self, shard_id: str) -> tuple[bool, str | None]:
        """Take a shard.

        Returns:
            Whether it is ours now, or already was, and its last position; None if it has none, or is another's. With
            `SHARD_END` it is finished, and nobody's.
        """
        self._enter_loop()
        lease = self._leases.get(shard_id)
        if lease is not None and self._lives(shard_id):
            lease.leaving = lease.ended = False
            return True, lease.position
        taking = self._taking.get(shard_id)
        if taking is None:
            take = None
            if self._shares is not None:
                take = self._shares.pop(shard_id, None)
                if take is None:
                    return False, SHARD_END if shard_id in self._keeper.finished else None
            taking = asyncio.create_task(self._hold(shard_id, take), name=f"{self.get_ref()} takes {shard_id}")
            self._taking[shard_id] = taking
            taking.add_done_callback(lambda done: self._has_taken(shard_id, done))
        # A caller that gives up waiting does not know whether it is ours: it is given back by `close` then.
        return await asyncio.shield(taking)

    async def share(self, shard_ids: Collection[str], *, restartable: bool = True) -> bool:
        """Look at the group's leases, and choose those that `allocate` may give until the next call.

        Without it, and with ``balance=False``, `allocate` gives every shard that is free.

        Args:
            shard_ids: all shards that may be read now, here or elsewhere.
            restartable: whether a shard without a position may be taken from an owner that lives: it begins anew.

        Returns:
            Whether a shard was finished by somebody since the last look.

        Raises:
            AnotherStream: a consumer of another stream has left leases of these shards.
            Exception: the backend's error, if no shard is ours. A consumer with shards continues, and logs the error.
        """
        self._enter_loop()
        if not self.balance:
            return False
        began = self._clock()
        try:
            leases = await self._look(shard_ids)
        except Exception as error:
            if not self._leases:
                raise
            log.warning(
                "%s: no look at the group's leases, the next one tries again: %s", self.get_ref(), described(error)
            )
            self._shares = {}
            return False
        if leases is None:
            return False
        for lease in leases:
            if lease.key in shard_ids:
                self._check_stream(lease.stream, f"its lease of {lease.key}")
        for shard_id in self._keeper.looked(leases, began=began, ended=self._clock()):
            if (ours := self._leases.get(shard_id)) is not None:
                self._lose(shard_id, ours, f"it went to {self._owner_of(shard_id)}")
        takes = self._keeper.takes(shard_ids, self._clock(), restartable=restartable)
        self._shares = {take.key: take for take in takes}
        before, self._finished = self._finished, self._keeper.finished
        return before is not None and not self._finished <= before

    async def shard_ended(self, shard_id: str) -> None:
        """Note that nobody needs a shard any more, and give it back, as `deallocate` does.

        Raises:
            CheckpointOwnershipConflict: the shard is not ours, or not any more.
        """
        self._enter_loop()
        self._ours(shard_id).ended = True
        await self.deallocate(shard_id)

    async def deallocate(self, shard_id: str) -> None:
        """Give a shard back; its position stays. Nothing, if it is not ours.

        With ``auto_checkpoint=False`` a shard whose position is not written yet stays ours until `manual_checkpoint`
        has written it: given back now, its last records would be read again.
        """
        self._enter_loop()
        self._take_up([shard_id])
        lease = self._leases.get(shard_id)
        if lease is None:
            return
        if shard_id in self._buffer:
            lease.leaving = True
            return
        await self._give_back(shard_id, lease)

    async def begin_at_first(self, shard_id: str) -> None:
        """See `KeepsBeginnings`; written at once, also with ``auto_checkpoint=False``.

        Raises:
            CheckpointOwnershipConflict: the shard is not ours, or not any more.
        """
        self._enter_loop()
        await self._commit(shard_id, FIRST)

    async def begins_at_first(self, shard_id: str) -> bool:
        """See `KeepsBeginnings`."""
        self._enter_loop()
        lease = self._leases.get(shard_id)
        return lease is not None and lease.position == FIRST

    async def checkpoint(self, shard_id: str, sequence: str) -> None:
        """Commit a position, or keep it for `manual_checkpoint`.

        Raises:
            CheckpointOwnershipConflict: the shard is not ours, or not any more. Nothing was written.
            ValueError: it is not a position.
            Exception: the backend's error.
        """
        self._enter_loop()
        if self.auto_checkpoint:
            await self._commit(shard_id, sequence)
            return
        self._ours(shard_id)
        if is_later(sequence, self._buffer.get(shard_id)):
            self._buffer[shard_id] = sequence

    async def manual_checkpoint(self) -> None:
        """Commit kept positions: every shard is tried, and failed ones are kept, except those of lost shards.

        Raises:
            CheckpointFlushError: some failed; its `errors` have the shards and the reasons.
        """
        self._enter_loop()
        async with self._flushing:
            errors: list[tuple[str, BaseException]] = []
            for shard_id, position in list(self._buffer.items()):
                try:
                    await self._commit(shard_id, position)
                    if self._buffer.get(shard_id) == position:
                        del self._buffer[shard_id]
                        lease = self._leases.get(shard_id)
                        if lease is not None and lease.leaving:
                            await self._give_back(shard_id, lease)
                except Exception as error:
                    errors.append((shard_id, error))
            if errors:
                raise CheckpointFlushError(errors) from errors[0][1]

    def get_all_checkpoints(self) -> dict[str, str | None]:
        """Positions that the backend has of the shards that are ours."""
        return {shard_id: lease.position for shard_id, lease in self._leases.items()}

    def is_allocated(self, shard_id: str) -> bool:
        """Whether the shard is ours, and nobody can have taken it."""
        return shard_id in self._leases and self._lives(shard_id)

    async def close(self) -> None:
        """Give all shards back, and disconnect. Records that only `manual_checkpoint` may commit are read again.

        Raises:
            ExceptionGroup: shards that could not be given back; they are free after `session_timeout`.
        """
        self._enter_loop()
        self._take_up(list(self._left))
        if self._taking:
            _, late = await asyncio.wait(list(self._taking.values()), timeout=CLOSE_SECONDS)
            for taking in late:
                taking.cancel()
        heart, self._heart = self._heart, None
        if heart is not None:
            heart.cancel()
            await asyncio.wait([heart])
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.close()
        self._drop_buffer()
        leases = list(self._leases.items())
        errors: list[Exception] = []

        async def give_back(shard_id: str, lease: HeldLease) -> None:
            try:
                await within(CLOSE_SECONDS, f"giving {shard_id} back", self._give_back(shard_id, lease))
            except Exception as error:
                errors.append(error)

        try:
            async with asyncio.TaskGroup() as giving:
                for lease in leases:
                    giving.create_task(give_back(*lease))
                    await asyncio.sleep(0)  # as heartbeats
        finally:
            for shard_id, _ in leases:
                self._keeper.dropped(shard_id)
            self._leases.clear()
            self._shares = self._finished = None
            self._loop = None
            await within(CLOSE_SECONDS, f"{self!r}: closing connections", self._disconnect())
        if errors:
            raise ExceptionGroup(f"{self.get_ref()} could not give all shards back", errors)

    # How.

    def _begin_anew(self) -> None:
        self._heart = self._guard = None
        self._taking.clear()
        self._flushing = asyncio.Lock()
        self._drop_buffer()
        for shard_id in self._leases:
            self._keeper.dropped(shard_id)
        self._left.update(self._leases)
        self._leases.clear()
        self._shares = self._finished = None

    def _take_up(self, shard_ids: Iterable[str]) -> None:
        """Hold shards of an ended event loop as far as it takes to give them back."""
        for shard_id in self._left.intersection(shard_ids):
            self._leases.setdefault(shard_id, HeldLease(None))
        self._left.difference_update(shard_ids)

    def _drop_buffer(self) -> None:
        if self._buffer:
            log.warning("%s: positions without manual_checkpoint are dropped: %s", self.get_ref(), self._buffer)
            self._buffer.clear()

    def _lives(self, shard_id: str) -> bool:
        return self._keeper.holds(shard_id, self._clock())

    def _owner_of(self, shard_id: str) -> str:
        lease = self._keeper.seen(shard_id)
        return "nobody" if lease is None else lease.holder or "nobody"

    def _is(self, shard_id: str, lease: HeldLease) -> bool:
        return self._leases.get(shard_id) is lease

    def _ours(self, shard_id: str) -> HeldLease:
        lease = self._leases.get(shard_id)
        if lease is not None and not self._lives(shard_id):
            self._lose(shard_id, lease, f"not renewed for {self.session_timeout} s")
            lease = None
        if lease is None:
            raise CheckpointOwnershipConflict(
                f"{shard_id} is not, or no longer, {self.get_ref()}'s: nothing was written"
            )
        return lease

    def _lose(self, shard_id: str, lease: HeldLease, why: object) -> None:
        if self._is(shard_id, lease):
            del self._leases[shard_id]
            self._keeper.dropped(shard_id)
            dropped = self._buffer.pop(shard_id, None)
            log.warning(
                "%s lost %s: %s%s", self.get_ref(), shard_id, why, f"; drops position {dropped}" if dropped else ""
            )

    @contextmanager
    def _renewal(self, shard_id: str, lease: HeldLease) -> Iterator[None]:
        """A call inside renews the lease, or shows that it is lost."""
        started = self._clock()
        try:
            yield
        except CheckpointOwnershipConflict as error:
            self._lose(shard_id, lease, error)
            raise
        if self._is(shard_id, lease):
            self._keeper.renewed(shard_id, asked=started, answered=self._clock())

    async def _hold(self, shard_id: str, take: Take | None) -> tuple[bool, str | None]:
        self._start_guard()
        if self._guard is not None:
            await self._guard.connected()
        started = self._clock()
        if take is None or take.why in (Why.FREE, Why.OURS):
            taken, position = await self._take(shard_id)
        else:
            taken, position = await self._seize(shard_id, take)
        if taken:
            if take is not None and take.why in (Why.EXPIRED, Why.BALANCE):
                log.info("%s takes %s from %s: %s", self.get_ref(), shard_id, self._owner_of(shard_id), take.why.value)
            self._buffer.pop(shard_id, None)
            self._leases[shard_id] = HeldLease(position)
            self._left.discard(shard_id)
            self._keeper.held(shard_id, asked=started, answered=self._clock())
            if self._heart is None:
                self._heart = asyncio.create_task(self._beat(), name=f"heartbeat of {self.get_ref()}")
        return taken, position

    def _start_guard(self) -> None:
        second = self._second() if self._guard is None else None
        if second is None:
            return
        leases = GuardedLeases(self._keeper, second._connect, second._renew, second._disconnect, self._clock)
        self._guard = leases.guard(f"{self.get_ref()}")
        self._guard.start()

    def _has_taken(self, shard_id: str, taking: asyncio.Task[tuple[bool, str | None]]) -> None:
        del self._taking[shard_id]
        if not taking.cancelled():
            taking.exception()  # it was raised to those that still wait

    async def _commit(self, shard_id: str, position: str) -> None:
        try:
            lease = self._ours(shard_id)
            async with lease.lock:
                if self._ours(shard_id) is not lease:
                    raise CheckpointOwnershipConflict(f"{self.get_ref()} lost {shard_id} and took it again")
                if not is_later(position, lease.position):
                    return
                with self._renewal(shard_id, lease):
                    await self._store(shard_id, position)
                lease.position = position
        except Exception:
            self._count(shard_id, written=False)
            raise
        self._count(shard_id, written=True)

    async def _give_back(self, shard_id: str, lease: HeldLease) -> None:
        async with lease.lock:
            if self._is(shard_id, lease):
                self._keeper.dropped(shard_id)  # before a look sees that it is free
                try:
                    await (self._finish(shard_id) if lease.ended else self._release(shard_id))
                finally:
                    self._leases.pop(shard_id, None)  # renewed no more, it is free after the session's timeout

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat_frequency)
            async with asyncio.TaskGroup() as renewals:
                for lease in list(self._leases.items()):
                    renewals.create_task(self._renew_one(*lease))
                    await asyncio.sleep(0)  # a call takes a millisecond to begin: each in a turn of the event loop

    async def _renew_one(self, shard_id: str, lease: HeldLease) -> None:
        try:
            async with asyncio.timeout(self.heartbeat_frequency), lease.lock:
                if not self._is(shard_id, lease):
                    return
                if not self._lives(shard_id):
                    self._lose(shard_id, lease, f"not renewed for {self.session_timeout} s")
                    return
                with self._renewal(shard_id, lease):
                    await self._renew(shard_id)
        except CheckpointOwnershipConflict:
            pass  # it is lost, and that is logged
        except Exception as error:
            log.warning("%s: heartbeat of %s failed, to be tried again: %s", self.get_ref(), shard_id, described(error))
