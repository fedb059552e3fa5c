"""Positions and leases in Redis.

A shard is a key, ``pyredis-<name>-<shard>``, whose value is JSON, as async-kinesis has it:

    {"ref": "<name>/<id>", "ts": 1748736000, "sequence": "49…2"}    owner, second of its last renewal, position

and beside it `stream`, the stream's name. `ref` and `ts` are null while the shard is free; ``"ended": true`` is added
when nobody needs it any more. Each step is one script, which Redis runs alone: it compares the owner first, and writes
only then. Ages are counted by Redis' own clock, so those of its clients may differ.

Rules: needs the extra ``redis``, which is imported with the first checkpointer.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import re
from collections.abc import Awaitable, Collection, Sequence
from typing import Any, ClassVar, cast

from fastkcl.kinesis.checkpoints.base import SHARD_END
from fastkcl.kinesis.checkpoints.leased import LeasedCheckPointer
from fastkcl.kinesis.exceptions import CheckpointOwnershipConflict, ValidationError
from fastkcl.leases import Lease, Take
from fastkcl.leases import redis as redis_leases
from fastkcl.masking import masked_errors, remember_lasting, remember_properties

__all__ = ["RedisCheckPointer", "server_options"]

# KEYS[1] is the shard's; ARGV[1] is our ref.
_READ = """
local text = redis.call('GET', KEYS[1])
local value = text and cjson.decode(text)
local now = tonumber(redis.call('TIME')[1])
local stream = value and value.stream or nil
local function write(owner, ts, sequence)
  redis.call('SET', KEYS[1], cjson.encode({ref = owner, ts = ts, sequence = sequence, stream = stream}))
end
"""
# Whole seconds: more than the timeout apart, they are at least the timeout apart.
_TAKE = (
    _READ
    + """
if ARGV[3] ~= '' then
  if stream and stream ~= ARGV[3] then return {-1, stream} end
  stream = ARGV[3]
end
if value and value.ended then return {2, ''} end
if value and value.ref ~= cjson.null and value.ref ~= ARGV[1]
    and value.ts ~= cjson.null and now - value.ts <= tonumber(ARGV[2]) then
  return {0, ''}
end
local sequence = value and value.sequence or cjson.null
write(ARGV[1], now, sequence)
return {1, sequence ~= cjson.null and sequence or ''}
"""
)
_ENDED = 2
_OWNED = (
    _READ
    + """
if not value then return 'nobody: its key is gone' end
if value.ref ~= ARGV[1] then return value.ref == cjson.null and 'nobody' or value.ref end
"""
)
_STORE = _OWNED + "write(ARGV[1], now, ARGV[2]) return ''"
_RENEW = _OWNED + "write(ARGV[1], now, value.sequence or cjson.null) return ''"
_RELEASE = _OWNED + "write(cjson.null, cjson.null, value.sequence or cjson.null) return ''"


class RedisCheckPointer(LeasedCheckPointer):
    """A checkpointer in Redis, or in a server of its protocol. See `LeasedCheckPointer`.

    Without `client` the server is that of ``REDIS_HOST`` (localhost), ``REDIS_PORT`` (6379), ``REDIS_PASSWORD`` and,
    but for a cluster, ``REDIS_DB`` (0).

    Args:
        name: of the group of consumers.
        id: of this one.
        session_timeout: seconds, kept to the next whole one.
        heartbeat_frequency: seconds; by default 15, or less: a third of session_timeout.
        is_cluster: the server is a Redis cluster.
        auto_checkpoint: False keeps positions until `manual_checkpoint`.
        balance: False takes every shard that is free, and none of another consumer's that lives.
        client: of redis.asyncio, for all that these variables cannot say, e.g. TLS. It stays open.

    Raises:
        ImportError: redis is not installed.
        ValidationError: an argument, or a variable, that cannot be meant.
    """

    _grain: ClassVar[float] = redis_leases.GRAIN

    def __init__(
        self,
        name: str,
        id: str | int | None = None,  # noqa: A002
        session_timeout: float = 60,
        heartbeat_frequency: float | None = None,
        is_cluster: bool = False,
        auto_checkpoint: bool = True,
        *,
        balance: bool = True,
        client: Any = None,  # noqa: ANN401 - Redis or RedisCluster
    ) -> None:
        super().__init__(
            name,
            id,
            session_timeout=session_timeout,
            heartbeat_frequency=heartbeat_frequency,
            auto_checkpoint=auto_checkpoint,
            balance=balance,
        )
        self._calls: set[asyncio.Future[Any]] = set()
        self._is_cluster = is_cluster or (client is not None and hasattr(client, "nodes_manager"))
        self._own = client is None
        options = getattr(getattr(client, "connection_pool", client), "connection_kwargs", {})
        remember_properties(options)
        if isinstance(password := getattr(options.get("credential_provider"), "password", None), str):
            remember_lasting(password)
        self._client: Any = _connect(is_cluster) if client is None else client

    def _key(self, shard_id: str) -> str:
        return f"pyredis-{self._name}-{shard_id}"

    async def _eval(self, script: str, shard_ids: Sequence[str], *arguments: str) -> Any:  # noqa: ANN401 - its result
        """Run a script to its end, also where the caller is cancelled: redis-py loses cancellations on Python 3.11."""
        keys = [self._key(shard_id) for shard_id in shard_ids]
        call = asyncio.ensure_future(cast(Awaitable[Any], self._client.eval(script, len(keys), *keys, *arguments)))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        with masked_errors():
            return await asyncio.shield(call)

    async def _run(self, script: str, shard_id: str, *arguments: str) -> Any:  # noqa: ANN401
        return await self._eval(script, [shard_id], self.get_ref(), *arguments)

    async def position(self, shard_id: str) -> str | None:
        """The position of a shard, with any owner; None if it has none."""
        self._enter_loop()
        with masked_errors():
            text = await cast(Awaitable[Any], self._client.get(self._key(shard_id)))
        value = {} if text is None else json.loads(text)
        sequence: str | None = SHARD_END if value.get("ended") else value.get("sequence")
        return sequence

    async def positions(self, besides: Collection[str]) -> dict[str, str]:
        """The positions of all shards but these, with any owner."""
        self._enter_loop()
        begin = self._key("")
        literal = re.sub(r"[*?\[\]\\^]", r"\\\g<0>", begin)
        with masked_errors():
            keys = [_text(key) async for key in self._client.scan_iter(match=f"{literal}shardId-*", count=1000)]
        found = {}
        for shard_id in sorted({key.removeprefix(begin) for key in keys} - set(besides)):
            position = await self.position(shard_id)
            if position is not None:
                found[shard_id] = position
        return found

    async def _take(self, shard_id: str) -> tuple[bool, str | None]:
        taken, position = await self._run(_TAKE, shard_id, str(self.session_timeout), self._stream or "")
        if taken == _ENDED:
            return False, SHARD_END
        if taken < 0:
            self._check_stream(_text(position), f"key {self._key(shard_id)}")
            return False, None
        return bool(taken), _text(position) or None

    async def _look(self, shard_ids: Collection[str]) -> list[Lease]:
        # The keys of a cluster may be on different nodes, which run a script for their own keys alone.
        groups = [[shard_id] for shard_id in shard_ids] if self._is_cluster else [list(shard_ids)]
        answers = await asyncio.gather(*(self._eval(redis_leases.LOOK, group) for group in groups))
        return [
            lease
            for group, answer in zip(groups, answers, strict=True)
            for lease in redis_leases.leases(group, answer, self.session_timeout)
        ]

    async def _seize(self, shard_id: str, take: Take) -> tuple[bool, str | None]:
        _, *seen = redis_leases.seize_arguments(self.get_ref(), take)
        taken, position = await self._run(redis_leases.SEIZE, shard_id, *seen)
        return bool(taken), _text(position) or None

    async def _finish(self, shard_id: str) -> None:
        await self._run(redis_leases.FINISH, shard_id)

    async def _owned(self, script: str, shard_id: str, *arguments: str) -> None:
        owner = _text(await self._run(script, shard_id, *arguments))
        if owner:
            raise CheckpointOwnershipConflict(
                f"{self._key(shard_id)} belongs to {owner}, not to {self.get_ref()}: nothing was written"
            )

    async def _store(self, shard_id: str, position: str) -> None:
        await self._owned(_STORE, shard_id, position)

    async def _renew(self, shard_id: str) -> None:
        await self._owned(_RENEW, shard_id)

    async def _release(self, shard_id: str) -> None:
        await self._run(_RELEASE, shard_id)

    def _second(self) -> RedisCheckPointer | None:
        if self._is_cluster and not self._own:
            return None  # its nodes are known to it alone
        second = copy.copy(self)
        second._calls = set()
        second._own, second._client = True, _connect(True) if self._is_cluster else _Connection(self._client)
        return second

    async def _connect(self) -> None:
        await self._eval("return ''", [])

    def _leave_loop(self) -> None:
        self._calls.clear()
        if self._own:
            self._client = _connect(self._is_cluster)

    async def _disconnect(self) -> None:
        if self._calls:
            await asyncio.wait(set(self._calls))
        if self._own:
            await self._client.aclose()


class _Connection:
    """One connection to a client's server, for one event loop; made anew after a failure."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401
        self._pool = client.connection_pool
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def eval(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Run a script."""
        async with self._turn:
            try:
                if self._connection is None:
                    self._connection = self._pool.make_connection()
                    await self._connection.connect()
                await self._connection.send_command("EVAL", *arguments)
                return await self._connection.read_response()
            except BaseException:
                await self.aclose()
                raise

    async def aclose(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect()


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _connect(is_cluster: bool) -> Any:  # noqa: ANN401
    try:
        from redis import asyncio as redis
        from redis.asyncio.cluster import RedisCluster
    except ImportError as error:
        raise ImportError("RedisCheckPointer needs redis: pip install 'fastkcl[redis]'") from error
    options = server_options(is_cluster=is_cluster)
    return RedisCluster(**options) if is_cluster else redis.Redis(**options)


def server_options(*, is_cluster: bool = False) -> dict[str, Any]:
    """The server that the environment names, as redis' clients take it.

    Raises:
        ValidationError: a variable that cannot be meant.
    """
    password = os.environ.get("REDIS_PASSWORD") or None
    remember_lasting(password)
    options = {
        "host": os.environ.get("REDIS_HOST") or "localhost",
        "port": _number("REDIS_PORT", 6379),
        "password": password,
        # A server that is gone must not hold a heartbeat for longer than a session lasts.
        "socket_connect_timeout": 5,
        "socket_timeout": 10,
    }
    return options if is_cluster else options | {"db": _number("REDIS_DB", 0)}


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal():
        raise ValidationError(f"the variable {variable} has to be a number, not {text!r}")
    return int(text)
