"""The producer: the records that reach the stream, the failures, and no loss and no leftovers."""

import asyncio
import base64
import itertools
import json
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest
from botocore.exceptions import ClientError
from fastkcl.kinesis import (
    ExceededPutLimit,
    InMemoryMetricsCollector,
    JsonLineProcessor,
    JsonListProcessor,
    KPLJsonProcessor,
    OutputItem,
    Producer,
    StreamDoesNotExist,
    StringProcessor,
    UnknownException,
    ValidationError,
    deaggregate,
    decode_get_records,
)
from fastkcl.kinesis.client import StreamClient
from fastkcl.kinesis.topology import Shard
from fastkcl.local_aws import Fault, LocalAws
from local_aws_helpers import client, new_name, read, server_of, shards
from paths import EXAMPLES
from waiting import until

T = TypeVar("T")
Answer = Callable[[Sequence[dict[str, Any]]], Awaitable[dict[str, Any]]]


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run it within a minute, and see that it leaves no task behind."""

    async def alone() -> T:
        try:
            async with asyncio.timeout(60):
                return await coroutine
        finally:
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

    return asyncio.run(alone())


class Stub(StreamClient):
    """A client whose service is `answer`, without shards."""

    answer: Answer
    calls: list[list[dict[str, Any]]]

    async def open(self) -> None:
        self.calls = []

    async def close(self) -> None:
        pass

    async def list_shards(self) -> list[Shard]:
        return [Shard(shard_id="s", hash_range=(0, 2**128 - 1))]

    async def call_once(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        assert operation == "put_records"
        assert request["StreamName"] == "orders"
        records = request["Records"]
        assert isinstance(records, list)
        self.calls.append(records)
        return await self.answer(records)


class Stubbed(Producer):
    """A producer of a service that takes everything, or does what it is told to."""

    _client_class = Stub

    def __init__(self, answer: Answer | None = None, **options: Any) -> None:
        super().__init__("orders", **{"buffer_time": 0.01, "processor": StringProcessor(), **options})
        self.stub.answer = answer or accept

    @property
    def stub(self) -> Stub:
        assert isinstance(self._client, Stub)
        return self._client

    @property
    def texts(self) -> list[list[str]]:
        """Data of the calls."""
        return [[record["Data"].decode() for record in call] for call in self.stub.calls]


def outcome(code: str | None = None) -> dict[str, str]:
    return {"ShardId": "s"} if code is None else {"ErrorCode": code, "ErrorMessage": ""}


async def accept(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"Records": [outcome() for _ in records]}


def failure(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutRecords")


def script(*steps: Any) -> Answer:
    """One step for each call: an exception, or codes of its records; then everything is accepted."""
    left = list(steps)

    async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        step = left.pop(0) if left else [None] * len(records)
        if isinstance(step, BaseException):
            raise step
        return {"Records": [outcome(code) for code in step]}

    return answer


# Arguments.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"buffer_time": 0}, "buffer_time must be above 0"),
        ({"buffer_time": float("nan")}, "buffer_time must be above 0"),
        ({"put_rate_limit_per_shard": 0}, "put_rate_limit_per_shard must be above 0"),
        ({"put_bandwidth_limit_per_shard": -1}, "put_bandwidth_limit_per_shard must be above 0"),
        ({"batch_size": 0}, "batch_size must be 1 to 500"),
        ({"batch_size": 501}, "batch_size must be 1 to 500"),
        ({"max_queue_size": 0}, "max_queue_size must be 1 or more"),
        ({"max_record_bytes": 2**19}, "records of JsonProcessor have up to 1,024,256 bytes with their keys"),
        ({"max_request_bytes": 2**19}, "max_request_bytes, 524,288, no less"),
        ({"retry_limit": -1}, "retry_limit must be 0 or more"),
        ({"aggregate": True, "processor": JsonLineProcessor()}, "which JsonLineProcessor does not make"),
        ({"aggregate": True, "skip_describe_stream": True}, "aggregate needs to know the shards"),
        ({"expo_backoff": 0}, "expo_backoff must be above 0"),
        ({"expo_backoff_limit": 0}, "expo_backoff_limit must be above 0"),
        ({"create_stream_shards": 0}, "create_stream_shards must be 1 or more"),
    ],
)
def test_an_argument_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Producer("orders", **options)


def test_other_arguments() -> None:
    with pytest.raises(TypeError, match="session must be"):
        Producer("orders", session=object())
    with pytest.raises(TypeError, match="processor must be"):
        Producer("orders", processor=JsonLineProcessor)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="after_flush_fun must be"):
        Producer("orders", after_flush_fun=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected option 'buffertime'"):
        Producer("orders", buffertime=1)  # type: ignore[call-arg]
    smaller = Producer("orders", processor=JsonLineProcessor(max_size=100), max_record_bytes=2**17)
    assert smaller.processor.max_bytes == 102_400


def test_a_bandwidth_above_the_services(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Producer("orders", put_bandwidth_limit_per_shard=1024)
        assert caplog.messages == []
        Producer("orders", put_bandwidth_limit_per_shard=2048)
    assert caplog.messages == [
        "put_bandwidth_limit_per_shard=2048: a shard of AWS takes 1024 KiB a second and refuses more"
    ]


@pytest.mark.parametrize("key", ["", "x" * 257, "ä" * 129, "\ud800", 7, b"k"])
def test_what_is_no_partition_key(key: Any) -> None:
    async def main() -> None:
        async with Stubbed() as producer:
            with pytest.raises(ValidationError, match="a partition key"):
                await producer.put("x", key)
            await producer.put("y", "ä" * 128)
        assert producer.texts == [["y"]]

    run(main())


# Batches.


def test_what_was_put_is_in_the_stream_after_flush_and_after_close() -> None:
    async def main() -> None:
        async with Stubbed(buffer_time=3600) as producer:
            for number in range(1200):
                await producer.put(number, "k")
            await producer.flush()
            assert sum(map(len, producer.stub.calls)) == 1200
            assert producer.queue_size == 0
            await producer.put("last", "k")
        assert list(itertools.chain(*producer.texts)) == [str(number) for number in range(1200)] + ["last"]
        assert [len(call) for call in producer.stub.calls] == [500, 500, 200, 1]

    run(main())


def test_a_record_waits_for_buffer_time_at_most() -> None:
    async def main() -> None:
        arrived = asyncio.Event()

        async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
            arrived.set()
            return await accept(records)

        async with Stubbed(answer, processor=JsonListProcessor()) as producer:
            for number in range(3):
                await producer.put(number, "k")
            await arrived.wait()
            assert producer.texts == [["[0, 1, 2]"]]

    run(main())


def test_a_full_call_waits_for_nothing() -> None:
    async def main() -> None:
        arrived = asyncio.Event()

        async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
            arrived.set()
            return await accept(records)

        async with Stubbed(answer, buffer_time=3600, batch_size=10) as producer:
            for number in range(10):
                await producer.put(number)
            await arrived.wait()
            assert [len(call) for call in producer.stub.calls] == [10]

    run(main())


def test_keys_that_nobody_gave() -> None:
    async def main() -> None:
        async with Stubbed(script(["InternalFailure", None])) as producer:
            await producer.put("a")
            await producer.put("b")
            await producer.flush()
        first, again = producer.stub.calls
        keys = [record["PartitionKey"] for record in first]
        assert len(set(keys)) == 2
        assert all(len(key) == 36 for key in keys)
        assert again == first[:1]  # under the same key

    run(main())


def test_a_large_call() -> None:
    async def main() -> None:
        async with Stubbed(buffer_time=3600, put_bandwidth_limit_per_shard=10**6) as producer:
            for _ in range(11):
                await producer.put("x" * 1_000_000, "k" * 256)
            await producer.flush()
            with pytest.raises(ExceededPutLimit):
                await producer.put("x" * 1_024_001, "k")
        assert [len(call) for call in producer.stub.calls] == [5, 5, 1]

    run(main())


def test_kpl_aggregates() -> None:
    async def main() -> None:
        processor = KPLJsonProcessor()
        async with Stubbed(processor=processor) as producer:
            for number in range(100):
                await producer.put({"n": number})
            with pytest.raises(ValueError, match="Custom partition keys are not supported with KPL"):
                await producer.put({}, "k")
        ((record,),) = producer.stub.calls
        assert processor.parse(record["Data"]) == [{"n": number} for number in range(100)]
        assert record["PartitionKey"] == "a"

    run(main())


def test_the_queue_is_bounded_and_its_waiters_keep_their_order() -> None:
    async def main() -> None:
        let = asyncio.Event()

        async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
            await let.wait()
            return await accept(records)

        async with Stubbed(answer, max_queue_size=5, batch_size=2) as producer:
            putting = [asyncio.create_task(producer.put(number, "k")) for number in range(20)]
            while producer.queue_size < 5:
                await asyncio.sleep(0)
            for _ in range(20):
                await asyncio.sleep(0)
                assert producer.queue_size == 5
            putting[7].cancel()  # of those that wait
            let.set()
            done = await asyncio.gather(*putting, return_exceptions=True)
        assert [number for number, result in enumerate(done) if isinstance(result, BaseException)] == [7]
        assert list(itertools.chain(*producer.texts)) == [str(number) for number in range(20) if number != 7]

    run(main())


# Refusals and failures.


def test_refused_records_go_again_in_their_order() -> None:
    async def main() -> None:
        throttled = "ProvisionedThroughputExceededException"
        metrics = InMemoryMetricsCollector()
        flushed: list[list[bytes]] = []

        async def after_flush(items: Sequence[OutputItem]) -> None:
            flushed.append([item.data for item in items])

        answer = script([None, throttled, "InternalFailure", None], [throttled, None])
        async with Stubbed(answer, after_flush_fun=after_flush, metrics_collector=metrics) as producer:
            for text in "abcd":
                await producer.put(text, "k")
            await producer.flush()
        assert producer.texts == [["a", "b", "c", "d"], ["b", "c"], ["b"]]
        assert flushed == [[b"a", b"d"], [b"c"], [b"b"]]
        assert metrics.counters == {
            "producer_records_sent_total{stream_name=orders}": 4,
            "producer_bytes_sent_total{stream_name=orders}": 8,
            f"producer_errors_total{{error_type={throttled},stream_name=orders}}": 2,
            "producer_errors_total{error_type=InternalFailure,stream_name=orders}": 1,
            "producer_throttles_total{stream_name=orders}": 2,
        }
        assert metrics.histograms["producer_batch_size{stream_name=orders}"] == [4, 2, 1]
        assert len(metrics.histograms["producer_flush_duration_seconds{stream_name=orders}"]) == 3
        assert metrics.gauges == {"producer_queue_size{stream_name=orders}": 0}

    run(main())


def test_calls_that_fail_as_a_whole_go_again() -> None:
    async def main() -> None:
        metrics = InMemoryMetricsCollector()
        answer = script(
            failure("ProvisionedThroughputExceededException"),
            failure("InternalFailure", 500),
            OSError("reset"),
            TimeoutError(),
        )
        async with Stubbed(answer, expo_backoff=0.001, metrics_collector=metrics) as producer:
            await producer.put("a", "k")
        assert producer.texts == [["a"]] * 5
        errors = {name: n for name, n in metrics.counters.items() if name.startswith("producer_errors")}
        assert errors == {
            f"producer_errors_total{{error_type={name},stream_name=orders}}": 1
            for name in ("ProvisionedThroughputExceededException", "InternalFailure", "OSError", "TimeoutError")
        }

    run(main())


@pytest.mark.parametrize(
    ("steps", "error", "message"),
    [
        (
            [["KMSDisabledException", None, "KMSDisabledException"]],
            UnknownException,
            "orders refuses records: KMSDisabledException 2x",
        ),
        ([failure("AccessDeniedException")], UnknownException, "orders refuses a call: .*AccessDeniedException"),
        ([failure("ResourceNotFoundException")], StreamDoesNotExist, "there is no stream orders"),
        ([OSError("reset")] * 3, ConnectionError, "put_records of orders: the service cannot be reached"),
        ([[None]], ValueError, "an answer of 1 outcomes to a call of 3 records"),
        ([ZeroDivisionError("why")], ZeroDivisionError, "why"),
    ],
)
def test_a_failure_reaches_flush_and_flush_tries_again(steps: list[Any], error: type[Exception], message: str) -> None:
    async def main() -> None:
        async with Stubbed(script(*steps), retry_limit=2, expo_backoff=0.001, buffer_time=3600) as producer:
            for text in "abc":
                await producer.put(text, "k")
            with pytest.raises(error, match=message):
                await producer.flush()
            with pytest.raises(error, match=message):
                await producer.put("not taken", "k")
            left = [item.data.decode() for item in producer.unsent]
            assert left == (["a", "c"] if isinstance(steps[0], list) and len(steps[0]) == 3 else ["a", "b", "c"])
            await producer.flush()
            assert producer.texts[-1] == left
            await producer.put("d", "k")
        assert producer.texts[-1] == ["d"]
        assert producer.unsent == []

    run(main())


def test_a_failure_in_the_background_reaches_the_next_put_and_close_tries_again() -> None:
    async def main() -> None:
        async with Stubbed(script(failure("AccessDeniedException"))) as producer:
            await producer.put("a", "k")

            async def put_more() -> None:
                while True:
                    await asyncio.sleep(0)
                    await producer.put("b", "k")

            with pytest.raises(UnknownException):
                await put_more()
        assert producer.texts[0][0] == producer.texts[1][0] == "a"

    run(main())


def test_what_close_could_not_put_is_there_to_see() -> None:
    async def main() -> None:
        producer = Stubbed(script(*[failure("AccessDeniedException")] * 9), processor=JsonLineProcessor())
        await producer.put({"n": 1}, "k")
        await producer.put({"n": 2}, "k")
        with pytest.raises(UnknownException) as raised:
            await producer.close()
        assert raised.value.__notes__ == ["1 records are not in orders: see Producer.unsent"]
        assert [(item.data, item.n) for item in producer.unsent] == [(b'{"n": 1}\n{"n": 2}\n', 2)]
        for late in (producer.put("x"), producer.flush(), producer.start()):
            with pytest.raises(RuntimeError, match="the producer of orders is closed"):
                await late
        await producer.close()

    run(main())


@pytest.mark.parametrize(
    "options", [{}, {"aggregate": True}, {"processor": JsonLineProcessor()}], ids=["plain", "aggregate", "lines"]
)
def test_a_loop_that_ends_before_close(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """Also what an open record or aggregate holds is not in the stream."""
    producer = Stubbed(script(), **{"processor": StringProcessor(), "buffer_time": 60, **options})

    async def main() -> None:
        for text in "abc":
            await producer.put(text, "k")

    asyncio.run(main())
    left = len(producer.unsent)
    assert sum(item.n for item in producer.unsent) == 3
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith(f"before close(): {left} records are not in the stream")


def test_nothing_is_taken_when_the_task_was_cancelled() -> None:
    """By an after_flush_fun that was, for example: what is put then would wait for ever."""

    async def main() -> None:
        async def after_flush(items: Sequence[OutputItem]) -> None:
            raise asyncio.CancelledError

        producer = Stubbed(after_flush_fun=after_flush)
        await producer.put("a", "k")
        for _ in range(2):
            await producer.flush()  # nothing is left to put
            with pytest.raises(RuntimeError, match="puts nothing any more"):
                await producer.put("b", "k")
        await producer.close()
        assert producer.texts == [["a"]]
        assert producer.unsent == []

    run(main())


def test_an_error_of_after_flush_fun_stops_nothing_and_is_raised_once() -> None:
    async def main() -> None:
        async def after_flush(items: Sequence[OutputItem]) -> None:
            if items[0].data == b"a":
                raise KeyError("mine")

        async with Stubbed(after_flush_fun=after_flush) as producer:
            await producer.put("a", "k")
            with pytest.raises(KeyError, match="mine"):
                await producer.flush()
            await producer.put("b", "k")
            await producer.flush()
        producer = Stubbed(after_flush_fun=after_flush)
        with pytest.raises(KeyError, match="mine"):
            async with producer:
                await producer.put("a", "k")
        assert producer.texts == [["a"]]

    run(main())


def test_flush_waits_for_after_flush_fun_which_must_not_wait_for_the_producer() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def after_flush(items: Sequence[OutputItem]) -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            for wait in (producer.flush, producer.close):
                with pytest.raises(RuntimeError, match="in after_flush_fun would wait for itself"):
                    await wait()
            seen.extend(item.data.decode() for item in items)
            if items[0].data == b"a":
                await producer.put("from within", "k")

        async with Stubbed(after_flush_fun=after_flush) as producer:
            await producer.put("a", "k")
            await producer.flush()
            assert seen == ["a"]
        assert seen == ["a", "from within"]

    run(main())


# Ends.


def test_a_cancelled_flush_leaves_the_sending_alone() -> None:
    async def main() -> None:
        let = asyncio.Event()

        async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
            await let.wait()
            return await accept(records)

        async with Stubbed(answer) as producer:
            await producer.put("a", "k")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await producer.flush()
            let.set()
        assert producer.texts == [["a"]]

    run(main())


def test_a_cancelled_close_ends_the_task_and_tells_what_is_left() -> None:
    async def main() -> None:
        async def answer(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        producer = Stubbed(answer)
        await producer.put("a", "k")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await producer.close()
        with pytest.raises(RuntimeError, match="puts nothing any more"):
            await flushing
        assert [item.data for item in producer.unsent] == [b"a"]

    run(main())


def test_a_producer_that_was_never_used() -> None:
    async def main() -> None:
        producer = Stubbed()
        await producer.close()
        async with Stubbed() as producer:
            pass
        assert producer.stub.calls == []

    run(main())


# Against the service.


@pytest.fixture
def kinesis(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    server = server_of(request)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    return client(server)


def stored(kinesis: Any, stream: str) -> dict[str, list[tuple[str, Any]]]:
    """Keys and values of all records, by shard."""
    return {
        shard["ShardId"]: [
            (record["PartitionKey"], json.loads(record["Data"])) for record in read(kinesis, stream, shard["ShardId"])
        ]
        for shard in shards(kinesis, stream)
    }


def of_key(kinesis: Any, stream: str) -> dict[str, list[Any]]:
    """Values in their order, by key; the shards of a stream begin parents first."""
    values: dict[str, list[Any]] = {}
    for rows in stored(kinesis, stream).values():
        for key, value in rows:
            values.setdefault(key, []).append(value)
    return values


async def put_all(producer: Producer, numbers: range, keys: int = 10) -> None:
    for number in numbers:
        await producer.put(number, f"k{number % keys}")


def expected(count: int, keys: int = 10) -> dict[str, list[int]]:
    return {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


@pytest.mark.parametrize("options", [{}, {"use_list_shards": True}, {"skip_describe_stream": True}], ids=str)
def test_a_stream_of_four_shards(kinesis: Any, options: dict[str, Any]) -> None:
    stream = new_name()

    async def main() -> None:
        made = {"create_stream": True, "create_stream_shards": 4} if "skip_describe_stream" not in options else {}
        async with Producer(stream, put_rate_limit_per_shard=5000, **made, **options) as producer:
            await put_all(producer, range(2000))

    if "skip_describe_stream" in options:
        kinesis.create_stream(StreamName=stream, ShardCount=4)
    run(main())
    assert of_key(kinesis, stream) == expected(2000)
    assert sum(bool(rows) for rows in stored(kinesis, stream).values()) > 1


def test_a_stream_by_its_arn_and_one_that_is_not_there(kinesis: Any) -> None:
    stream, nowhere = new_name(), new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=1)
    arn = kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"]

    async def main() -> None:
        metrics = InMemoryMetricsCollector()
        async with Producer(arn, metrics_collector=metrics) as producer:
            await producer.put({"a": "ä"})
        assert metrics.counters[f"producer_records_sent_total{{stream_name={stream}}}"] == 1
        for options in ({}, {"use_list_shards": True}):
            with pytest.raises(StreamDoesNotExist, match=f"there is no stream {nowhere}"):
                await Producer(nowhere, **options).start()  # type: ignore[arg-type]
        missing = Producer(nowhere, skip_describe_stream=True)
        await missing.put(1)
        with pytest.raises(StreamDoesNotExist, match=f"there is no stream {nowhere}"):
            await missing.close()
        assert [item.data for item in missing.unsent] == [b"1"]

    run(main())
    assert [value for rows in stored(kinesis, stream).values() for _, value in rows] == [{"a": "ä"}]


def test_faults_of_all_kinds_lose_nothing(own_aws: LocalAws, kinesis: Any) -> None:
    stream = new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    own_aws.faults(
        Fault("PutRecords", "ProvisionedThroughputExceededException", times=1, every=3),
        Fault("PutRecords", "InternalFailure", times=1, every=2),
        Fault("PutRecords", "ProvisionedThroughputExceededException", times=1),
        Fault("PutRecords", "InternalFailure", times=2),
    )

    async def main() -> None:
        async with Producer(
            stream, batch_size=50, put_rate_limit_per_shard=5000, expo_backoff=0.01, ordered=True
        ) as producer:
            await put_all(producer, range(300), keys=60)

    run(main())
    assert own_aws.hits() == [1, 1, 1, 2]
    assert of_key(kinesis, stream) == expected(300, keys=60)


def test_a_split_and_a_merge_under_load(kinesis: Any) -> None:
    stream = new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=2)

    async def main() -> None:
        async with Producer(stream, batch_size=20, put_rate_limit_per_shard=5000) as producer:
            await put_all(producer, range(200))
            kinesis.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
            await put_all(producer, range(200, 400))
            kinesis.merge_shards(
                StreamName=stream,
                ShardToMerge="shardId-000000000003",
                AdjacentShardToMerge="shardId-000000000001",
            )
            await put_all(producer, range(400, 600))

    run(main())
    assert of_key(kinesis, stream) == expected(600)
    assert len(stored(kinesis, stream)) == 5


def user_records(kinesis: Any, stream: str) -> dict[str, list[Any]]:
    """Values in their order, by key, as readers see them: without aggregates that have keys of other shards."""
    values: dict[str, list[Any]] = {}
    for shard in shards(kinesis, stream):
        rows = read(kinesis, stream, shard["ShardId"])
        encoded = [
            {**row, "Data": base64.b64encode(row["Data"]).decode(), "ApproximateArrivalTimestamp": 0} for row in rows
        ]
        body = json.dumps({"Records": encoded, "MillisBehindLatest": 0}).encode()
        bounds = shard["HashKeyRange"]
        hash_range = (int(bounds["StartingHashKey"]), int(bounds["EndingHashKey"]))
        for record in deaggregate(decode_get_records(body, "application/x-amz-json-1.1").batch, hash_range).batch:
            values.setdefault(record.partition_key, []).append(json.loads(record.data or b""))
    return values


def test_aggregates_of_each_shard_through_a_split_and_a_merge(kinesis: Any) -> None:
    stream = new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    told: list[OutputItem] = []

    async def after_flush(items: Sequence[OutputItem]) -> None:
        told.extend(items)

    async def main() -> None:
        async with Producer(stream, aggregate=True, after_flush_fun=after_flush, buffer_time=3600) as producer:
            await put_all(producer, range(1000), keys=50)
            await producer.flush()
            assert len(told) == 2
            await put_all(producer, range(1000, 1500), keys=50)
            kinesis.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**126))
            await put_all(producer, range(1500, 2000), keys=50)
            await producer.flush()
            await put_all(producer, range(2000, 2500), keys=50)
            kinesis.merge_shards(
                StreamName=stream,
                ShardToMerge="shardId-000000000003",
                AdjacentShardToMerge="shardId-000000000001",
            )
            await put_all(producer, range(2500, 3000), keys=50)

    run(main())
    assert user_records(kinesis, stream) == expected(3000, keys=50)
    assert sum(item.n for item in told) == 3000
    assert len(told) < 20


def test_shards_that_cannot_be_listed_while_an_aggregate_is_in_doubt(own_aws: LocalAws, kinesis: Any) -> None:
    stream = new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=1)

    async def main() -> None:
        async with Producer(stream, aggregate=True, buffer_time=3600) as producer:
            await put_all(producer, range(100))
            kinesis.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127))
            own_aws.faults(Fault("DescribeStream", "AccessDeniedException", times=1))
            with pytest.raises(ClientError, match="AccessDeniedException"):
                await producer.flush()
            assert [item.n for item in producer.unsent] == [100]
            await producer.flush()
            assert producer.unsent == []

    run(main())
    assert user_records(kinesis, stream) == expected(100)


def test_the_example(aws: LocalAws, kinesis: Any) -> None:
    stream = new_name()
    kinesis.create_stream(StreamName=stream, ShardCount=4)
    program = EXAMPLES / "to_kinesis.py"
    done = subprocess.run(
        [sys.executable, program, stream, "1500"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **aws.environment},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("1,500 of 1,500\n")
    assert f"producer_records_sent_total{{stream_name={stream}}} 1500" in done.stdout.splitlines()
    readings = of_key(kinesis, stream)
    assert sorted(readings) == [f"sensor-{number}" for number in range(10)]
    assert all([reading["step"] for reading in values] == list(range(150)) for values in readings.values())


def test_a_service_that_goes_away_and_comes_back(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalAws(streams={"orders": 2}, state=tmp_path / "state") as own:
        for name, value in own.environment.items():
            monkeypatch.setenv(name, value)

        async def main() -> None:
            async with Producer("orders", expo_backoff=0.2, expo_backoff_limit=1, retry_limit=100) as producer:
                await put_all(producer, range(100))
                await producer.flush()
                own.kill()
                await put_all(producer, range(100, 200))
                flushing = asyncio.create_task(producer.flush())
                await until(lambda: producer._client._round >= 2, "attempts to reconnect")
                assert not flushing.done()
                await asyncio.to_thread(own.start)
                await flushing

        run(main())
        kinesis = client(own)
        counted = Counter(value for rows in stored(kinesis, "orders").values() for _, value in rows)
        assert set(counted) == set(range(200))
