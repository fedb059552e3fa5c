"""Records of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastkcl.replay.columns import GeneratedRecords
from fastkcl.replay.options import COUNT
from fastkcl.replay.profiles import PROFILES
from fastkcl.replay.sources.base import Shard, Source
from fastkcl.shard import shard_name


@dataclass(frozen=True, slots=True)
class _Generated:
    profile: str
    shard_count: int
    records: int
    batch_records: int
    seed: int
    aggregate: int

    @property
    def description(self) -> str:
        together = f", {self.aggregate} of one sequence number" if self.aggregate > 1 else ""
        return f"profile {self.profile}, seed {self.seed}{together}"

    def shards(self) -> Sequence[Shard]:
        return [
            Shard(
                shard_name(number),
                shard_name(number),
                GeneratedRecords(
                    PROFILES[self.profile], self.records, shard=number, seed=self.seed, aggregate=self.aggregate
                ),
                batch_records=self.batch_records,
            )
            for number in range(self.shard_count)
        ]


def generate(
    profile: str,
    *,
    shards: int = 1,
    records: int,
    batch_records: int | None = None,
    seed: int = 0,
    aggregate: int = 1,
) -> Source:
    """A source of generated records.

    Args:
        profile: name in `fastkcl.replay.profiles.PROFILES`.
        shards: how many.
        records: records of **each** shard.
        batch_records: records of one batch; the profile's own number without it.
        seed: equal seeds give equal records.
        aggregate: user records of one sequence number, as the daemon delivers a KPL aggregate: sub-sequence numbers
            count them from 0, and the legacy dialect does not show those. Batches are cut without regard to it.

    Raises:
        ValueError: no such profile, or a number out of range.
    """
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}; there are: {', '.join(PROFILES)}")
    if shards < 1 or records < 0 or aggregate < 1 or (batch_records is not None and batch_records < 1):
        raise ValueError("shards, batch_records and aggregate must be at least 1, records at least 0")
    if records > COUNT:
        raise ValueError(f"at most {COUNT:,} records")
    return _Generated(profile, shards, records, batch_records or PROFILES[profile].records, seed, aggregate)
