"""The local server as a process: wire formats, faults, the state that survives it, and the command."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import cbor2
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from fastkcl.local_aws import Fault, FaultError, LocalAws, LocalAwsError, checkpoints, seed_leases, steal_lease
from local_aws_helpers import (
    CBOR,
    JSON,
    SHARD_0,
    call,
    client,
    from_cbor,
    headers,
    iterator,
    make_stream,
    new_name,
    post,
    post_by_http2,
    read,
)
from waiting import wait_until, wait_until_gone

COMMAND = [sys.executable, "-m", "fastkcl", "local-aws"]


@pytest.fixture
def aws(own_aws: LocalAws) -> LocalAws:
    """A server that may be stopped and misled."""
    return own_aws


@pytest.fixture
def stream(aws: LocalAws) -> str:
    """A new stream of one shard."""
    return make_stream(aws)


@pytest.fixture
def kinesis(aws: LocalAws) -> Any:
    return client(aws)


def put(kinesis: Any, stream: str, data: bytes = b"x") -> dict[str, Any]:
    return dict(kinesis.put_record(StreamName=stream, PartitionKey="k", Data=data))


# The wire.


@pytest.mark.parametrize("content_type", [CBOR, JSON])
def test_both_formats_give_the_same(aws: LocalAws, kinesis: Any, stream: str, content_type: str) -> None:
    data = bytes(range(256))
    if content_type == CBOR:
        entry = {"StreamName": stream, "PartitionKey": "ä", "Data": data}
        assert call(aws.url, "PutRecord", entry)[0] == 200
    else:
        kinesis.put_record(StreamName=stream, PartitionKey="ä", Data=data)
    position = {"StreamName": stream, "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
    status, answer = call(aws.url, "GetShardIterator", position, content_type)
    assert status == 200
    status, answer = call(aws.url, "GetRecords", answer, content_type)
    record = answer["Records"][-1]
    expected = kinesis.get_records(ShardIterator=iterator(kinesis, stream))["Records"][-1]
    arrival = record["ApproximateArrivalTimestamp"]
    if content_type == CBOR:
        assert record["Data"] == data
        assert arrival.tag == 1
        arrival = arrival.value / 1000  # the tag's value is milliseconds, as the Java SDKs have it
    assert abs(arrival - expected["ApproximateArrivalTimestamp"].timestamp()) < 0.0005
    assert record["SequenceNumber"] == expected["SequenceNumber"]
    assert expected["Data"] == data


def test_cbor_as_the_java_sdks_write_it(aws: LocalAws, stream: str) -> None:
    """Maps of indefinite length, and timestamps in milliseconds."""
    now = int(time.time() * 1000)
    members = ("StreamName", stream), ("ShardId", SHARD_0), ("ShardIteratorType", "AT_TIMESTAMP")
    body = b"\xbf" + b"".join(cbor2.dumps(name) + cbor2.dumps(value) for name, value in members)
    body += cbor2.dumps("Timestamp") + cbor2.dumps(cbor2.CBORTag(1, now + 3_600_000)) + b"\xff"
    status, _, answer = post(aws.url, body, headers("GetShardIterator", CBOR))
    assert status == 200
    assert call(aws.url, "GetRecords", cbor2.loads(answer))[1]["Records"] == []


def test_http2_with_prior_knowledge_on_the_same_port(aws: LocalAws, stream: str) -> None:
    data = os.urandom(300_000)
    body = cbor2.dumps({"StreamName": stream, "PartitionKey": "h2", "Data": data})
    status, answer = post_by_http2(aws.url, body, headers("PutRecord", CBOR))
    assert (status, cbor2.loads(answer)["ShardId"]) == (200, SHARD_0)
    body = cbor2.dumps({"StreamName": stream, "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"})
    _, answer = post_by_http2(aws.url, body, headers("GetShardIterator", CBOR))
    status, answer = post_by_http2(aws.url, answer, headers("GetRecords", CBOR))
    assert data in [record["Data"] for record in from_cbor(answer)["Records"]]


@pytest.mark.parametrize(
    ("body", "content_type", "kind"),
    [
        (b"{", JSON, "SerializationException"),
        (b"[]", JSON, "SerializationException"),
        (b'{"StreamName":1,"PartitionKey":"k","Data":""}', JSON, "SerializationException"),
        (b'{"StreamName":"wire","PartitionKey":"k","Data":"?"}', JSON, "SerializationException"),
        (b'{"StreamName":"wire","PartitionKey":"k"}', JSON, "ValidationException"),
        (b"\xbf", CBOR, "SerializationException"),
        (b"\xa1\x01", CBOR, "SerializationException"),
    ],
)
def test_bad_bodies(aws: LocalAws, body: bytes, content_type: str, kind: str) -> None:
    status, answered, text = post(aws.url, body, headers("PutRecord", content_type))
    answer = cbor2.loads(text) if content_type == CBOR else json.loads(text)
    assert (status, answered["Content-Type"], answer["__type"]) == (400, content_type, kind)
    assert answer["message"]


def test_an_operation_that_nobody_has(aws: LocalAws) -> None:
    status, answer = call(aws.url, "MakeCoffee", {}, JSON)
    assert (status, answer["__type"]) == (400, "UnknownOperationException")


# Faults.


def test_a_fault_passes_hits_and_is_over(aws: LocalAws, kinesis: Any, stream: str) -> None:
    put(kinesis, stream)
    position = iterator(kinesis, stream)
    aws.faults(Fault("GetRecords", "ProvisionedThroughputExceededException", skip=1, times=2))
    outcomes = []
    for _ in range(4):
        try:
            kinesis.get_records(ShardIterator=position)
            outcomes.append("records")
        except kinesis.exceptions.ProvisionedThroughputExceededException:
            outcomes.append("throttled")
    assert outcomes == ["records", "throttled", "throttled", "records"]
    assert aws.hits() == [2]


def test_a_fault_of_some_calls_of_another_service(aws: LocalAws, kinesis: Any) -> None:
    del kinesis
    dynamodb = client(aws, "dynamodb")
    aws.faults(Fault("ListTables", "InternalServerError", contains="Limit"))
    assert "TableNames" in dynamodb.list_tables()
    with pytest.raises(dynamodb.exceptions.InternalServerError) as error:
        dynamodb.list_tables(Limit=5)
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500


def test_a_fault_of_some_records(aws: LocalAws, kinesis: Any, stream: str) -> None:
    before = len(read(kinesis, stream))
    aws.faults(Fault("PutRecords", "InternalFailure", every=3, times=1))
    entries = [{"PartitionKey": "k", "Data": b"%d" % number} for number in range(7)]
    answer = kinesis.put_records(StreamName=stream, Records=entries)
    assert answer["FailedRecordCount"] == 2
    assert [each.get("ErrorCode") for each in answer["Records"]] == (
        [None, None, "InternalFailure", None, None, "InternalFailure", None]
    )
    assert [record["Data"] for record in read(kinesis, stream)[before:]] == [b"0", b"1", b"3", b"4", b"6"]
    assert kinesis.put_records(StreamName=stream, Records=entries)["FailedRecordCount"] == 0
    aws.faults(Fault("PutRecords", "InternalFailure", every=1))
    assert kinesis.put_records(StreamName=stream, Records=entries)["FailedRecordCount"] == 7


def test_a_delayed_call_is_done_later(aws: LocalAws, kinesis: Any, stream: str) -> None:
    begun = time.monotonic()
    aws.faults(Fault("PutRecord", delay=0.5, times=1))
    put(kinesis, stream, b"late")
    assert time.monotonic() - begun >= 0.5
    assert [record["Data"] for record in read(kinesis, stream)] == [b"late"]


def test_a_delay_holds_nobody_else_up(aws: LocalAws, kinesis: Any, stream: str) -> None:
    aws.faults(Fault("PutRecord", delay=600, times=1))
    late = http.client.HTTPConnection(aws.url.removeprefix("http://"), timeout=60)
    body = json.dumps({"StreamName": stream, "PartitionKey": "k", "Data": "bGF0ZQ=="})
    late.request("POST", "/", body, headers("PutRecord", JSON))
    try:
        wait_until(lambda: aws.hits() == [1], "the call that is delayed", seen=aws.hits)
        put(kinesis, stream, b"early")
        assert [record["Data"] for record in read(kinesis, stream)] == [b"early"]
    finally:
        late.close()


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        ("{", "Expecting"),
        ("{}", "a JSON list of faults is expected"),
        pytest.param("[" * 100_000, "nested too deeply", id="deep"),
        ("[1]", "a fault is an object"),
        ('[{"error": "X"}]', "op"),
        ('[{"op": "GetRecords", "eror": "X"}]', "unknown key 'eror'"),
        ('[{"op": "GetRecords"}]', "neither error nor delay"),
        ('[{"op": "GetRecords", "error": "X", "times": 0}]', "times has to be at least 1"),
        ('[{"op": "GetRecords", "error": "X", "times": "3"}]', "times cannot be '3'"),
        ('[{"op": "GetRecords", "error": "X", "every": 2}]', "every is for the records of PutRecords"),
        ('[{"op": "GetRecords", "delay": -1}]', "delay has to be at least 0"),
    ],
)
def test_faults_that_cannot_be(aws: LocalAws, faults: str, what: str) -> None:
    status, _, answer = post(f"{aws.url}/_faults", faults.encode(), {"X-Local-Aws": "1"})
    assert status == 400
    assert what in json.loads(answer)["error"]


def test_faults_that_cannot_be_are_refused_where_they_are_made() -> None:
    with pytest.raises(FaultError, match="skip has to be at least 0"):
        Fault("GetRecords", "X", skip=-1)


# Time.


def test_time_passes() -> None:
    with LocalAws(streams={"s": 1}, retention_seconds=100, iterator_seconds=100) as aws:
        kinesis = aws.client("kinesis")
        put(kinesis, "s", b"before")
        position = {"StreamName": "s", "ShardId": SHARD_0, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.get_shard_iterator(**position)["ShardIterator"]
        aws.pass_time(50.5)
        aws.pass_time(50)
        assert read(kinesis, "s") == []
        with pytest.raises(kinesis.exceptions.ExpiredIteratorException):
            kinesis.get_records(ShardIterator=iterator)
        put(kinesis, "s", b"after")
        (record,) = read(kinesis, "s")
        assert 90 < record["ApproximateArrivalTimestamp"].timestamp() - time.time() < 110
        assert json.loads(ask_clock(aws)) == {"ahead": 100.5}


def ask_clock(aws: LocalAws) -> bytes:
    request = urllib.request.Request(f"{aws.url}/_clock", headers={"x-local-aws": "1"})
    with urllib.request.urlopen(request) as answer:
        text: bytes = answer.read()
    return text


@pytest.mark.parametrize("seconds", ["-1", "true", '"1"', "NaN", "1e300", "[]", "{"])
def test_time_that_cannot_pass(aws: LocalAws, seconds: str) -> None:
    status, _, answer = post(f"{aws.url}/_clock", seconds.encode(), {"X-Local-Aws": "1"})
    assert status == 400
    assert json.loads(answer)["error"]
    with pytest.raises(LocalAwsError, match="the clock goes forward by 0 to"):
        LocalAws.pass_time(aws, -1)


# Leases.


def test_leases_are_seeded_read_and_stolen(aws: LocalAws, kinesis: Any) -> None:
    dynamodb = client(aws, "dynamodb")
    stream, application = make_stream(aws, 3), new_name()
    kinesis.split_shard(StreamName=stream, ShardToSplit=SHARD_0, NewStartingHashKey="10")
    for _ in range(2):  # also in the place of what is there
        seed_leases(kinesis, dynamodb, application=application, stream=stream)
    assert checkpoints(dynamodb, application=application) == {
        f"shardId-{number:012d}": ("TRIM_HORIZON", 0) for number in range(3)
    }
    steal_lease(dynamodb, application=application, shard_id=SHARD_0)
    item = dynamodb.get_item(TableName=application, Key={"leaseKey": {"S": SHARD_0}})["Item"]
    assert (item["leaseOwner"], item["leaseCounter"]) == ({"S": "thief"}, {"N": "1000"})
    with pytest.raises(dynamodb.exceptions.ConditionalCheckFailedException):
        steal_lease(dynamodb, application=application, shard_id="shardId-000000000009")


# Life.


def test_it_hangs_and_goes_on(aws: LocalAws, kinesis: Any, stream: str) -> None:
    aws.pause()
    try:
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(f"{aws.url}/_faults", timeout=0.5)
    finally:
        aws.resume()
    put(kinesis, stream, b"after")
    assert read(kinesis, stream)[-1]["Data"] == b"after"


def test_the_state_survives_the_process(tmp_path: Path) -> None:
    def everything(kinesis: Any, dynamodb: Any) -> Any:
        shards = kinesis.list_shards(StreamName="s")["Shards"]
        records = [read(kinesis, "s", shard["ShardId"]) for shard in shards]
        return shards, records, dynamodb.scan(TableName="app")["Items"]

    with LocalAws(streams={"s": 1}, state=tmp_path / "state") as aws:
        kinesis, dynamodb = client(aws), client(aws, "dynamodb")
        seed_leases(kinesis, dynamodb, application="app", stream="s")
        put(kinesis, "s", b"first")
        position = iterator(kinesis, "s")
        aws.faults(Fault("PutRecords", "InternalFailure", every=2))
        kinesis.put_records(StreamName="s", Records=[{"PartitionKey": "k", "Data": b"%d" % n} for n in range(4)])
        call(aws.url, "PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": b"cbor"})
        with pytest.raises(ClientError):
            put(kinesis, "s", bytes(2**21))
        kinesis.split_shard(StreamName="s", ShardToSplit=SHARD_0, NewStartingHashKey=str(2**127))
        put(kinesis, "s", b"in a child")
        steal_lease(dynamodb, application="app", shard_id=SHARD_0)
        before = everything(kinesis, dynamodb)
        assert [record["Data"] for record in before[1][0]] == [b"first", b"0", b"2", b"cbor"]

        url = aws.url
        aws.kill()
        with pytest.raises(EndpointConnectionError):
            kinesis.list_streams()
        aws.start()
        assert aws.url == url
        assert everything(kinesis, dynamodb) == before
        assert len(kinesis.get_records(ShardIterator=position)["Records"]) == 4

        put(kinesis, "s", b"after")
        after = everything(kinesis, dynamodb)
        # The last request was not written whole, and so was never answered.
        aws.stop()
        with (tmp_path / "state").open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.truncate()
        aws.start()
        assert everything(kinesis, dynamodb) == before
        put(kinesis, "s", b"after")
        aws.restart()
        assert len(everything(kinesis, dynamodb)[1]) == len(after[1])


def test_a_state_or_a_ready_file_that_would_harm(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    command = [*COMMAND, "--port=0", f"--state={tmp_path / 'fifo'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: {tmp_path / 'fifo'}: no regular file, so no state can be kept in it\n",
    )
    victim, ready = tmp_path / "victim", tmp_path / "ready"
    victim.write_text("untouched")
    ready.with_name("ready.new").symlink_to(victim)
    with subprocess.Popen([*COMMAND, "--port=0", f"--ready-file={ready}"], stdout=subprocess.PIPE) as process:
        wait_until(ready.exists, "the ready file")
        process.terminate()
        assert process.wait(60) == 0
    assert victim.read_text() == "untouched"


def test_without_a_state_a_restart_begins_anew() -> None:
    with LocalAws(streams={"s": 1}) as aws:
        kinesis = client(aws)
        put(kinesis, "s")
        aws.restart()
        assert read(kinesis, "s") == []


def test_a_state_has_one_process_and_one_set_of_options(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with LocalAws(state=state):
        done = subprocess.run([*COMMAND, "--port=0", f"--state={state}"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (2, f"Error: {state}: another process has it\n")
    done = subprocess.run(
        [*COMMAND, "--port=0", f"--state={state}", "--shard-limits"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "made with shard_limits False, not True" in done.stderr
    state.write_bytes(b"something else")
    done = subprocess.run([*COMMAND, "--port=0", f"--state={state}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, f"Error: {state}: no state of fastkcl local-aws\n")
    assert state.read_bytes() == b"something else"


def test_an_open_subscription_does_not_hold_it_up(capfd: pytest.CaptureFixture[str]) -> None:
    with LocalAws(streams={"s": 1}) as aws:
        kinesis = client(aws)
        arn = kinesis.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]["StreamARN"]
        consumer = kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="c")["Consumer"]["ConsumerARN"]
        answer = kinesis.subscribe_to_shard(
            ConsumerARN=consumer, ShardId=SHARD_0, StartingPosition={"Type": "TRIM_HORIZON"}
        )
        assert next(iter(answer["EventStream"]))["SubscribeToShardEvent"]["Records"] == []
        assert aws.stop() == 0
        answer["EventStream"].close()
    assert capfd.readouterr().err == ""


def test_it_ends_with_its_parent() -> None:
    code = (
        "import sys, time\nfrom fastkcl.local_aws import LocalAws\naws = LocalAws()\naws.start()\n"
        "print(aws.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until_gone(pid, "the end of the server")


def test_what_does_not_start_says_so(aws: LocalAws, capfd: pytest.CaptureFixture[str]) -> None:
    port = int(aws.url.rpartition(":")[2])
    with pytest.raises(LocalAwsError, match="does not start: exit code 2"):
        LocalAws(port=port).start()
    assert capfd.readouterr().err == f"Error: cannot listen at 127.0.0.1:{port}: Address already in use\n"


# The command.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_says_where_it_is_and_ends_well(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    command = [*COMMAND, "--port=0", f"--ready-file={ready}", "--create-stream=a", "--create-stream=b:3", "--trace=all"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        assert ready.read_text() == url + "\n"
        status, answer = call(url, "ListShards", {"StreamName": "b"})
        assert (status, len(answer["Shards"])) == (200, 3)
        server.send_signal(number)
        rest, errors = server.communicate(timeout=60)
    assert (server.returncode, rest) == (0, "")
    assert errors.startswith('ListShards {"StreamName": "b"} -> 200 {"Shards": [{"ShardId": "shardId-000000000000"')
    assert not ready.exists()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--create-stream", "a b"], "a stream's name has"),
        (["--create-stream", "a:0"], "a number of shards is expected"),
        (["--port", "70000"], "70000 is not in the range"),
    ],
)
def test_the_commands_usage_errors(arguments: list[str], what: str) -> None:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert what in " ".join(done.stderr.split())


def test_without_its_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['moto'] = None\nsys.argv = ['fastkcl', 'local-aws']\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "Error: this command needs moto: pip install 'fastkcl[local]'\n")
