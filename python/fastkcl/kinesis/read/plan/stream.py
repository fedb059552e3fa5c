"""One stream of a query: its shards, when they are listed, how long it keeps records, and which of its calls fail.

==================================================  ===========================================================
the stream is new to the checkpoint                 its shards begin at the initial position (`generations`)
it was made at another time than the offset says    `AnotherStream`, always
a shard is missing from two lists, 3 s apart        `DataLossError`, or it ends and its children follow
a position is gone                                  `DataLossError` where records may be missing, else a warning
no such shard                                       a new list decides
no such stream                                      `StreamDoesNotExist`
DescribeStreamSummary is denied                     a warning; the retention is taken as 24 h
any call is throttled                               a pause, and later again
no connection, failure of the service               the same, for ``max_outage`` at most
anything else                                       `CallError` at once
==================================================  ===========================================================

Rules: no I/O and no clock. A shard that follows a parent is known to be read until the parent's last record, and not
until now: its oldest records may have been trimmed while the parent was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fastkcl.backoff import Backoff
from fastkcl.kinesis.exceptions import AnotherStream, DataLossError, StreamDoesNotExist
from fastkcl.kinesis.failures import Failure
from fastkcl.kinesis.read.plan import generations
from fastkcl.kinesis.read.plan.calls import (
    Answer,
    Call,
    Described,
    DescribeStream,
    GetRecords,
    GetShardIterator,
    ListShards,
    Records,
)
from fastkcl.kinesis.read.plan.errors import CallError
from fastkcl.kinesis.read.plan.look import Look
from fastkcl.kinesis.read.plan.losses import DAY, Trimmed, moment
from fastkcl.kinesis.read.plan.offset import END, Position, StreamOffset
from fastkcl.kinesis.read.plan.taken import Gone, LookRules
from fastkcl.kinesis.read.trimmed import is_of_shard
from fastkcl.kinesis.topology import Shard
from fastkcl.outage import Outage

__all__ = ["StreamPlan"]

ABSENCE = 3_000
"""ms between two lists that both have to lack a shard."""
DESCRIBE_INTERVAL = 60_000
OUTAGE_LINES = 30_000
"""ms between two lines about calls that fail."""
NEW_CHECKPOINT = (
    "use a new checkpointLocation, and with a file sink a new folder, too: Spark writes no batch there whose number the"
    " folder has already"
)


class StreamPlan:
    """A stream.

    Args:
        name: or ARN.
        initial: where it begins if it is new to the checkpoint; None for the latest record.
        fail_on_data_loss: whether lost records are an error.
        list_interval: ms between two lists.
        max_outage: ms for which the service may be away.
        warnings: where lines for the log go.
    """

    def __init__(
        self,
        name: str,
        initial: Position | None,
        *,
        fail_on_data_loss: bool,
        list_interval: int,
        max_outage: int,
        warnings: list[str],
    ) -> None:
        self.name = name
        self.looks: dict[str, Look] = {}
        self.shards: dict[str, Shard] = {}
        self.start: StreamOffset | None = None
        self._initial = initial
        self._fails = fail_on_data_loss
        self._list_interval = list_interval
        self._max_outage = max_outage
        self._warnings = warnings
        self._planned: int | None = None
        self._described: Described | None = None
        self._is_listed = False
        self._eligible: frozenset[str] | None = None
        self._awaits_eligible = False
        self._calls: dict[str, Call] = {}
        self._due = {"list": 0, "describe": 0}
        self._backoff = Backoff()
        self._away: dict[str, Outage] = {}
        self._absent: dict[str, int] = {}
        self._not_found: dict[str, str] = {}
        self._may_enter = False
        self._logged = -OUTAGE_LINES

    def begin(self, start: StreamOffset | None, planned: int | None) -> None:
        """Continue from an offset; knowledge about shards that are at their positions is kept."""
        self.start, self._planned = start, planned
        known, self.looks = self.looks, {}
        for key, position in ({} if start is None else start.shards).items():
            look = known.get(key)
            if look is None or look.position != position:
                covered = (planned or 0) - (start.lag.get(key, 0) if start is not None else 0)
                look = Look(self.name, key, position, covered, unsure=position != END)
            self.looks[key] = look
        self._may_enter = True

    def prepare(self) -> None:
        """From now on only what is listed and seen counts, for a query that ends when it has all that there is now."""
        self._awaits_eligible = True
        self._eligible = None
        self._calls.pop("list", None)
        self._due["list"] = 0
        for look in self.looks.values():
            look.prepare()

    # What is asked.

    @property
    def is_known(self) -> bool:
        """Whether its shards are listed and it is described."""
        return self._is_listed and self._described is not None and not self._awaits_eligible

    @property
    def has_entered(self) -> bool:
        """Whether shards have entered that the offset lacks."""
        return self.looks.keys() != (self.start.shards if self.start is not None else {}).keys() or self.start is None

    def rules(self, rules: LookRules) -> LookRules:
        """A trigger's rules, with the stream's retention."""
        return replace(rules, retention=self.retention)

    @property
    def created(self) -> int | None:
        """When the stream was made, in s since the epoch; None if that is not known."""
        created = None if self._described is None else self._described.created
        return self.start.created if created is None and self.start is not None else created

    @property
    def is_described(self) -> bool:
        """Whether it was asked how long it keeps records."""
        return self._described is not None

    @property
    def under_way(self) -> Iterable[Call]:
        """The calls without an answer."""
        return self._calls.values()

    def next_due(self, rules: LookRules) -> int:
        """When the next call may be due, in ms of the caller's clock; calls under way apart."""
        times = [due for name, due in self._due.items() if name not in self._calls]
        if self.is_known:
            looks = (look.due(rules) for look in self.looks.values())
            times += [due for due in looks if due is not None]
        return min(times, default=2**62)

    def calls(self, now: int, date: int, rules: LookRules) -> Iterator[Call]:
        """The calls that are due, each once; a caller may stop at any of them."""
        for name, due, call in (
            ("describe", self._due["describe"], DescribeStream(self.name)),
            ("list", self._due["list"], ListShards(self.name)),
        ):
            if name not in self._calls and due <= now:
                self._calls[name] = call
                yield call
        if not self.is_known:
            return
        self._enter(date)
        rules = self.rules(rules)
        for key, look in sorted(self.looks.items(), key=lambda item: item[1].due(rules) or 0):
            look_call = look.call(now, date, rules)
            if look_call is not None:
                self._calls[key] = look_call
                yield look_call

    # What is seen.

    def answered(self, call: Call, answer: Answer, now: int, date: int, rules: LookRules) -> None:
        """A call has succeeded; a call that nobody waits for any longer is ignored."""
        key = self._key(call)
        if key is None:
            return
        del self._calls[key]
        if not isinstance(answer, str):  # new iterators do not end an outage of GetRecords
            self._away.pop(key, None)
        match call, answer:
            case DescribeStream(), Described():
                self._describe(answer, now)
            case ListShards(), _ if isinstance(answer, Sequence) and not isinstance(answer, str):
                self._list(answer, now)
            case ((GetShardIterator() | GetRecords()), (str() | Records())):
                look = self.looks[key]
                gone = look.answered(answer, now, date, self.rules(rules))
                if gone is not None:
                    self._judge(key, gone, date)
                self._may_enter |= look.has_ended
                if look.has_ended and not any(key in shard.parents for shard in self.shards.values()):
                    self._due["list"] = now
            case _:
                raise TypeError(f"{type(answer).__name__} is not an answer to {call}")
        if self.is_known:
            self._enter(date)

    def failed(self, call: Call, failure: Failure, error: BaseException, now: int) -> None:
        """A call has failed."""
        key = self._key(call)
        if key is None:
            return
        del self._calls[key]
        if failure in (Failure.UNAVAILABLE, Failure.NOT_FOUND):
            self._note_outage(key, call, error, now)
        if isinstance(call, GetShardIterator | GetRecords):
            if self.looks[key].failed(failure, now):
                return
            if failure is Failure.NOT_FOUND:
                self._not_found[key] = str(error)
                self._due["list"] = min(self._due["list"], now)
                return
        elif failure in (Failure.THROTTLED, Failure.UNAVAILABLE):
            self._due[key] = now + int(1000 * self._backoff.next())
            return
        elif failure is Failure.NOT_FOUND:
            raise StreamDoesNotExist(f"there is no stream {self.name}: {error}") from error
        elif isinstance(call, DescribeStream):
            self._due[key] = now + DESCRIBE_INTERVAL
            if self._described is None:
                self._warnings.append(f"{self.name}: the retention is taken as 24 h: {error}")
                self._described = Described()
                self._may_enter = True
            return
        arn = None if self._described is None else self._described.arn
        raise CallError.of(type(call).__name__, self.name, arn or self.name, failure, error) from error

    def positions(self) -> dict[str, Position]:
        """The position of each shard, by its id; `END` if nothing is left to plan."""
        return {key: END if look.has_ended else look.position for key, look in self.looks.items()}

    def could_enter(self) -> bool:
        """Whether a shard that counts may be read, and has not entered."""
        return bool(self._entering())

    # Insides.

    def _note_outage(self, key: str, call: Call, error: BaseException, now: int) -> None:
        away = self._away.setdefault(key, Outage()).failed(now)
        text = f"{self.name}: {error}"
        if away >= 1000:
            text += f"; so for {away / 1000:.0f} s"
        if away > self._max_outage:
            raise ConnectionError(f"{text}, and maxOutage is {self._max_outage / 1000:g} s") from error
        if now - self._logged >= OUTAGE_LINES:
            self._logged = now
            self._warnings.append(f"{text}; the call is made again")

    @property
    def retention(self) -> int:
        """How long it keeps records, in ms; a day where that is not known."""
        retention = None if self._described is None else self._described.retention
        return DAY if retention is None else retention

    def _key(self, call: Call) -> str | None:
        """Under which name a call is waited for; None if it is not."""
        match call:
            case DescribeStream():
                key = "describe"
            case ListShards():
                key = "list"
            case GetShardIterator() | GetRecords():
                key = call.shard_id
        if self._calls.get(key) is not call:
            return None
        if isinstance(call, GetShardIterator | GetRecords) and not (
            key in self.looks and self.looks[key].is_current(call)
        ):
            del self._calls[key]
            return None
        return key

    def _describe(self, described: Described, now: int) -> None:
        self._due["describe"] = now + DESCRIBE_INTERVAL
        before = self.created
        if before is not None and described.created is not None and described.created != before:
            raise AnotherStream(
                f"stream {self.name} was created {moment(1000 * described.created)}, the checkpoint is of one created "
                f"{moment(1000 * before)}: {NEW_CHECKPOINT}"
            )
        self._described = described
        self._may_enter = True
        self._backoff.reset()

    def _list(self, shards: Sequence[Shard], now: int) -> None:
        self.shards = {shard.shard_id: shard for shard in shards}
        self._is_listed = self._may_enter = True
        self._due["list"] = now + self._list_interval
        self._backoff.reset()
        if self._awaits_eligible:
            self._eligible, self._awaits_eligible = frozenset(self.shards), False
        for key, look in self.looks.items():
            if key in self.shards:
                self._check_shard(self.shards[key], look)
            elif look.position != END and not look.has_ended:
                self._miss(key, look, now)
        self._absent = {key: since for key, since in self._absent.items() if key not in self.shards}

    def _check_shard(self, shard: Shard, look: Look) -> None:
        number, start = look.position.number, shard.starting_sequence_number
        if number is not None and start is not None and not is_of_shard(number, start):
            raise AnotherStream(
                f"{self.name}/{shard.shard_id} begins with record {start}, and the checkpoint is at {number}, which is "
                f"of another stream: {NEW_CHECKPOINT}"
            )

    def _miss(self, key: str, look: Look, now: int) -> None:
        """A shard is not in the list."""
        since = self._absent.setdefault(key, now)
        if now - since < ABSENCE:
            self._due["list"] = since + ABSENCE
            return
        del self._absent[key]
        reason = self._not_found.get(key, "ListShards has it no more")
        self._lose(
            DataLossError(
                f"{self.name}/{key}: the shard is gone ({reason}), and was read up to {look.position}: its later "
                "records are lost. failOnDataLoss=false goes on with its children",
                key,
                look.position.text,
                None,
            )
        )
        look.vanish()
        self._may_enter = True
        self._calls.pop(key, None)

    def _judge(self, key: str, gone: Gone, date: int) -> None:
        trimmed = Trimmed(
            stream=self.name,
            shard_id=key,
            position=gone.position,
            covered=gone.covered,
            planned=self._planned,
            oldest=gone.oldest,
            retention=self.retention,
            now=date,
        )
        if trimmed.is_loss:
            self._lose(trimmed.error)
        elif gone.position.number is not None:
            what = f"record {gone.position} is trimmed, and nothing after it is missing"
            self._warnings.append(f"{self.name}/{key}: {what}")

    def _lose(self, error: DataLossError) -> None:
        if self._fails:
            raise error
        self._warnings.append(str(error))

    def _enter(self, date: int) -> None:
        """Let those shards enter that may be read now."""
        if not self._may_enter:
            return
        self._may_enter = False
        for key, position in self._entering(date).items():
            parents = [self.looks[parent] for parent in self._parents(key) if parent in self.looks]
            default = date if self.start is None else (self._planned or date)
            covered = min((parent.covered for parent in parents), default=default)
            self.looks[key] = Look(self.name, key, position, covered, unsure=self.start is not None or bool(parents))

    def _entering(self, date: int = 0) -> dict[str, Position]:
        if self.start is None and not self.looks:
            found = generations.beginning(self.shards, self._initial, date)
        else:
            times = {
                key: look.position.time
                for key, look in self.looks.items()
                if look.has_ended and look.position.time is not None
            }
            found = generations.entering(self.shards, self.positions(), times)
        if self._eligible is None:
            return found
        return {key: position for key, position in found.items() if key in self._eligible}

    def _parents(self, key: str) -> tuple[str, ...]:
        return self.shards[key].parents
