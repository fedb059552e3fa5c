"""`fastkcl kinesis`: streams and records as people and programs see them, and exit codes."""

import base64
import hashlib
import html
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.parse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aws_commands import COMMANDS, environment
from botocore.exceptions import EndpointConnectionError
from click.testing import CliRunner
from fastkcl.cli import aws as cli_aws
from fastkcl.cli.main import cli
from fastkcl.local_aws import Fault, LocalAws
from http_servers import page, request_of, server
from local_aws_helpers import client, make_stream, new_name, read, server_of, shards
from waiting import PATIENCE, wait_until

COMMAND = [sys.executable, "-m", "fastkcl", "kinesis"]


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A new stream of two shards."""
    return make_stream(server_of(request), 2)


def command(aws: LocalAws, *args: str) -> list[str]:
    return [*COMMAND, "--endpoint-url", aws.url, *args]


def run(aws: LocalAws, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command(aws, *args), input=stdin, capture_output=True, timeout=120, env=environment())


def output(aws: LocalAws, *args: str, stdin: bytes = b"") -> str:
    done = run(aws, *args, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def stored(aws: LocalAws, stream: str) -> list[tuple[str, bytes]]:
    return stored_by(client(aws), stream)


def stored_by(kinesis: Any, stream: str) -> list[tuple[str, bytes]]:
    """What a client reads."""
    return [
        (record["PartitionKey"], record["Data"])
        for shard in shards(kinesis, stream)
        for record in read(kinesis, stream, shard["ShardId"])
    ]


# Streams.


def test_streams_in_columns_and_as_json() -> None:
    with LocalAws(streams={f"s{number:03}": 1 for number in range(5)}) as own:
        assert [line.split()[:3] for line in output(own, "list").splitlines()] == [
            ["stream", "status", "mode"],
            *[[f"s{number:03}", "ACTIVE", "PROVISIONED"] for number in range(5)],
        ]
        done = run(own, "list", "--limit", "2")
        assert [line.split()[0] for line in done.stdout.decode().splitlines()] == ["stream", "s000", "s001"]
        assert done.stderr == b"There are more than these 2 streams: raise --limit to see them.\n"
        listed = json.loads(output(own, "list", "--json", "--limit", "4"))
        assert [entry["name"] for entry in listed["streams"]] == [f"s{number:03}" for number in range(4)]
        assert listed["streams"][0]["arn"].endswith(":stream/s000")
        assert listed["more"]
    with LocalAws() as empty:
        done = run(empty, "list")
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"No streams.\n")


def test_all_streams_of_an_account_page_by_page() -> None:
    with LocalAws(streams={f"s{number:03}": 1 for number in range(205)}) as own:
        listed = json.loads(output(own, "list", "--limit", "250", "--json"))
        assert [entry["name"] for entry in listed["streams"]] == [f"s{number:03}" for number in range(205)]
        assert not listed["more"]


def test_a_stream_and_its_shards(aws: LocalAws, stream: str) -> None:
    kinesis = client(aws)
    kinesis.split_shard(StreamName=stream, ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**125))
    described = json.loads(output(aws, "describe", stream, "--json"))
    assert described["name"] == stream
    assert (described["open_shards"], described["retention_hours"], described["encryption"]) == (3, 24, "NONE")
    assert [(shard["id"][-1], shard["open"], shard["parents"]) for shard in described["shards"]] == [
        ("0", False, []),
        ("1", True, []),
        ("2", True, ["shardId-000000000000"]),
        ("3", True, ["shardId-000000000000"]),
    ]
    assert output(aws, "describe", described["arn"], "--json") == json.dumps(described, indent=2) + "\n"
    lines = [line.split() for line in output(aws, "describe", stream).splitlines()]
    assert ["open", "shards", "3"] in lines
    assert [line[:3] for line in lines[-5:]] == [
        ["shard", "state", "hash"],
        ["shardId-000000000000", "closed", "50.00%"],
        ["shardId-000000000001", "open", "50.00%"],
        ["shardId-000000000002", "open", "12.50%"],
        ["shardId-000000000003", "open", "37.50%"],
    ]
    assert lines[-1][-1] == "shardId-000000000000"


def test_a_stream_that_is_not_there(aws: LocalAws) -> None:
    nowhere = new_name()
    for args in (("describe", nowhere), ("put", nowhere, "1")):
        done = run(aws, *args)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"Error: there is no stream ")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "args", [["list"], ["tail", "s"], ["put", "s", "1"], ["groups", "describe", "g", "s", "-c", "kcl"]]
)
def test_a_service_that_is_not_there(args: list[str]) -> None:
    """botocore's attempts took 37 s, and the client's 70 s."""
    command = [*COMMAND, "--endpoint-url", "http://127.0.0.1:9", *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("is `fastkcl local-aws` running there?\n")
    assert len(done.stderr.splitlines()) == 1


TOKEN = "FwoGZXIv/YXdz+TOKEN="
REPEATED = {
    "lists": json.dumps({"X-Amz-Security-Token": [TOKEN]}),
    "JSON in JSON": json.dumps(json.dumps({"X-Amz-Security-Token": [TOKEN]}).replace("/", "\\/")),
    "PHP": f"[X-Amz-Security-Token] => {TOKEN}",
    "CGI": f"HTTP_X_AMZ_SECURITY_TOKEN={TOKEN}",
    "HTML": f"<td>X-Amz-Security-Token</td><td>{html.escape(TOKEN)}</td>",
    "a URL": "?X-Amz-Security-Token=" + urllib.parse.quote(TOKEN, safe=""),
}


@pytest.mark.parametrize("form", REPEATED)
def test_a_token_that_a_server_repeats_is_not_shown(tmp_path: Path, form: str) -> None:
    """In whatever form: the command knows it."""
    body = json.dumps({"__type": "ValidationException", "message": f"no: {REPEATED[form]}"}).encode()

    def talk(link: socket.socket, _: int) -> None:
        while request_of(link):
            link.sendall(page(400, body))

    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_SESSION_TOKEN": TOKEN}
    with server(talk) as address:
        env = environment() | keys | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{address}"}
        command = [sys.executable, "-m", "fastkcl", *COMMANDS[0]]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=tmp_path, env=env, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "ValidationException" in done.stderr
    assert "TOKEN" not in done.stderr.upper().replace("SECURITY-TOKEN", "").replace("SECURITY_TOKEN", "")
    assert "FwoG" not in done.stderr


@pytest.mark.parametrize("how", ["closed", "reset", "in a chunk"])
def test_a_connection_that_breaks_in_an_answer_is_tried_again(tmp_path: Path, how: str) -> None:
    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        if number % 2:
            link.sendall(page(200, b'{"StreamNames": ["orders"], "HasMoreStreams": false}'))
        elif how == "in a chunk":
            link.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{")
        else:
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
            if how == "reset":
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with server(talk) as address:
        env = environment() | keys | {"AWS_ENDPOINT_URL": f"http://{address}"}
        command = [sys.executable, "-m", "fastkcl", *COMMANDS[0], "--json"]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=tmp_path, env=env, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "orders" in done.stdout


@pytest.mark.parametrize("args", [COMMANDS[0], COMMANDS[6]], ids=" ".join)
def test_an_answer_without_an_end(tmp_path: Path, args: list[str]) -> None:
    """It took all memory there was."""
    piece = b" " * (1 << 20)

    def talk(link: socket.socket, _: int) -> None:
        request_of(link)
        link.sendall(b"HTTP/1.1 400 Bad Request\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            link.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))

    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    with server(talk) as address:
        env = environment() | keys | {"AWS_ENDPOINT_URL": f"http://{address}"}
        command = [sys.executable, "-m", "fastkcl", *args]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=tmp_path, env=env, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has more than 16 MiB: a proxy, or something else that is not AWS, has answered http://127." in done.stderr


@pytest.mark.parametrize(
    ("name", "args"),
    [("AWS_CA_BUNDLE", COMMANDS[0]), ("AWS_CA_BUNDLE", COMMANDS[2]), ("AWS_CA_BUNDLE", COMMANDS[6])]
    + [("AWS_WEB_IDENTITY_TOKEN_FILE", COMMANDS[2]), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", COMMANDS[2])],
)
def test_a_file_of_a_client_that_is_a_pipe(tmp_path: Path, name: str, args: list[str]) -> None:
    """botocore would open it, and wait without an end."""
    os.mkfifo(tmp_path / "ca.pem")
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    env = environment() | keys | {name: str(tmp_path / "ca.pem")}
    command = [sys.executable, "-m", "fastkcl", *args]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE, cwd=tmp_path, env=env, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"Error: \S+/ca.pem \({name}.*\) is a pipe, .*: give a file\n", done.stderr)


@pytest.mark.parametrize("kind", ["list_shards", "list_tables"])
def test_pages_without_an_end(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """They took all memory there was."""
    members: dict[str, Any] = {
        "ListShards": {"Shards": [], "NextToken": "n"},
        "ListTables": {"TableNames": [], "LastEvaluatedTableName": "n"},
        "DescribeStreamSummary": {
            "StreamDescriptionSummary": {
                "StreamName": "s",
                "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s",
                "StreamStatus": "ACTIVE",
                "RetentionPeriodHours": 24,
                "StreamCreationTimestamp": 1,
                "EnhancedMonitoring": [],
                "OpenShardCount": 1,
            }
        },
    }

    def talk(link: socket.socket, _: int) -> None:
        number = 0
        while request := request_of(link):
            number += 1
            named = next(value for name, value in members.items() if name.encode() in request)
            body = json.dumps(named).replace('"n"', f'"next{number}"').encode()
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n")
            link.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    monkeypatch.setattr("fastkcl.kinesis.failures.MOST_PAGES", 20)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with server(talk) as address:
        args = ["describe", "s"] if kind == "list_shards" else ["groups", "list", "-c", "kcl"]
        command = ["kinesis", "--endpoint-url", f"http://{address}", "--region", "us-east-1", *args]
        done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2
    assert f"the answer to {kind} has more than 20 pages: a proxy, or something else" in done.output


SHARD = {
    "ShardId": "shardId-000000000000",
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**128 - 1)},
    "SequenceNumberRange": {"StartingSequenceNumber": "1"},
}
TOO_LARGE = b"holds a KPL aggregate whose user records take more than max_batch_bytes"
_MESSAGE = b"\x0a\x80\x02" + b"k" * 256 + bytes.fromhex("1a0408001a00") * 150_000
BOMB = base64.b64encode(b"\xf3\x89\x9a\xc2" + _MESSAGE + hashlib.md5(_MESSAGE).digest()).decode()
RECORD = {"Data": "e30=", "PartitionKey": "k", "SequenceNumber": "49"}


@pytest.mark.parametrize(
    ("shard", "records", "said"),
    [
        ({}, {"Records": [{**RECORD, "SequenceNumber": "abc"}]}, b"a SequenceNumber that is no number of Kinesis's"),
        (
            {},
            {"Records": [RECORD, {**RECORD, "SequenceNumber": ""}]},
            b"a SequenceNumber that is no number of Kinesis's",
        ),
        (
            {},
            {"Records": [{**RECORD, "SequenceNumber": "9" * 5000}]},
            b"a SequenceNumber that is no number of Kinesis's",
        ),
        ({}, {"Records": [{**RECORD, "SequenceNumber": None}]}, b"the answer to GetRecords has no SequenceNumber"),
        ({}, {"Records": [{**RECORD, "SequenceNumber": 5}]}, b"a SequenceNumber that is no string"),
        ({}, {"Records": [{**RECORD, "Data": 5}]}, b"a Data that is no blob"),
        ({}, [], b"the answer to GetRecords is no object of JSON"),
        ({}, {"Records": [{**RECORD, "Data": BOMB}] * 8}, TOO_LARGE),
        ({"SequenceNumberRange": {"StartingSequenceNumber": "abc"}}, {}, b"has a StartingSequenceNumber that is no"),
        ({"HashKeyRange": {"StartingHashKey": "", "EndingHashKey": "1"}}, {}, b"has a StartingHashKey that is no"),
    ],
)
def test_numbers_that_are_none_of_kinesis_s(shard: dict[str, Any], records: Any, said: bytes) -> None:
    stream = {"StreamName": "s", "StreamARN": "a", "StreamStatus": "ACTIVE", "RetentionPeriodHours": 24}
    stream |= {"StreamCreationTimestamp": 1, "EnhancedMonitoring": [], "HasMoreShards": False}
    answers = {
        b"DescribeStream": {"StreamDescription": {**stream, "Shards": [{**SHARD, **shard}]}},
        b"DescribeStreamSummary": {"StreamDescriptionSummary": {**stream, "OpenShardCount": 1}},
        b"GetShardIterator": {"ShardIterator": "i"},
        b"GetRecords": {**records, "NextShardIterator": "i"} if isinstance(records, dict) else records,
    }

    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            call = request.partition(b"Kinesis_20131202.")[2].partition(b"\r\n")[0]
            link.sendall(page(200, json.dumps(answers[call]).encode()))

    with server(talk) as address:
        url = ["--endpoint-url", f"http://{address}"]
        command = [*COMMAND, *url, "--region", "us-east-1", "tail", "s", "-p", "json", "-i", "TRIM_HORIZON"]
        done = subprocess.run(command, capture_output=True, timeout=30, env=environment())
    assert done.returncode == 2
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (2 if said == TOO_LARGE else 1)  # the shard's line in the log


@pytest.mark.parametrize(
    "failure",
    [
        page(503, b"<html>\xe4</html>"),
        page(503, b""),
        page(502, b"<?xml version='1.0'?><ErrorResponse/>"),
        page(500, b"null"),
        page(500, b'{"__type": 5}'),
        page(500, b'{"__type": "InternalFailure"}'),
        page(400, b'{"__type": "com.amazonaws.kinesis#LimitExceededException"}'),
    ],
)
def test_a_failure_that_may_be_aws_s_is_tried_again(failure: bytes) -> None:
    answers = iter([failure])

    def talk(link: socket.socket, _: int) -> None:
        while request_of(link):
            link.sendall(next(answers, page(200, b'{"StreamNames": ["s"], "HasMoreStreams": false}')))

    with server(talk) as address:
        client = cli_aws.kinesis_client(f"http://{address}", "us-east-1")
        assert client.list_streams()["StreamNames"] == ["s"]


def test_an_address_that_answers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_aws, "_CONNECT_SECONDS", 0.3)
    with socket.socket() as server, ExitStack() as clients:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # its backlog is full: Linux drops the next ones
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        with pytest.raises(EndpointConnectionError, match="127.0.0.1"):
            cli_aws.kinesis_client(f"http://127.0.0.1:{server.getsockname()[1]}", None)


def test_a_proxy_reaches_what_this_machine_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    cli_aws.kinesis_client("http://kinesis.invalid", "eu-west-1")


# Records.


def test_lines_become_records(aws: LocalAws, stream: str) -> None:
    lines = [{"n": number, "text": "ä" * 1000} for number in range(300)]
    stdin = "".join(f" {json.dumps(line, ensure_ascii=False)}\r\n\n" for line in lines).encode()
    report = json.loads(output(aws, "put", stream, "-k", "k", "--json", stdin=stdin))
    expected = [("k", json.dumps(line).encode()) for line in lines]
    assert stored(aws, stream) == expected
    assert report == {"stream": stream, "records": 300, "bytes": sum(len(data) for _, data in expected)}


@pytest.mark.parametrize(
    ("args", "stdin", "expected"),
    [
        (["[1, 2]"], b"", [b"[1, 2]"]),
        (["-p", "string", "[1, 2"], b"", [b"[1, 2"]),
        (["-p", "string"], b"a\n b \nlast", [b"a", b" b ", b"last"]),
        (["-p", "string"], b"", []),
    ],
)
def test_forms_of_records(aws: LocalAws, stream: str, args: list[str], stdin: bytes, expected: list[bytes]) -> None:
    said = output(aws, "put", stream, *args, stdin=stdin)
    assert said == f"{stream}: {len(expected)} records, {sum(map(len, expected))} bytes\n"
    assert sorted(data for _, data in stored(aws, stream)) == sorted(expected)


@pytest.mark.parametrize(
    ("args", "stdin", "message"),
    [
        ([], b'1\n{"a"\n2\n', "line 2 is not JSON: Expecting ':' delimiter: line 1 column 5 (char 4); -p string"),
        (["-p", "string"], b"1\n\xff\n", "line 2 is not UTF-8: 'utf-8' codec can't decode byte 0xff"),
        (["-p", "string"], b"1\n" + b"x" * 1_024_001, "an item of 1024001 bytes, framing included: a record holds"),
    ],
)
def test_a_line_that_is_no_record(aws: LocalAws, stream: str, args: list[str], stdin: bytes, message: str) -> None:
    done = run(aws, "put", stream, *args, stdin=stdin)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(f"Error: {message}")
    assert [data for _, data in stored(aws, stream)] == [b"1"]  # what was before it is there
    assert done.stdout.decode() == f"{stream}: 1 records, 1 bytes\n"


def test_a_stream_that_put_makes(aws: LocalAws) -> None:
    name = new_name()
    output(aws, "put", name, "--create", "1")
    output(aws, "put", name, "--create", "2")
    assert len(shards(client(aws), name)) == 1
    assert sorted(data for _, data in stored(aws, name)) == [b"1", b"2"]


def test_records_that_the_stream_does_not_take(own_aws: LocalAws, stream: str) -> None:
    own_aws.faults(Fault("PutRecords", "KMSDisabledException"))
    done = run(own_aws, "put", stream, "1")
    assert (done.returncode, done.stdout.decode()) == (1, f"{stream}: 0 records, 0 bytes\n")
    assert b"KMSDisabledException" in done.stderr
    assert b"Traceback" not in done.stderr


def test_an_interrupted_put_has_put_what_it_has_read(aws: LocalAws, stream: str) -> None:
    arguments: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command(aws, "put", stream), env=environment(), **arguments) as child:
        child.stdin.write(b"1\n2\n3")
        child.stdin.flush()
        kinesis = client(aws)
        wait_until(
            lambda: len(stored_by(kinesis, stream)) >= 2 or child.poll() is not None,
            "two records",
            seen=lambda: stored_by(kinesis, stream),
            step=0.1,
        )
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert child.stdout.read().decode() == f"{stream}: 2 records, 2 bytes\n"
        assert child.stderr.read() == b"fastkcl: interrupted\n"


# Records that come.


def fill(aws: LocalAws, stream: str, *values: bytes, key: str = "k") -> None:
    answer = client(aws).put_records(
        StreamName=stream, Records=[{"PartitionKey": key, "Data": value} for value in values]
    )
    assert not answer["FailedRecordCount"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ([], '{\n  "a": "ä"\n}\n[\n  1,\n  "x"\n]\n'),
        (["-f", "json"], '{"a": "ä"}\n[1, "x"]\n'),
        (["-f", "raw"], '{"a": "ä"}\n[1, "x"]\n'),
        (["-f", "raw", "-p", "string"], '{"a":"ä"}\n[1,"x"]\n'),
        (["-f", "json", "-p", "string"], '"{\\"a\\":\\"ä\\"}"\n"[1,\\"x\\"]"\n'),
    ],
)
def test_forms_of_what_is_read(aws: LocalAws, stream: str, args: list[str], expected: str) -> None:
    fill(aws, stream, '{"a":"ä"}'.encode(), b'[1,"x"]', b"3")
    assert output(aws, "tail", stream, "-i", "TRIM_HORIZON", "-n", "2", *args) == expected


def test_a_long_record_in_short_and_one_that_cannot_be_read(aws: LocalAws, stream: str) -> None:
    fill(aws, stream, b'"' + b"x" * 500 + b'"', b"{", b"2")
    done = run(aws, "tail", stream, "-i", "TRIM_HORIZON", "-n", "2", "-f", "raw-short")
    assert (done.returncode, done.stdout.decode()) == (0, f"{'x' * 117}...\n2\n")
    assert done.stderr.decode().startswith("record 4")
    assert " cannot be read: no JSON: " in done.stderr.decode()


def test_from_a_moment_on(aws: LocalAws, stream: str) -> None:
    fill(aws, stream, b"1")
    moment = read(client(aws), stream, owner(aws, stream))[0]["ApproximateArrivalTimestamp"].isoformat()
    assert output(aws, "tail", stream, "-i", "AT_TIMESTAMP", "--timestamp", moment, "-n", "1", "-f", "json") == "1\n"
    for args in (["-i", "AT_TIMESTAMP"], ["--timestamp", moment], ["-i", "AT_TIMESTAMP", "--timestamp", "soon"]):
        done = run(aws, "tail", stream, *args)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"timestamp" in done.stderr


def owner(aws: LocalAws, stream: str) -> str:
    """The shard that has records."""
    kinesis = client(aws)
    return next(shard["ShardId"] for shard in shards(kinesis, stream) if read(kinesis, stream, shard["ShardId"]))


def test_the_latest_until_it_is_interrupted(own_aws: LocalAws, stream: str) -> None:
    fill(own_aws, stream, b"0")
    arguments: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    calls = own_aws.calls().get("GetShardIterator", 0)
    with subprocess.Popen(command(own_aws, "tail", stream, "-f", "json"), env=environment(), **arguments) as child:
        wait_until(
            lambda: own_aws.calls().get("GetShardIterator", 0) >= calls + 2 or child.poll() is not None,
            "iterators of both shards",
            seen=own_aws.calls,
            step=0.1,
        )
        fill(own_aws, stream, b"1")
        assert child.stdout.readline() == b"1\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert (child.stdout.read(), child.stderr.read()) == (b"", b"")


def test_a_tail_whose_reader_has_gone(aws: LocalAws, stream: str) -> None:
    fill(aws, stream, *[b"%d" % number for number in range(50)])
    arguments: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = command(aws, "tail", stream, "-i", "TRIM_HORIZON", "-f", "json")
    with subprocess.Popen(started, env=environment(), **arguments) as child:
        assert child.stdout.readline() == b"0\n"
        child.stdout.close()
        fill(aws, stream, *[b"%d" % number for number in range(50)])
        assert (child.wait(60), child.stderr.read()) == (141, b"")


def test_verbose_shows_what_happens(own_aws: LocalAws, stream: str) -> None:
    own_aws.faults(Fault("PutRecords", "AccessDeniedException", times=1))
    done = run(own_aws, "-v", "put", stream, "1")
    assert f"WARNING fastkcl.kinesis.write.producer: records cannot be put into {stream}" in done.stderr.decode()


def test_without_the_extra_one_line_says_what_to_install() -> None:
    source = (
        "import sys\nsys.modules['aiobotocore'] = None\nsys.argv = ['fastkcl', 'kinesis', 'list']\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: this command needs aiobotocore: pip install 'fastkcl[kinesis]'\n",
    )
