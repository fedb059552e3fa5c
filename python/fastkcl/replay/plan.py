"""From a source and options to one script per shard: batches cut, repeated, split and merged, ends put on.

    source ──▶ Shard: records, maybe a script ──▶ cut, repeat, empty batches ──▶ end ──▶ split or merge ──▶ ShardPlan

Everything here is decided before a child runs, so that a replay can be repeated exactly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from fastkcl import _core
from fastkcl._core import Position
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.columns import PickedRecords, RecordSequence, RepeatedRecords
from fastkcl.replay.options import End, ReplayOptions
from fastkcl.replay.sources import Ask, Deliver, Shard, Source, SourceError, Step
from fastkcl.shard import shard_name

__all__ = ["ShardPlan", "make_plans"]

_IDLE_MILLIS = 200
"""Between two reads of a daemon at its fastest: the millisBehindLatest of one batch that is still to come."""


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The requests to one shard's children, from the first initialize to the last end of input.

    Attributes:
        index: number in the report, from 0, as in ``#SHARD`` of a fault.
        shard_id: the shard.
        label: its name in reports.
        dialect: of the daemon.
        records: all records of the shard.
        steps: the script.
        start: its lease's first position.
        batch_records: records of a usual batch, for cutting redeliveries otherwise.
        parents: shards (by index) whose ends must be checkpointed first.
        stream: whose shard it is.
    """

    index: int
    shard_id: str
    label: str
    dialect: ReplayDialect
    records: RecordSequence
    steps: tuple[Step, ...]
    start: Position = Position.TRIM_HORIZON
    batch_records: int = 1000
    parents: tuple[int, ...] = ()
    stream: str = "replay"

    @property
    def records_planned(self) -> int:
        """Records that the script delivers: those of the shard up to its end."""
        return max((step.stop for step in self.steps if isinstance(step, Deliver)), default=0)


def make_plans(source: Source, options: ReplayOptions) -> list[ShardPlan]:
    """Plans of all shards, parents before their children.

    Raises:
        SourceError: the source cannot be read, or does not go with the options.
    """
    plans = [_plan(index, shard, options) for index, shard in enumerate(source.shards())]
    if options.split_at is not None:
        return _split(plans, options.split_at, options)
    if options.merge_at is not None:
        return _merge(plans, options.merge_at, options)
    return plans


def _plan(index: int, shard: Shard, options: ReplayOptions) -> ShardPlan:
    dialect = options.dialect or shard.dialect or "modern"
    batch_records = options.batch_records or shard.batch_records
    asks: tuple[Step, ...] = ()
    if shard.steps is None:
        batches = list(cut(0, len(shard.records), batch_records))
        end: End | None = options.end or "shard-end"
    else:
        delivers = [step for step in shard.steps if isinstance(step, Deliver)]
        asks = tuple(step for step in shard.steps if isinstance(step, Ask))
        if options.batch_records is not None:
            batches = list(cut(0, len(shard.records), batch_records))
        else:
            batch_records = max((step.stop - step.start for step in delivers), default=1) or 1
            # Captured bytes are good for the dialect they were captured in only.
            batches = delivers if dialect == shard.dialect else [replace(step, line=None) for step in delivers]
        end = options.end
    records = shard.records
    if options.repeat > 1 and len(records):
        size = len(records)
        batches += [
            Deliver(step.start + size * number, step.stop + size * number)
            for number in range(1, options.repeat)
            for step in batches
        ]
        records = RepeatedRecords(records, options.repeat)
    if end is not None:
        asks = _end(end, dialect)
    elif not _core.DIALECTS[dialect].shutdown_requested:
        asks = tuple(step for step in asks if step != Ask("shutdownRequested"))
    steps: tuple[Step, ...] = (*_with_empty_batches(batches, options.empty_batches), *asks)
    return ShardPlan(
        index,
        shard.shard_id,
        shard.label,
        dialect,
        records,
        steps,
        shard.start,
        batch_records,
        stream=shard.stream or options.stream,
    )


def cut(start: int, stop: int, size: int) -> Iterable[Deliver]:
    """Records `start` up to `stop` in batches of `size`, with the distance to the end as millisBehindLatest."""
    for first in range(start, stop, size):
        last = min(first + size, stop)
        yield Deliver(first, last, millis_behind_latest=_IDLE_MILLIS * -(-(stop - last) // size))


def _with_empty_batches(batches: Sequence[Deliver], count: int) -> Iterable[Deliver]:
    for batch in batches:
        yield batch
        for _ in range(count):
            yield Deliver(batch.stop, batch.stop, millis_behind_latest=batch.millis_behind_latest)


def _end(end: End, dialect: ReplayDialect) -> tuple[Ask, ...]:
    match end:
        case "shard-end":
            return (Ask("shardEnded"),)
        case "lease-lost":
            return (Ask("leaseLost"),)
        case "shutdown" if _core.DIALECTS[dialect].shutdown_requested:
            return (Ask("shutdownRequested"), Ask("leaseLost"))
        case _:  # the end of input, which is all that the stop of other workers is
            return ()


# Resharding.


def _ended_after(plan: ShardPlan, batches: int, what: str) -> tuple[ShardPlan, int]:
    """The plan cut short after some batches with an end of the shard, and the first record that is left."""
    taken: list[Step] = []
    count = 0
    for step in plan.steps:
        if isinstance(step, Deliver):
            if count == batches and step.stop > step.start:
                return replace(plan, steps=(*taken, Ask("shardEnded"))), step.start
            count += step.stop > step.start
            taken.append(step)
    raise SourceError(f"{plan.label} has {count} batches: nothing is left for a {what} after batch {batches}")


def _split(plans: Sequence[ShardPlan], batches: int, options: ReplayOptions) -> list[ShardPlan]:
    parents: list[ShardPlan] = []
    children: list[ShardPlan] = []
    number = _first_free(plans)
    chosen = range(len(plans)) if options.split_shards is None else options.split_shards
    for index in chosen:
        if not 0 <= index < len(plans):
            raise SourceError(f"there is no shard {index} to split; the last one is {len(plans) - 1}")
    for plan in plans:
        if plan.index not in chosen:
            parents.append(plan)
            continue
        parent, rest = _ended_after(plan, batches, "split")
        parents.append(parent)
        halves: tuple[list[int], list[int]] = ([], [])
        keys = plan.records.columns(rest, len(plan.records)).partition_keys
        for record in _kinesis_records(plan, rest):
            halves[_upper_half(keys[record[0] - rest])].extend(record)
        for half in halves:
            picks = [(plan.records, index) for index in half]
            children.append(_child((plan,), picks, number, len(plans) + len(children), options))
            number += 1
    return parents + children


def _merge(plans: Sequence[ShardPlan], batches: int, options: ReplayOptions) -> list[ShardPlan]:
    if len(plans) < 2:
        raise SourceError("a merge needs at least two shards")
    if len({plan.stream for plan in plans}) > 1:
        raise SourceError("shards of several streams cannot be merged")
    parents = list(plans)
    children: list[ShardPlan] = []
    number = _first_free(plans)
    for left, right in zip(plans[::2], plans[1::2], strict=False):
        picks: list[tuple[RecordSequence, int]] = []
        rests = []
        for plan in (left, right):
            parents[plan.index], rest = _ended_after(plan, batches, "merge")
            rests.append([[(plan.records, index) for index in record] for record in _kinesis_records(plan, rest)])
        # The two keep their own order and take turns, as producers go on writing to both halves.
        for turn in range(max(map(len, rests))):
            picks += [pick for rest in rests if turn < len(rest) for pick in rest[turn]]
        children.append(_child((left, right), picks, number, len(plans) + len(children), options))
        number += 1
    return parents + children


def _child(
    parents: Sequence[ShardPlan],
    picks: Sequence[tuple[RecordSequence, int]],
    number: int,
    index: int,
    options: ReplayOptions,
) -> ShardPlan:
    size = parents[0].batch_records
    batches = list(cut(0, len(picks), size))
    return ShardPlan(
        index,
        shard_name(number),
        shard_name(number),
        parents[0].dialect,
        PickedRecords(picks, shard=number),
        (*_with_empty_batches(batches, options.empty_batches), *_end(options.end or "shard-end", parents[0].dialect)),
        batch_records=size,
        parents=tuple(parent.index for parent in parents),
        stream=parents[0].stream,
    )


def _kinesis_records(plan: ShardPlan, first: int) -> list[list[int]]:
    """Indexes of the records from `first` on, the user records of an aggregate together: one shard gets all of them."""
    numbers = plan.records.columns(first, len(plan.records)).sequence_numbers
    indexes = range(first, len(plan.records))
    return [list(run) for _, run in groupby(indexes, key=lambda index: numbers[index - first])]


def _first_free(plans: Sequence[ShardPlan]) -> int:
    numbers = [int(tail) for plan in plans if (tail := plan.shard_id.rpartition("-")[2]).isdecimal()]
    return max(numbers, default=-1) + 1


def _upper_half(partition_key: str) -> bool:
    # Kinesis maps a key to a shard by the MD5 of its UTF-8 bytes, as an integer of 128 bits.
    return hashlib.md5(partition_key.encode(), usedforsecurity=False).digest()[0] >= 0x80
