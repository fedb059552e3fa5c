"""Fills a stream: PutRecords in full calls, at a rate, until each record is taken.

PutRecords can take some records of a call and refuse others, as each shard has its own limits. Refused records are
put again, in their order and before all later ones, with growing pauses. botocore repeats calls that fail as a whole.
If an answer is lost, botocore repeats a call that the service has done: so every record is put at least once.

Order: within one call the service may take the second record of a key and refuse the first. Where the order within a
key matters, `PutOptions.ordered` has each key at most once in a call.

Aggregates are made for the current shards. If the stream is resharded before the call, an aggregate can get into a
shard that does not own all of its keys, and readers would drop it. The answer names the shard, so this is noticed, and
the user records are put again for the new shards.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fastkcl.backoff import doubled
from fastkcl.kinesis.write.aggregate import Aggregator, Entry, UserRecord
from fastkcl.shard import ShardMap

__all__ = ["Filler", "PutError", "PutOptions", "PutReport"]

MAX_CALL_RECORDS = 500
MAX_CALL_BYTES = 5 * 2**20
"""Of a PutRecords call, keys included; services that take 10 MiB take this as well. A larger record goes alone."""

_CALLS_A_SECOND = 5  # at least, where there is a rate: records come evenly, not once in a while
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds


class PutError(Exception):
    """Records cannot be put; the message names them and the reason, `report` has the counts until then."""

    def __init__(self, message: str, report: PutReport) -> None:
        super().__init__(message)
        self.report = report


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOptions:
    """How to put.

    Attributes:
        aggregate: KPL aggregates instead of single records.
        ordered: keep the order within each key, through partial failures.
        rate: user records a second; None for as fast as it goes.
        bytes_rate: bytes a second, keys included; None for as fast as it goes.
        attempts: how many calls in a row may take nothing at all.
        max_record_bytes: of one record, its key included, as the stream is set up.
    """

    aggregate: bool = False
    ordered: bool = False
    rate: float | None = None
    bytes_rate: float | None = None
    attempts: int = 10
    max_record_bytes: int = 2**20


@dataclass(slots=True)
class PutReport:
    """The counts.

    Attributes:
        users: user records that were taken.
        records: records of Kinesis that were taken; fewer than `users` if they were aggregated.
        bytes: of these records, keys included.
        calls: of PutRecords.
        refused: records that were refused at first, by error code.
        moved: user records put again, since their aggregate went to a shard that does not own them all.
        shards: records by the shard that took them.
        seconds: from first to last.
    """

    users: int = 0
    records: int = 0
    bytes: int = 0
    calls: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    moved: int = 0
    shards: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


class Filler:
    """Puts records into one stream.

    Args:
        client: a boto3 client of Kinesis.
        stream: its name.
        options: see there.
        on_progress: is called after each call, with the report so far.
        sleep: waits so many seconds.
        clock: seconds, rising.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - boto3's clients have no types
        stream: str,
        options: PutOptions = PutOptions(),  # noqa: B008 - frozen
        *,
        on_progress: Callable[[PutReport], None] = lambda report: None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._stream = stream
        self._options = options
        self._on_progress = on_progress
        self._sleep = sleep
        self._clock = clock
        self._report = PutReport()
        self._start = self._due = clock()
        self._shards: ShardMap | None = None
        self._aggregator: Aggregator | None = None
        self._call: list[Entry] = []
        self._call_bytes = 0
        self._call_users = 0
        self._call_keys: set[str] = set()
        self._astray: list[UserRecord] = []

    @property
    def report(self) -> PutReport:
        """The counts so far."""
        self._report.seconds = self._clock() - self._start
        return self._report

    def put(self, records: Iterable[UserRecord]) -> PutReport:
        """Put all of them.

        Args:
            records: in their order; they are taken one by one.

        Raises:
            PutError: a record is too large, or the stream takes nothing any more.
        """
        for number, record in enumerate(records):
            plain = Entry.plain(record)
            if plain.size > self._options.max_record_bytes:
                raise PutError(
                    f"record {number} has {plain.size:,} bytes with its key, and the stream takes "
                    f"{self._options.max_record_bytes:,}",
                    self.report,
                )
            for entry in self._aggregate(record) if self._options.aggregate else [plain]:
                self._add(entry)
        while self._aggregator is not None or self._call or self._astray:
            self._finish()
        return self.report

    def _finish(self) -> None:
        if self._aggregator is not None:
            aggregator, self._aggregator = self._aggregator, None
            for entry in aggregator.drain():
                self._add(entry)
        self._flush()

    # Aggregates.

    def _aggregate(self, user: UserRecord) -> list[Entry]:
        if self._shards is None:
            self._shards = ShardMap.of(self._client, self._stream)
        if self._aggregator is None:
            self._aggregator = Aggregator(self._shards)
        return self._aggregator.add(user)

    def _after_reshard(self) -> None:
        """Pack records of misplaced and open aggregates again, for the current shards."""
        users, self._astray = self._astray, []
        self._report.moved += len(users)
        if self._aggregator is not None:
            users += [user for entry in self._aggregator.drain() for user in entry.users]
        self._aggregator = None
        self._shards = None
        for user in users:
            for entry in self._aggregate(user):
                self._add(entry)

    # Calls.

    def _add(self, entry: Entry) -> None:
        while self._call and (  # again, as a flush can leave user records that have to be put again
            len(self._call) >= MAX_CALL_RECORDS
            or self._call_bytes + entry.size > MAX_CALL_BYTES
            or self._too_much_at_once(entry)
            or (self._options.ordered and not self._call_keys.isdisjoint(_keys(entry)))
        ):
            self._flush()
        self._call.append(entry)
        self._call_bytes += entry.size
        self._call_users += len(entry.users)
        if self._options.ordered:
            self._call_keys.update(_keys(entry))

    def _too_much_at_once(self, entry: Entry) -> bool:
        rate, bytes_rate = self._options.rate, self._options.bytes_rate
        return (rate is not None and self._call_users + len(entry.users) > rate / _CALLS_A_SECOND) or (
            bytes_rate is not None and self._call_bytes + entry.size > bytes_rate / _CALLS_A_SECOND
        )

    def _flush(self) -> None:
        """Put the call's records until each is taken."""
        entries, self._call = self._call, []
        self._pace(self._call_users, self._call_bytes)
        self._call_bytes = self._call_users = 0
        self._call_keys.clear()
        fruitless = 0
        while entries:
            refused = self._put(entries)
            if not refused:
                break
            fruitless = fruitless + 1 if len(refused) == len(entries) else 0
            if fruitless >= self._options.attempts:
                raise PutError(
                    f"{self._stream} took none of {len(entries):,} records in {fruitless} calls: "
                    f"{', '.join(f'{code} {count:,}x' for code, count in self._report.refused.most_common())}",
                    self.report,
                )
            self._sleep(doubled(_FIRST_PAUSE, fruitless, _LONGEST_PAUSE) * random.uniform(0.5, 1.0))
            entries = refused
        if self._astray:
            self._after_reshard()

    def _pace(self, users: int, size: int) -> None:
        """Wait until so much is due. The time that a slow service has cost is not made up for."""
        now = self._clock()
        if self._due > now:
            self._sleep(self._due - now)
        costs = [
            amount / rate for amount, rate in ((users, self._options.rate), (size, self._options.bytes_rate)) if rate
        ]
        self._due = max(now, self._due) + max(costs, default=0.0)

    def _put(self, entries: list[Entry]) -> list[Entry]:
        """One call; its refused records."""
        answer = self._client.put_records(
            StreamName=self._stream,
            Records=[{"Data": entry.data, "PartitionKey": entry.partition_key} for entry in entries],
        )
        refused = []
        for entry, outcome in zip(entries, answer["Records"], strict=True):
            code = outcome.get("ErrorCode")
            if code is not None:
                self._report.refused[code] += 1
                refused.append(entry)
            else:
                self._taken(entry, outcome["ShardId"])
        self._report.calls += 1
        self._on_progress(self.report)
        return refused

    def _taken(self, entry: Entry, shard_id: str) -> None:
        self._report.records += 1
        self._report.bytes += entry.size
        self._report.shards[shard_id] += 1
        if len(entry.users) > 1 and not self._owns_all(shard_id, entry):
            self._astray += entry.users
        else:
            self._report.users += len(entry.users)

    def _owns_all(self, shard_id: str, entry: Entry) -> bool:
        """Whether readers of the shard will keep the aggregate."""
        assert self._shards is not None
        if all(self._shards.owns(shard_id, user.partition_key) for user in entry.users):
            return True
        # The stream has other shards now; it may still own them all.
        self._shards = ShardMap.of(self._client, self._stream)
        return all(self._shards.owns(shard_id, user.partition_key) for user in entry.users)


def _keys(entry: Entry) -> Iterator[str]:
    return (user.partition_key for user in entry.users)
