"""Shows groups of consumers from outside (owner and position of each shard), and moves their positions.

    store ── rows ──▶ Standing of each shard ──▶ lag, owners
      ▲                     │
      └── write ◀── Move ◀──┴── plan: TRIM_HORIZON, LATEST, a time, a position

A store holds the positions of a checkpointer: `fastkcl.kinesis.group_stores` has one for each kind.

A time becomes the position of the last record before it, which any version and async-kinesis can read. A shard without
such a record begins at its first record, and a closed shard without a later record is finished. LATEST means now.

Rules: calls block. A position is written only if its row has not changed since it was read, so a member's write is
never replaced. `live_members` returns the members that still write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Protocol

from fastkcl.kinesis.checkpoints.base import SHARD_END, Place
from fastkcl.kinesis.exceptions import AnotherStream
from fastkcl.kinesis.read.trimmed import is_of_shard
from fastkcl.kinesis.topology import Shard
from fastkcl.leases import Lease

__all__ = [
    "Move",
    "Row",
    "Standing",
    "Store",
    "check_stream",
    "live_members",
    "plan",
    "standings",
]

WINDOWS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
"""Seconds before a time in which the last record before it is looked for, one after the other."""


@dataclass(frozen=True, slots=True)
class Row:
    """A store's row of a shard.

    Attributes:
        lease: see there.
        position: None where there is none.
        raw: the value that `Store.write` compares.
    """

    lease: Lease
    position: str | None
    raw: Any


class Store(Protocol):
    """Where a kind of checkpointer keeps its positions."""

    def groups(self) -> list[str]:
        """The names of all groups."""

    def rows(self, group: str, shards: Sequence[Shard]) -> dict[str, Row]:
        """The rows of a group, by shard."""

    def write(self, group: str, shard: Shard, row: Row | None, position: str) -> bool:
        """Write a position, or `SHARD_END`, and free the shard; False if its row is not as it was read."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a group is in a shard.

    Attributes:
        shard: which.
        position: see `Row`.
        owner: None while it is free.
        seconds_behind: how long ago the first record came that is not read; 0 at the tip. None where that is not
            known: there is no position, or nothing is left to read.
    """

    shard: Shard
    position: str | None
    owner: str | None
    seconds_behind: float | None


@dataclass(frozen=True, slots=True)
class Move:
    """A shard's position, and the one that it is to have."""

    shard: Shard
    row: Row | None
    position: str


# Streams.


def check_stream(group: str, stream: str, rows: Mapping[str, Row]) -> None:
    """Refuse a group that is another stream's.

    Args:
        group: its name.
        stream: the stream's name.
        rows: of the group.

    Raises:
        AnotherStream: a row names another stream.
    """
    for shard_id, row in sorted(rows.items()):
        if row.lease.stream not in (None, stream):
            raise AnotherStream(
                f"{group} keeps positions of stream {row.lease.stream}, and not of {stream}: {shard_id}"
            )


def standings(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shards: Sequence[Shard],
    rows: Mapping[str, Row],  # noqa: ANN401 - boto3's and redis' clients have no types
) -> list[Standing]:
    """Where a group is.

    Args:
        kinesis: a boto3 client.
        address: StreamName or StreamARN.
        shards: all of the stream.
        rows: of the group.
    """
    found = []
    for shard in shards:
        row = rows.get(shard.shard_id)
        position = None if row is None else SHARD_END if row.lease.finished else row.position
        behind = None
        if position not in (None, SHARD_END, "AT_TIMESTAMP") and _can_be_in(shard, str(position)):
            behind = _behind(kinesis, address, shard, str(position))
        found.append(Standing(shard, position, None if row is None else row.lease.holder, behind))
    return found


def _can_be_in(shard: Shard, position: str) -> bool:
    """Whether a position can be one of this shard."""
    place, first = Place.parse(position), shard.starting_sequence_number
    if place is None or first is None:
        return True
    last = int(shard.sequence_range.get("EndingSequenceNumber", place.sequence_number))
    return is_of_shard(place.sequence_number, first) and int(first) <= int(place.sequence_number) <= last


def _behind(kinesis: Any, address: Mapping[str, str], shard: Shard, position: str) -> float | None:  # noqa: ANN401
    place = Place.parse(position)
    if place is None:
        where: dict[str, Any] = {"ShardIteratorType": position}
    else:
        where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": place.sequence_number}
    for records, _ in _pages(kinesis, address, shard, where, limit=1):
        if records:
            arrived: datetime = records[0]["ApproximateArrivalTimestamp"]
            return max(0.0, (datetime.now(UTC) - arrived).total_seconds())
    return 0.0


def _pages(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shard: Shard,
    where: Mapping[str, Any],
    limit: int = 10_000,  # noqa: ANN401
) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Answers up to the tip, or the end: records, and milliseconds behind the tip."""
    request = {**address, "ShardId": shard.shard_id, **where}
    iterator: str | None = kinesis.get_shard_iterator(**request)["ShardIterator"]
    while iterator is not None:
        answer = kinesis.get_records(ShardIterator=iterator, Limit=limit)
        behind = int(answer.get("MillisBehindLatest") or 0)
        yield answer["Records"], behind
        iterator = answer.get("NextShardIterator")
        if not behind and not shard.is_closed:
            return


def plan(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shards: Sequence[Shard],
    rows: Mapping[str, Row],
    to: str | datetime,
) -> list[Move]:
    """The rows to write so that a group continues there; none for shards that are there already.

    Args:
        kinesis: a boto3 client.
        address: StreamName or StreamARN.
        shards: those that are to be moved.
        rows: of the group.
        to: TRIM_HORIZON, LATEST, an aware time, or a position.

    Raises:
        ValueError: it is not a position, or one that this cannot stand for.
    """
    moves = []
    for shard in shards:
        row = rows.get(shard.shard_id)
        moment = to if isinstance(to, datetime) else None
        position = to if isinstance(to, str) and to != "LATEST" else _position_at(kinesis, address, shard, moment)
        if position == "AT_TIMESTAMP":
            raise ValueError("AT_TIMESTAMP is not a position by itself: give the time")
        if not _can_be_in(shard, position):
            raise ValueError(
                f"{position} is not a position in {shard.shard_id}, whose records have the numbers from "
                f"{shard.starting_sequence_number} to {shard.sequence_range.get('EndingSequenceNumber', 'now')}"
            )
        now = None if row is None else SHARD_END if row.lease.finished else row.position
        if now != position:
            moves.append(Move(shard, row, position))
    return moves


def _position_at(
    kinesis: Any,  # noqa: ANN401
    address: Mapping[str, str],
    shard: Shard,
    moment: datetime | None,
) -> str:
    """The position after the last record before the first one that came at a time or later.

    Args:
        kinesis: a boto3 client.
        address: StreamName or StreamARN.
        shard: there.
        moment: None for the tip, whatever the clock of this machine says. Times of arrival may fall a little from
            record to record; those after the first one that is late enough are not looked at.
    """
    if shard.is_closed and (moment is None or not _has_later(kinesis, address, shard, moment)):
        return SHARD_END
    for seconds in WINDOWS:
        begin = max((moment or datetime.now(UTC)) - timedelta(seconds=seconds), datetime(1970, 1, 2, tzinfo=UTC))
        last = None
        where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": begin}
        for records, _ in _pages(kinesis, address, shard, where):
            before = records if moment is None else list(takewhile(_came_before(moment), records))
            last = before[-1] if before else last
            if len(before) < len(records):
                break
        if last is not None:
            return str(last["SequenceNumber"])
    return "TRIM_HORIZON"


def _came_before(moment: datetime) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: bool(record["ApproximateArrivalTimestamp"] < moment)


def _has_later(kinesis: Any, address: Mapping[str, str], shard: Shard, moment: datetime) -> bool:  # noqa: ANN401
    if moment > datetime.now(UTC) - timedelta(seconds=1):
        return False
    where = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}
    return any(records for records, _ in _pages(kinesis, address, shard, where))


def live_members(
    look: Callable[[], Mapping[str, Row]], failover: float, *, sleep: Callable[[float], None] = time.sleep
) -> set[str]:
    """Who of a group lives: owners that renew a lease within the failover time, or take one. Waits for as long.

    Args:
        look: reads the group's rows.
        failover: seconds after which a lease that stands still has no owner any more.
        sleep: waits.
    """
    first = _leases(look)
    now, left = first, failover + 1.0
    while left > 0 and any(lease.holder is not None and not lease.expired for lease in now.values()):
        sleep(min(1.0, left))
        left -= 1.0
        now = _leases(look)
        moved = {str(lease.holder) for key, lease in now.items() if lease.holder and _has_moved(first.get(key), lease)}
        if moved:
            return moved
    return set()


def _leases(look: Callable[[], Mapping[str, Row]]) -> dict[str, Lease]:
    return {key: row.lease for key, row in look().items()}


def _has_moved(before: Lease | None, now: Lease) -> bool:
    return before is None or (before.holder, before.version) != (now.holder, now.version)
