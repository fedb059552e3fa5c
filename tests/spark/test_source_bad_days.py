"""Bad days of the Spark source, by its own reader in a model of Spark's engine, against local AWS: no JVM.

docs/spark-source.md has the whole list, with the test for each row.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest
from fastkcl import _core
from fastkcl.kinesis.exceptions import DataLossError
from fastkcl.kinesis.read.plan import CallError
from fastkcl.local_aws import Fault, LocalAws
from http_servers import request_of, server
from local_aws_helpers import SHARD_0, client, make_stream
from reshard_scenarios import SCENARIOS, Stage, check_rows
from source_engine import SourceEngine

pytestmark = pytest.mark.needs_pyspark("4.2")

SOON = 5.0
RETENTION = 100
"""Seconds."""
"""Seconds in which an error has to come that no waiting mends."""


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")


@contextmanager
def engine_of(url: str, stream: str, **options: str) -> Iterator[SourceEngine]:
    given = {"streamName": stream, "endpoint": url, "region": "us-east-1", "initialPosition": "trim_horizon"}
    fast = {"minFetchPeriod": "200ms", "shardFetchInterval": "1s"}
    engine = SourceEngine({**given, **fast, **options}, Random(0), deaths=0.0, happens=lambda: None)
    try:
        yield engine
    finally:
        engine.stop()


def read_all(engine: SourceEngine, *, seconds: float = 60.0) -> None:
    """Batches until there is nothing more, as `availableNow` does; the reader ends, as a query does."""
    engine.reader = engine.reader or engine.new_reader()
    engine.reader.prepareForTriggerAvailableNow()
    deadline = time.monotonic() + seconds
    while engine.step():
        assert time.monotonic() < deadline, "it does not end"
    engine.stop()


def rows_of(engine: SourceEngine) -> list[list[tuple[int, str, bytes]]]:
    return [
        [(int(number), key, data) for rows in batch.values() for number, _, key, data in rows] for batch in engine.sink
    ]


def payloads_of(engine: SourceEngine) -> Counter[bytes]:
    return Counter(data for batch in rows_of(engine) for _, _, data in batch)


def put(aws: LocalAws, stream: str, *payloads: bytes) -> None:
    records = [{"Data": data, "PartitionKey": f"k{number}"} for number, data in enumerate(payloads)]
    assert client(aws).put_records(StreamName=stream, Records=records)["FailedRecordCount"] == 0


@pytest.mark.parametrize("inline", ["8m", "0"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_shards_that_change(aws: LocalAws, scenario: Callable[[Stage], None], inline: str) -> None:
    stage = Stage(aws)
    with engine_of(aws.url, stage.stream, inlineBytes=inline) as engine:
        stage.read = lambda: read_all(engine)
        scenario(stage)
        check_rows(rows_of(engine), stage.counts)
        for number in {0, len(engine.sink) // 2}:
            engine.replay(number)


@pytest.fixture(scope="module")
def forgetful() -> Iterator[LocalAws]:
    """A service that keeps records for 100 s of its clock."""
    with LocalAws(retention_seconds=RETENTION) as server:
        yield server


@pytest.mark.parametrize("loss", ["true", "false"])
def test_records_that_were_trimmed_before_the_task(
    forgetful: LocalAws, caplog: pytest.LogCaptureFixture, loss: str
) -> None:
    stream = make_stream(forgetful)
    with engine_of(forgetful.url, stream, inlineBytes="0", failOnDataLoss=loss) as engine:
        engine.reader = reader = engine.new_reader()
        reader._retention = lambda name: RETENTION * 1000  # type: ignore[method-assign]
        start = reader.initialOffset()
        put(forgetful, stream, b"a", b"b")
        engine.offsets.append(reader.latestOffset(start, None))  # type: ignore[arg-type]
        forgetful.pass_time(RETENTION + 1)
        put(forgetful, stream, b"c")
        if loss == "true":
            with pytest.raises(DataLossError, match=rf"{stream}/{SHARD_0}.*failOnDataLoss=false goes on"):
                engine.read(reader, 0)
            return
        with caplog.at_level(logging.WARNING, "fastkcl.spark.source"):
            assert engine.read(reader, 0) == {}
        assert any(stream in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("operation", "code", "said"),
    [
        ("ListShards", "AccessDeniedException", r"kinesis:ListShards on \S*{stream}\S* is denied"),
        ("GetShardIterator", "AccessDeniedException", r"kinesis:GetShardIterator on \S*{stream}\S* is denied"),
        ("GetRecords", "AccessDeniedException", r"kinesis:GetRecords on \S*{stream}\S* is denied"),
        (
            "GetRecords",
            "KMSAccessDeniedException",
            r"kinesis:GetRecords on \S*{stream}\S* needs kms:Decrypt on the stream's key, and is denied",
        ),
    ],
    ids=["ListShards", "GetShardIterator", "GetRecords", "Decrypt"],
)
@pytest.mark.parametrize("place", ["driver", "task"])
def test_a_permission_that_is_missing_is_an_error_soon(
    own_aws: LocalAws, operation: str, code: str, said: str, place: str
) -> None:
    stream = make_stream(own_aws)
    put(own_aws, stream, b"a")
    with engine_of(own_aws.url, stream, inlineBytes="0") as engine:
        if place == "task":
            engine.reader = engine.new_reader()
            engine.offsets.append(engine.reader.latestOffset(engine.reader.initialOffset(), None))  # type: ignore[arg-type]
            if operation == "ListShards":
                engine.stop()  # a replay lists them
                engine.reader = engine.new_reader()
        own_aws.faults(Fault(operation, code))
        begun = time.monotonic()
        with pytest.raises(CallError, match=said.format(stream=stream)) as error:
            engine.step() if place == "driver" else engine.read(engine.reader, 0)  # type: ignore[arg-type]
        assert time.monotonic() - begun < SOON
    assert "failOnDataLoss" not in str(error.value)


def test_a_service_that_goes_and_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LocalAws(state=tmp_path / "state") as aws:
        stream = make_stream(aws, 2)
        put(aws, stream, *(b"%d" % n for n in range(100)))
        with engine_of(aws.url, stream) as engine, caplog.at_level(logging.WARNING, "fastkcl.spark.source"):
            assert engine.step()
            put(aws, stream, *(b"%d" % n for n in range(100, 200)))
            aws.stop()
            for _ in range(3):
                engine.step()
            assert engine.reader is not None
            assert engine.reader.reportLatestOffset()["outages"] > 0  # type: ignore[index]
            aws.start()
            deadline = time.monotonic() + 60
            while sum(payloads_of(engine).values()) < 200:
                engine.step()
                assert time.monotonic() < deadline
            assert payloads_of(engine) == Counter(b"%d" % n for n in range(200))
            engine.replay(len(engine.sink) - 1)


def test_answers_that_are_cut(aws: LocalAws) -> None:
    stream = make_stream(aws, 2)
    put(aws, stream, *(b"%d" % n for n in range(300)))
    host, _, port = aws.url.removeprefix("http://").partition(":")
    cut = Counter[str]()
    lock = threading.Lock()

    def talk(link: socket.socket, number: int) -> None:
        """Passes requests on; some answers end in their middle."""
        with socket.create_connection((host, int(port))) as service:
            while request := request_of(link):
                service.sendall(request)
                answer = response_of(service)
                with lock:
                    cut["all"] += 1
                    is_cut = cut["all"] in (2, 5, 9, 12, 15)
                if is_cut:
                    cut["cut"] += 1
                    link.sendall(answer[: len(answer) * 2 // 3])
                    with suppress(OSError):
                        link.shutdown(socket.SHUT_RDWR)
                    return
                link.sendall(answer)

    with server(talk) as address, engine_of(f"http://{address}", stream, inlineBytes="0") as engine:
        read_all(engine)
        assert payloads_of(engine) == Counter(b"%d" % n for n in range(300))
    assert cut["cut"] >= 3


def response_of(link: socket.socket) -> bytes:
    """A whole answer with Content-Length."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        seen += link.recv(65536)
    head, _, body = seen.partition(b"\r\n\r\n")
    (length,) = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    while len(body) < length:
        body += link.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.mark.parametrize("inline", ["8m", "0"])
def test_records_of_10_mib_and_of_no_bytes(aws: LocalAws, inline: str) -> None:
    stream = make_stream(aws)
    client(aws).update_max_record_size(StreamARN=arn_of(aws, stream), MaxRecordSizeInKiB=10240)
    large = bytes(10 * 1024 * 1024 - 10)
    for data in (b"a", large, b"", b"b", b""):
        client(aws).put_record(StreamName=stream, Data=data, PartitionKey="k")
    with engine_of(aws.url, stream, inlineBytes=inline) as engine:
        read_all(engine)
        (rows,) = [[data for _, _, data in sorted(row for batch in rows_of(engine) for row in batch)]]
        assert rows == [b"a", large, b"", b"b", b""]


def arn_of(aws: LocalAws, stream: str) -> str:
    return str(client(aws).describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamARN"])


def test_regions_without_records() -> None:
    """Nine of ten answers are empty, though there are records after them."""
    with LocalAws(empty_answers=0.9) as aws:
        stream = make_stream(aws)
        put(aws, stream, *(b"%d" % n for n in range(50)))
        for inline in ("8m", "0"):
            with engine_of(aws.url, stream, inlineBytes=inline) as engine:
                read_all(engine, seconds=120)
                assert payloads_of(engine) == Counter(b"%d" % n for n in range(50))


def test_credentials_that_expire_within_a_query(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    import two_second_credentials

    stream = make_stream(aws)
    monkeypatch.setattr(two_second_credentials, "given", 0)
    with engine_of(aws.url, stream, credentials="two_second_credentials:get") as engine:
        deadline = time.monotonic() + 30
        count = 0
        while two_second_credentials.given < 3:
            put(aws, stream, b"%d" % count)
            count += 1
            engine.step()
            assert time.monotonic() < deadline, "credentials were not asked for again"
        read_all(engine)
        assert payloads_of(engine) == Counter(b"%d" % n for n in range(count))


def test_options_that_change_between_restarts(aws: LocalAws) -> None:
    """A batch that comes again has the form of the new options."""
    stream = make_stream(aws)
    aggregate = _core.Aggregate()
    for value in (b"a", b"b"):
        aggregate.add("k", value, None)
    packed = aggregate.encode()
    client(aws).put_record(StreamName=stream, Data=packed, PartitionKey="k")
    with engine_of(aws.url, stream) as engine:
        read_all(engine)
        assert payloads_of(engine) == Counter([b"a", b"b"])
        engine.options["deaggregate"] = "false"
        again = engine.read(engine.new_reader(), 0)
        assert [data for _, _, _, data in again[SHARD_0]] == [packed]
