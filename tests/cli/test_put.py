"""`fastkcl put`: sources, both outputs, exit status, and the errors when something is missing."""

import fcntl
import gzip
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from aws_commands import environment
from fastkcl import _core
from fastkcl.local_aws import Fault, LocalAws
from fastkcl.replay.profiles import PROFILES
from local_aws_helpers import client, new_name, read, shards
from waiting import wait_until

COMMAND = [sys.executable, "-m", "fastkcl", "put"]


def put(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=120, env=environment(**env))


def put_to(aws: LocalAws, *args: str) -> dict[str, Any]:
    done = put(*args, "--endpoint-url", aws.url, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def stored(aws: LocalAws, stream: str) -> list[tuple[str, bytes]]:
    kinesis = client(aws)
    return sorted(
        (record["PartitionKey"], record["Data"])
        for shard in shards(kinesis, stream)
        for record in read(kinesis, stream, shard["ShardId"])
    )


def test_an_input_that_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = put("orders", "--input", str(tmp_path / "fifo"))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"Error: {tmp_path / 'fifo'}: no regular file\n")


def record_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def row(key: str, data: bytes) -> dict[str, Any]:
    return {"partitionKey": key, "data": _core.encode_base64(data).decode()}


def test_a_profile_into_a_new_stream(aws: LocalAws) -> None:
    stream = new_name()
    report = put_to(aws, stream, "--profile", "clickstream", "--records", "1200", "--seed", "3", "--create", "3")
    profile = PROFILES["clickstream"]
    seed = 3 * 1_000_003 * 8  # as the replayer's first shard has it
    expected = sorted(zip(profile.partition_keys(1200, seed), profile.payloads(1200, seed), strict=True))
    assert stored(aws, stream) == expected
    assert (report["user_records"], report["records"], report["calls"]) == (1200, 1200, 3)
    assert report["bytes"] == sum(len(key) + len(data) for key, data in expected)
    assert sum(report["shards"].values()) == 1200
    assert len(report["shards"]) == 3


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
def test_a_file_of_records(aws: LocalAws, tmp_path: Path, name: str) -> None:
    rows = [("a", b"1"), ("ä", b""), ("b", bytes(range(256)))]
    path = record_file(tmp_path / name, [row(*each) for each in rows])
    stream = new_name()
    put_to(aws, stream, "--input", str(path), "--create", "1")
    assert stored(aws, stream) == sorted(rows)
    put_to(aws, stream, "--input", str(path), "--create", "1")
    assert len(stored(aws, stream)) == 6, "a stream that is there stays"


def test_what_people_see(own_aws: LocalAws) -> None:
    own_aws.faults(Fault("PutRecords", "ProvisionedThroughputExceededException", every=2, times=1))
    stream = new_name()
    done = put(stream, "--profile", "tiny", "--records", "100", "--create", "1", "--endpoint-url", own_aws.url)
    assert (done.returncode, done.stderr) == (0, "")
    first, shard, refused = done.stdout.splitlines()
    assert first.startswith(f"{stream}: 100 records, 0.0 MB in 2 calls and ")
    assert shard == "  shardId-000000000000  100"
    assert refused == "  refused at first, and put again: 50 by ProvisionedThroughputExceededException"


def test_aggregates(aws: LocalAws) -> None:
    stream = new_name()
    report = put_to(aws, stream, "--profile", "iot", "--records", "5000", "--aggregate", "--create", "2")
    assert report["user_records"] == 5000
    assert report["records"] < 50
    assert all(data.startswith(b"\xf3\x89\x9a\xc2") for _, data in stored(aws, stream))


def test_a_rate(aws: LocalAws) -> None:
    args = ("--profile", "tiny", "--records", "100", "--rate", "100", "--create", "1")
    report = put_to(aws, new_name(), *args)
    assert report["seconds"] >= 0.8  # the last fifth of a second need not be waited for
    assert report["calls"] == 5


def test_records_that_the_stream_does_not_take(aws: LocalAws, tmp_path: Path) -> None:
    path = record_file(tmp_path / "r.jsonl", [row("k", b"x"), row("k", bytes(2**20))])
    done = put(new_name(), "--input", str(path), "--create", "1", "--endpoint-url", aws.url, "--json")
    assert done.returncode == 1
    assert "record 1 has 1,048,577 bytes with its key" in done.stderr
    assert json.loads(done.stdout)["user_records"] == 0


def test_interrupted(own_aws: LocalAws) -> None:
    args = ("--profile", "tiny", "--records", "100000", "--rate", "50", "--create", "1", "--endpoint-url", own_aws.url)
    stream = new_name()
    before = own_aws.calls().get("PutRecords", 0)
    with subprocess.Popen(
        [*COMMAND, stream, *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        wait_until(
            lambda: own_aws.calls().get("PutRecords", 0) >= before + 2 or process.poll() is not None,
            "two calls",
            seen=own_aws.calls,
            step=0.05,
        )
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"fastkcl: interrupted\n")
    assert 10 <= json.loads(out)["user_records"] <= len(stored(own_aws, stream))


def test_a_bar_on_a_terminal(aws: LocalAws) -> None:
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    args = ("--profile", "tiny", "--records", "100", "--rate", "100", "--create", "1", "--endpoint-url", aws.url)
    done = subprocess.Popen(
        [*COMMAND, new_name(), *args], stdout=subprocess.DEVNULL, stderr=terminal, env=environment(TERM="xterm")
    )
    os.close(terminal)
    seen = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # what a terminal says at its end
            break
        if not piece:
            break
        seen += piece
    os.close(main)
    assert done.wait(60) == 0
    assert b"/100" in seen
    assert b"records" in seen


USAGE: list[tuple[str, tuple[str, ...], str]] = [
    ("no source", (), "give one of them"),
    ("two sources", ("--profile", "tiny", "--input", __file__), "give one of them"),
    ("a seed for a file", ("--input", __file__, "--seed", "1"), "--seed is for generated records"),
    ("a file of something else", ("--input", __file__), "test_put.py:1: no JSON"),
    ("no rate", ("--profile", "tiny", "--rate", "0"), "--rate"),
]


@pytest.mark.parametrize(("args", "what"), [case[1:] for case in USAGE], ids=[case[0] for case in USAGE])
def test_arguments_that_cannot_be(aws: LocalAws, args: tuple[str, ...], what: str) -> None:
    done = put(new_name(), *args, "--endpoint-url", aws.url, "--create", "1")
    assert done.returncode == 2
    assert what in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_data_that_is_null(aws: LocalAws, tmp_path: Path) -> None:
    path = record_file(tmp_path / "r.jsonl", [{"partitionKey": "k", "data": None}])
    done = put(new_name(), "--input", str(path), "--endpoint-url", aws.url, "--create", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: record 0: its data is null; a stream cannot hold that\n"


def test_data_that_is_null_behind_what_was_put(aws: LocalAws, tmp_path: Path) -> None:
    rows = [{"partitionKey": f"k{n}", "data": "aGk="} for n in range(2500)]
    path = record_file(tmp_path / "r.jsonl", [*rows, {"partitionKey": "k", "data": None}])
    stream = new_name()
    done = put(stream, "--input", str(path), "--endpoint-url", aws.url, "--create", "1", "--json")
    assert (done.returncode, done.stderr) == (1, "Error: record 2500: its data is null; a stream cannot hold that\n")
    there = len(stored(aws, stream))
    assert 0 < json.loads(done.stdout)["user_records"] == there < 2500


def test_no_such_stream(aws: LocalAws) -> None:
    stream = new_name()
    done = put(stream, "--profile", "tiny", "--endpoint-url", aws.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: there is no stream '{stream}': `fastkcl put --create SHARDS` makes it (")


def test_no_credentials() -> None:
    done = put("s", "--profile", "tiny", "--region", "eu-central-1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: Unable to locate credentials: set AWS_ACCESS_KEY_ID")


def test_no_region() -> None:
    done = put("s", "--profile", "tiny", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: You must specify a region. --region or AWS_DEFAULT_REGION names it\n"


def test_nobody_at_the_endpoint() -> None:
    done = put("s", "--profile", "tiny", "--endpoint-url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("is `fastkcl local-aws` running there?\n")


@pytest.mark.parametrize("args", [[], ["--aggregate"]])
def test_without_its_extra_it_says_what_to_install(args: list[str]) -> None:
    code = (
        "import sys\nsys.modules['boto3'] = None\n"
        f"sys.argv = ['fastkcl', 'put', 's', '--profile', 'tiny', *{args}]\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "Error: this command needs boto3: pip install 'fastkcl[kinesis]'\n",
    )
