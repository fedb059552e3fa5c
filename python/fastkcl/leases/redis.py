"""Leases in Redis: a key for each shard, with its owner, the second of its last renewal, and its position, in JSON.

    {"ref": "<name>/<id>", "ts": 1748736000, "sequence": "49…2", "stream": "orders"}

``"ended": true`` is added when all of the shard is processed. Each step is one script, which Redis runs alone. Ages are
counted by Redis' clock.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastkcl.leases.keeper import Take, Why
from fastkcl.leases.lease import Lease

__all__ = ["FINISH", "GRAIN", "LOOK", "SEIZE", "leases", "seize_arguments"]

GRAIN = 1.0
"""Renewals are stamped with whole seconds."""

LOOK = """
local found = redis.call('TIME')
for number, key in ipairs(KEYS) do found[number + 2] = redis.call('GET', key) or '' end
return found
"""
"""KEYS: the shards'. Returns seconds, microseconds, and the values; empty where there is none."""

SEIZE = """
local text = redis.call('GET', KEYS[1])
local value = text and cjson.decode(text)
if not value or value.ref ~= ARGV[2] or (ARGV[3] ~= '' and value.ts ~= tonumber(ARGV[3])) then return {0, ''} end
value.ref, value.ts = ARGV[1], tonumber(redis.call('TIME')[1])
redis.call('SET', KEYS[1], cjson.encode(value))
local sequence = value.sequence
return {1, type(sequence) == 'string' and sequence or ''}
"""
"""Own a shard whose row is as it was seen. Returns whether it is ours, and its position."""

FINISH = """
local text = redis.call('GET', KEYS[1])
local value = text and cjson.decode(text)
if not value or value.ref ~= ARGV[1] then return 0 end
value.ref, value.ts, value.ended = cjson.null, cjson.null, true
redis.call('SET', KEYS[1], cjson.encode(value))
return 1
"""
"""Free a shard of ours that nobody needs any more."""


def leases(keys: Sequence[str], answer: Sequence[bytes | str | int], failover: float) -> list[Lease]:
    """The result of `LOOK`.

    Args:
        keys: the shards, in the order of its KEYS.
        answer: as it came.
        failover: seconds without a renewal after which a lease is free.
    """
    now = int(answer[0]) + int(answer[1]) / 1e6
    return [_lease(key, text, now, failover) for key, text in zip(keys, answer[2:], strict=True) if text]


def _lease(key: str, text: bytes | str | int, now: float, failover: float) -> Lease:
    value = json.loads(str(text) if isinstance(text, int) else text)
    owner, stamp = value.get("ref"), value.get("ts")
    if stamp is None:
        owner = None
    return Lease(
        key=key,
        owner=owner,
        version=stamp,
        finished=value.get("ended") is True,
        placed=value.get("sequence") is not None,
        stream=value.get("stream"),
        expired=owner is not None and now - stamp >= failover + GRAIN,
    )


def seize_arguments(me: str, take: Take) -> tuple[str, str, str]:
    """The ARGV of `SEIZE`: of a lease that ran out its last renewal is compared, too."""
    assert take.seen is not None
    assert take.seen.owner is not None
    return me, take.seen.owner, "" if take.why is Why.BALANCE else str(take.seen.version)
