"""Drives planner and readers by threads: makes their calls, and gives them the answers and the time.

    PlanDriver.latest ──▶ Planner ──▶ calls ──▶ threads ──▶ Service ──▶ answers ──▶ Planner ──▶ Plan
    read_range        ──▶ RangeReader ──▶ a call ──▶ Service ──▶ answer ──▶ RangeReader ──▶ batches
    read_ahead        several ranges in their order, while the next ones are fetched

Rules: a state machine is used by one thread; the threads of a driver only make calls. Answers that come late wait in a
queue for the next batch. Records that are fetched ahead are bounded in bytes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, overload

from fastkcl._core import GetRecordsAnswer, RecordBatch
from fastkcl.kinesis.failures import Failure
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
from fastkcl.kinesis.read.plan.offset import Offset
from fastkcl.kinesis.read.plan.planner import Plan, Planner, PlanOptions
from fastkcl.kinesis.read.plan.ranges import Range, RangeReader, TimeRange, TimeRangeReader
from fastkcl.kinesis.service import Service, ServiceError
from fastkcl.kinesis.topology import Shard

if TYPE_CHECKING:
    from pyarrow import Array

__all__ = ["PlanDriver", "make_call", "read_ahead", "read_range"]

THREADS = 32
AHEAD_THREADS = 4
AHEAD_BYTES = 64 << 20
PAGES = 1_000
"""Pages of shards at most: no stream has more."""

Reader = RangeReader | TimeRangeReader


def address_of(stream: str) -> dict[str, str]:
    """How requests name a stream."""
    return {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}


def make_call(service: Service, call: Call) -> tuple[Answer, int | None]:
    """Make a call.

    Returns:
        The answer, and the service's time in ms since the epoch.

    Raises:
        ServiceError: it has failed.
    """
    address = address_of(call.stream)
    match call:
        case ListShards():
            return _list_shards(service, address)
        case DescribeStream():
            answer, date = service.json("DescribeStreamSummary", address)
            summary = answer["StreamDescriptionSummary"]
            created, hours = summary.get("StreamCreationTimestamp"), summary.get("RetentionPeriodHours")
            return Described(
                None if created is None else int(created),
                None if hours is None else int(hours) * 3_600_000,
                summary.get("StreamARN"),
            ), date
        case GetShardIterator():
            request = {**address, "ShardId": call.shard_id, **call.request}
            answer, date = service.json("GetShardIterator", request)
            return str(answer["ShardIterator"]), date
        case GetRecords():
            records, date = service.get_records(call.iterator, call.limit, shard_id=call.shard_id, address=address)
            return records_of(records), date


def records_of(answer: GetRecordsAnswer) -> Records:
    """An answer as the state machines see it; its content is the batch."""
    batch = answer.batch
    return Records(
        _Numbers(batch),
        _Integers(batch, _arrivals),
        _Integers(batch, _sizes),
        answer.millis_behind_latest or 0,
        answer.next_shard_iterator,
        batch,
    )


class PlanDriver:
    """Plans the batches of a query.

    Args:
        options: of the planner.
        services: by stream, as the options name them.
        threads: for calls.
        log: for what the planner warns of.

    Attributes:
        calls: how many were made, by operation.
        throttled: how many of them were.
        outages: how many of them did not reach the service, or failed there.
    """

    def __init__(
        self, options: PlanOptions, services: Mapping[str, Service], *, threads: int, log: logging.Logger
    ) -> None:
        self.planner = Planner(options)
        self.calls: Counter[str] = Counter()
        self.throttled = self.outages = 0
        self._services = services
        self._most = threads
        self._log = log
        self._work: SimpleQueue[Call | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Call, Answer | BaseException, int | None]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._in_flight = 0
        self._stopped = False

    def latest(self, start: Offset, *, everything: bool = False) -> Plan:
        """The next batch, or an empty one at `start` if nothing is new.

        Args:
            start: where it begins.
            everything: all that there is now, in one batch.

        Raises:
            Exception: those of the planner.
        """
        planner = self.planner
        planner.begin(start, _now(), everything=everything)
        try:
            while True:
                pause = planner.wait(_now())
                if pause == 0:
                    return planner.plan(_now())
                self._start(planner.calls(_now(), self._most))
                self._take(pause)
                self._warn()  # a first batch may be waited for as long as an outage lasts
        finally:
            self._warn()

    def _warn(self) -> None:
        for line in self.planner.warnings():
            self._log.warning("%s", line)

    def close(self) -> None:
        """End the threads; those in a call end with it."""
        if not self._stopped:
            self._stopped = True
            for _ in self._threads:
                self._work.put(None)

    def _start(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.calls[_operation(call)] += 1
            self._in_flight += 1
            self._work.put(call)
            if len(self._threads) < min(self._in_flight, self._most):
                thread = threading.Thread(target=self._run, name=f"fastkcl-plan-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _take(self, pause: int) -> None:
        """Wait for an answer, and give the planner all that have come."""
        try:
            found = self._done.get(timeout=pause / 1000)
        except Empty:
            return
        while True:
            self._tell(*found)
            try:
                found = self._done.get_nowait()
            except Empty:
                return

    def _tell(self, call: Call, answer: Answer | BaseException, date: int | None) -> None:
        self._in_flight -= 1
        if isinstance(answer, ServiceError):
            self.throttled += answer.failure is Failure.THROTTLED
            self.outages += answer.failure is Failure.UNAVAILABLE
            self.planner.failed(call, answer.failure, answer, _now())
        elif isinstance(answer, BaseException):
            raise answer
        else:
            self.planner.answered(call, answer, _now(), int(time.time() * 1000) if date is None else date)

    def _run(self) -> None:
        while (call := self._work.get()) is not None:
            try:
                answer, date = make_call(self._services[call.stream], call)
            except BaseException as error:  # noqa: BLE001 - it ends the query, from its own thread
                self._done.put((call, error, None))
            else:
                self._done.put((call, answer, date))


def read_range(reader: Reader, service: Service, stopped: Callable[[], bool] = lambda: False) -> Iterator[RecordBatch]:
    """The records of a range, as they come.

    Args:
        reader: of the range, not begun.
        service: of its stream.
        stopped: whether nobody wants them any more.

    Raises:
        Exception: those of the reader.
    """
    while not reader.finished and not stopped():
        call = reader.call(_now())
        if call is None:
            time.sleep(min(0.2, reader.wait(_now()) / 1000))
            continue
        try:
            answer, date = make_call(service, call)
        except ServiceError as error:
            reader.failed(error.failure, error, _now())
            continue
        assert isinstance(answer, str | Records)
        rows = reader.answered(answer, _now(), date)
        if rows:
            assert isinstance(answer, Records)
            batch = answer.content
            assert isinstance(batch, RecordBatch)
            yield batch if len(rows) == len(batch) else batch.slice(rows.start, len(rows))


def read_ahead(
    parts: Sequence[Range | TimeRange],
    read: Callable[[Range | TimeRange, Callable[[], bool]], Iterator[RecordBatch]],
    *,
    threads: int = AHEAD_THREADS,
    max_bytes: int = AHEAD_BYTES,
) -> Iterator[tuple[Range | TimeRange, RecordBatch]]:
    """The records of several ranges, one range after the other, while the next ones are fetched.

    Args:
        parts: in their order.
        read: the batches of a part; is called in a thread, and is given whether nobody wants them any more.
        threads: for ranges under way together.
        max_bytes: of batches that wait for the caller; one more for each thread may be on its way.
    """
    if len(parts) == 1:
        for batch in read(parts[0], lambda: False):
            yield parts[0], batch
        return
    ahead = _Ahead(parts, read, max_bytes)
    workers = [
        threading.Thread(target=ahead.run, name=f"fastkcl-read-{number}", daemon=True)
        for number in range(min(threads, len(parts)))
    ]
    for worker in workers:
        worker.start()
    try:
        yield from ahead.take()
    finally:
        ahead.stop()


class _Ahead:
    def __init__(
        self,
        parts: Sequence[Range | TimeRange],
        read: Callable[[Range | TimeRange, Callable[[], bool]], Iterator[RecordBatch]],
        max_bytes: int,
    ) -> None:
        self._parts, self._read, self._max_bytes = parts, read, max_bytes
        self._changed = threading.Condition()
        self._ready: list[deque[RecordBatch]] = [deque() for _ in parts]
        self._ended: list[BaseException | bool] = [False for _ in parts]
        self._next = self._current = self._held = 0
        self._stopped = False

    def run(self) -> None:
        while True:
            with self._changed:
                if self._stopped or self._next == len(self._parts):
                    return
                number = self._next
                self._next += 1
            end: BaseException | bool = True
            try:
                for batch in self._read(self._parts[number], lambda: self._stopped):
                    if not self._put(number, batch):
                        return
            except BaseException as error:  # noqa: BLE001 - it is raised where the records are taken
                end = error
            with self._changed:
                self._ended[number] = end
                self._changed.notify_all()

    def _put(self, number: int, batch: RecordBatch) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(number, batch))
            self._ready[number].append(batch)
            self._held += batch.nbytes
            self._changed.notify_all()
            return not self._stopped

    def _has_room(self, number: int, batch: RecordBatch) -> bool:
        # The part that is taken now may always have one batch ready, so that others cannot block it.
        is_wanted = number == self._current and not self._ready[number]
        return is_wanted or self._held + batch.nbytes <= self._max_bytes

    def take(self) -> Iterator[tuple[Range | TimeRange, RecordBatch]]:
        for number, part in enumerate(self._parts):
            while True:
                with self._changed:
                    self._current = number
                    self._changed.notify_all()
                    self._changed.wait_for(lambda number=number: self._ready[number] or self._ended[number])  # type: ignore[misc]
                    if not self._ready[number]:
                        end = self._ended[number]
                        if isinstance(end, BaseException):
                            raise end
                        break
                    batch = self._ready[number].popleft()
                    self._held -= batch.nbytes
                    self._changed.notify_all()
                yield part, batch

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class _Numbers(Sequence[str]):
    """The sequence numbers of a batch, made when they are asked for."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._batch[row].sequence_number for row in range(*index.indices(len(self._batch)))]
        return self._batch[index].sequence_number


class _Integers(Sequence[int]):
    """A number for each record, made when the first is asked for."""

    def __init__(self, batch: RecordBatch, make: Callable[[Any], Array]) -> None:
        self._batch, self._make = batch, make
        self._values: list[int] | None = None

    def _all(self) -> list[int]:
        if self._values is None:
            import pyarrow

            self._values = self._make(pyarrow.record_batch(self._batch)).to_pylist()
        return self._values

    def __len__(self) -> int:
        return len(self._batch)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._all()[index]


def _arrivals(batch: Any) -> Array:  # noqa: ANN401
    import pyarrow.compute as pc

    micros = batch.column("approximateArrivalTimestamp").cast("int64")
    return pc.divide(pc.fill_null(micros, 0), 1000)


def _sizes(batch: Any) -> Array:  # noqa: ANN401
    import pyarrow.compute as pc

    data = pc.fill_null(pc.binary_length(batch.column("data")), 0)
    return pc.add(data, pc.binary_length(batch.column("partitionKey")))


def _list_shards(service: Service, address: Mapping[str, str]) -> tuple[list[Shard], int | None]:
    shards: list[Shard] = []
    request: Mapping[str, object] = address
    for _ in range(PAGES):
        answer, date = service.json("ListShards", request)
        shards += map(Shard.from_answer, answer["Shards"])
        if not answer.get("NextToken"):
            return shards, date
        request = {"NextToken": answer["NextToken"]}
    raise ServiceError(f"ListShards has more than {PAGES} pages", Failure.OTHER, "TooManyPages")


def _operation(call: Call) -> str:
    return "DescribeStreamSummary" if isinstance(call, DescribeStream) else type(call).__name__


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
