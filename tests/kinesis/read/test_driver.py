"""The threads that make the calls of planner and readers: order, bounds, and a service that hangs."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest
from fastkcl import RecordBatch, _core
from fastkcl.kinesis.access import Access
from fastkcl.kinesis.read.plan import END, TRIM, CallError, Offset, PlanOptions, Range, RangeReader, TimeRange
from fastkcl.kinesis.read.plan import TimeRangeReader as TimeReader
from fastkcl.kinesis.read.plan.calls import DescribeStream, ListShards
from fastkcl.kinesis.read.plan.driver import PlanDriver, make_call, read_ahead, read_range, records_of
from fastkcl.kinesis.read.plan.planner import ranges_of
from fastkcl.kinesis.service import Service
from fastkcl.local_aws import Fault, LocalAws
from local_aws_helpers import SHARD_0, client, make_stream
from waiting import wait_until

log = logging.getLogger("test")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")


@pytest.fixture
def service(aws: LocalAws) -> Iterator[Service]:
    made = Service(Access(endpoint_url=aws.url, region="us-east-1"))
    yield made
    made.close()


def fill(aws: LocalAws, stream: str, numbers: range) -> None:
    records = [{"Data": str(n).encode(), "PartitionKey": str(n)} for n in numbers]
    for begin in range(0, len(records), 500):
        client(aws).put_records(StreamName=stream, Records=records[begin : begin + 500])


def batch_of(*numbers: int, size: int = 1) -> RecordBatch:
    line = _core.encode_process_records(
        [b"x" * size for _ in numbers],
        ["k" for _ in numbers],
        [str(n) for n in numbers],
        [None for _ in numbers],
        [1_700_000_000_123 for _ in numbers],
    )
    message = _core.decode_line(line)
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


def numbers_in(batch: RecordBatch) -> list[int]:
    return [int(bytes(record.data or b"")) for record in batch]


def part(shard: int) -> Range:
    return Range(stream="s", shard_id=f"shardId-{shard:012d}", first="1", end=END)


# Answers.


def test_the_summary_of_a_stream(aws: LocalAws, service: Service) -> None:
    stream = make_stream(aws, 3)
    described, date = make_call(service, DescribeStream(stream))
    assert described.retention == 24 * 3_600_000  # type: ignore[union-attr]
    assert str(described.arn).endswith(f":stream/{stream}")  # type: ignore[union-attr]
    assert date is not None
    assert abs(described.created * 1000 - date) < 60_000  # type: ignore[operator, union-attr]
    by_arn, _ = make_call(service, ListShards(str(described.arn)))  # type: ignore[union-attr]
    assert len(by_arn) == 3  # type: ignore[arg-type]


def test_all_pages_of_shards(aws: LocalAws, service: Service) -> None:
    stream = make_stream(aws, 1001)
    shards, _ = make_call(service, ListShards(stream))
    assert len({shard.shard_id for shard in shards}) == 1001  # type: ignore[union-attr]


def test_an_answer_as_the_machines_see_it() -> None:
    body = (
        b'{"MillisBehindLatest":7,"NextShardIterator":"next","Records":['
        b'{"SequenceNumber":"3","ApproximateArrivalTimestamp":1.5,"Data":"eHg=","PartitionKey":"kkk"},'
        b'{"SequenceNumber":"10","Data":null,"PartitionKey":"k"}]}'
    )
    records = records_of(_core.decode_get_records(body, shard_id=SHARD_0))
    assert list(records.numbers) == ["3", "10"]
    assert records.numbers[-1] == "10"
    assert records.numbers[0:1] == ["3"]
    assert list(records.arrivals) == [1500, 0]
    assert list(records.sizes) == [5, 1]
    assert (records.millis_behind, records.next_iterator) == (7, "next")
    assert [records.rows_until(number) for number in (None, "2", "3", "9", "10", "99")] == [0, 0, 1, 1, 2, 2]


# Plans.


def test_a_plan_and_its_ranges(aws: LocalAws, service: Service) -> None:
    stream = make_stream(aws, 3)
    fill(aws, stream, range(700))
    driver = PlanDriver(PlanOptions(streams=(stream,), initial=TRIM), {stream: service}, threads=4, log=log)
    offset, seen = Offset(), []
    while len(seen) < 700:
        plan = driver.latest(offset)
        for item in plan.parts:
            batch = item.head.records.content  # type: ignore[union-attr]
            assert isinstance(batch, RecordBatch)
            seen += numbers_in(batch.slice(item.head.begin, len(item.head)))  # type: ignore[union-attr, arg-type]
        again = [
            n for r in ranges_of(plan.offset, {}) for b in read_range(RangeReader(r), service) for n in numbers_in(b)
        ]
        assert sorted(again) == sorted(seen[len(seen) - len(again) :])
        offset = plan.offset
    assert sorted(seen) == list(range(700))
    quiet = driver.latest(offset)
    assert str(quiet.offset) == str(offset)
    assert driver.calls["ListShards"] == 1
    driver.close()


def test_a_shard_that_hangs_delays_no_other(own_aws: LocalAws) -> None:
    stream = make_stream(own_aws, 3)
    fill(own_aws, stream, range(30))
    calls = Service(Access(endpoint_url=own_aws.url, region="us-east-1"))
    hung = "shardId-000000000001"
    own_aws.faults(Fault("GetShardIterator", delay=20.0, contains=hung))
    driver = PlanDriver(PlanOptions(streams=(stream,), initial=TRIM), {stream: calls}, threads=8, log=log)
    began = monotonic()
    plan = driver.latest(Offset())
    while not plan.parts:
        plan = driver.latest(plan.offset)
    assert monotonic() - began < 10
    assert hung not in plan.offset.streams[stream].first
    assert len({item.shard_id for item in plan.parts}) >= 1
    driver.close()
    calls.close()


def test_an_error_of_a_call_ends_the_plan(own_aws: LocalAws) -> None:
    stream = make_stream(own_aws)
    calls = Service(Access(endpoint_url=own_aws.url, region="us-east-1"))
    own_aws.faults(Fault("GetShardIterator", "AccessDeniedException"))
    driver = PlanDriver(PlanOptions(streams=(stream,), initial=TRIM), {stream: calls}, threads=2, log=log)
    with pytest.raises(CallError, match=f"kinesis:GetShardIterator on arn:.*stream/{stream} is denied"):
        driver.latest(Offset())
    driver.close()
    calls.close()


def test_an_outage_at_the_start_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Before the first batch, for which the driver waits as long as the outage may last."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    calls = Service(Access(endpoint_url=f"http://127.0.0.1:{port}", region="us-east-1"))
    options = PlanOptions(streams=("orders",), initial=TRIM, max_outage=3_000)
    driver = PlanDriver(options, {"orders": calls}, threads=2, log=log)
    failed: list[BaseException] = []

    def plan() -> None:
        try:
            driver.latest(Offset())
        except ConnectionError as error:
            failed.append(error)

    thread = threading.Thread(target=plan)
    thread.start()
    wait_until(lambda: "Connection refused; the call is made again" in caplog.text, "the first line")
    assert not failed
    thread.join(60)
    assert "so for" in str(failed[0])
    assert "and maxOutage is 3 s" in str(failed[0])
    driver.close()
    calls.close()


def test_threads_end(service: Service, aws: LocalAws) -> None:
    before = set(threading.enumerate())
    stream = make_stream(aws)
    driver = PlanDriver(PlanOptions(streams=(stream,)), {stream: service}, threads=3, log=log)
    driver.latest(Offset())
    its = set(threading.enumerate()) - before
    assert its
    driver.close()
    driver.close()
    wait_until(lambda: not its & set(threading.enumerate()), "the threads' end")


def test_a_time_that_is_over(aws: LocalAws, service: Service) -> None:
    stream = make_stream(aws)
    fill(aws, stream, range(100))
    shard = TimeRange(stream=stream, shard_id=SHARD_0, start=TRIM, until=2**45)
    seen = [n for batch in read_range(TimeReader(shard, limit=30), service) for n in numbers_in(batch)]
    assert seen == list(range(100))


# Several ranges.


def test_ranges_come_in_their_order() -> None:
    parts = [part(n) for n in range(20)]
    begun: list[int] = []

    def read(this: Range | TimeRange, stopped: Callable[[], bool]) -> Iterator[RecordBatch]:
        number = parts.index(this)  # type: ignore[arg-type]
        begun.append(number)
        for n in range(3):
            yield batch_of(10 * number + n)

    seen = [(this, int(batch[0].sequence_number)) for this, batch in read_ahead(parts, read)]
    assert seen == [(this, 10 * number + n) for number, this in enumerate(parts) for n in range(3)]
    assert sorted(begun) == list(range(20))


def test_what_is_fetched_ahead_is_bounded() -> None:
    parts = [part(n) for n in range(8)]
    made = 0
    lock = threading.Lock()

    def read(this: Range | TimeRange, stopped: Callable[[], bool]) -> Iterator[RecordBatch]:
        nonlocal made
        for n in range(50):
            with lock:
                made += 1
            yield batch_of(n, size=1000)

    taking = read_ahead(parts, read, threads=4, max_bytes=20_000)
    for taken in range(1, 61):
        next(taking)
        assert made - taken <= 20 + 2 * 4
    taking.close()  # type: ignore[attr-defined]
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("fastkcl-read")], "the threads' end")


def test_an_error_comes_where_its_range_is_taken() -> None:
    parts = [part(n) for n in range(4)]

    def read(this: Range | TimeRange, stopped: Callable[[], bool]) -> Iterator[RecordBatch]:
        yield batch_of(1)
        if this is parts[2]:
            raise ConnectionError("gone")
        yield batch_of(2)

    seen: list[Range | TimeRange] = []
    with pytest.raises(ConnectionError, match="gone"):
        seen.extend(this for this, _ in read_ahead(parts, read))
    assert seen == [parts[0]] * 2 + [parts[1]] * 2 + [parts[2]]


def test_a_large_range_is_taken_though_others_fill_the_room() -> None:
    parts = [part(n) for n in range(4)]
    others = threading.Event()

    def read(this: Range | TimeRange, stopped: Callable[[], bool]) -> Iterator[RecordBatch]:
        if this is parts[0]:
            assert others.wait(30)
        else:
            others.set()
        for n in range(10):
            yield batch_of(n, size=5000)

    assert sum(1 for _ in read_ahead(parts, read, threads=4, max_bytes=9_000)) == 40
