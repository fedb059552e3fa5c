"""The options of a replay: the daemon's settings, the way lines are written, and the faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.replay.faults import SECONDS, Fault

__all__ = ["COUNT", "RATE", "End", "ReplayOptions"]

COUNT = 1_000_000_000
"""Of records, batches, bytes at once: more is a slip of the pen."""

RATE = 0.001
"""Records per second of a shard at the least."""

End: TypeAlias = Literal["shard-end", "shutdown", "lease-lost", "eof"]
"""How a shard's script ends: the shard is over; the worker is stopped; the lease goes; input just ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Settings of a replay. Every one has a default that suits a first try.

    Attributes:
        stream: name of the stream, given to the children in FASTKCL_STREAM, unless the source knows it.
        dialect: of the daemon; None for modern, or for a capture its own.
        batch_records: records of one batch; None for those of the source.
        rate: records per second of each shard, on average; None for as fast as the child reads.
        repeat: how many times the records of each shard come, each time under higher sequence numbers.
        end: how each shard ends; None for shard-end, or for a capture as it was captured. In the legacy dialect
            a worker's stop is nothing but the end of input.
        split_at: after this many batches each shard is split: it ends, and the records that are left come on two
            child shards, by the hash of their keys, once its end is checkpointed.
        split_shards: which of the shards `split_at` splits, by their index; None for each.
        merge_at: after this many batches shards 0 and 1, 2 and 3, ... end and are merged into one child each.
        empty_batches: empty batches after each batch, as on a quiet shard of a daemon that calls for those too.
        write_size: bytes of one write to a child; None for the extension's default. A JVM writes 8192.
        faults: to inject.
        restarts: how often a child that ends by itself is replaced, per shard. Such an end is a problem all the same.
            A child that did not get through initialize is not replaced. An end by a checkpoint's error that was asked
            for counts as well where the one before stood at the same checkpoint; at another, counting begins anew.
        answer_timeout: seconds without a message from a child that owes a status, and for writing it a line. The
            status itself has to come within ten times that.
        exit_grace: seconds for a child to end once its input has ended.
        environment: variables for the children, over those of this process.
        prefix_stderr: put the shard's id before each line of standard error.
        on_stderr: gets (shard id, line) instead of our standard error.
        preencode_bytes: lines encoded before the clock starts, in bytes for all shards; the others are encoded while
            the child works on the one before.

    Raises:
        ValueError: a number out of range, or settings that exclude each other.
    """

    stream: str = "replay"
    dialect: ReplayDialect | None = None
    batch_records: int | None = None
    rate: float | None = None
    repeat: int = 1
    end: End | None = None
    split_at: int | None = None
    split_shards: tuple[int, ...] | None = None
    merge_at: int | None = None
    empty_batches: int = 0
    write_size: int | None = None
    faults: tuple[Fault, ...] = ()
    restarts: int = 3
    answer_timeout: float = 300.0
    exit_grace: float = 30.0
    environment: Mapping[str, str] = field(default_factory=dict)
    prefix_stderr: bool = False
    on_stderr: Callable[[str, bytes], None] | None = None
    preencode_bytes: int = 256 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("batch_records", "split_at", "merge_at", "write_size", "repeat"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= COUNT:
                raise ValueError(f"{name} must be from 1 to {COUNT:,}, not {value}")
        for name in ("empty_batches", "restarts", "preencode_bytes"):
            if not 0 <= (value := getattr(self, name)) <= COUNT:
                raise ValueError(f"{name} must be from 0 to {COUNT:,}, not {value}")
        for name in ("answer_timeout", "exit_grace"):
            value = getattr(self, name)
            if not 0 < value <= SECONDS:
                raise ValueError(f"{name} must be above 0 and at most {SECONDS:,} s, not {value}")
        if self.rate is not None and not RATE <= self.rate < math.inf:
            raise ValueError(f"rate must be at least {RATE} records per second, and a number, not {self.rate}")
        if self.split_at is not None and self.merge_at is not None:
            raise ValueError("split_at and merge_at exclude each other")
        if self.split_shards is not None and self.split_at is None:
            raise ValueError("split_shards names the shards to split, and needs split_at")
        if not self.stream:
            raise ValueError("stream cannot be empty")
