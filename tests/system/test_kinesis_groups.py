"""`fastkcl kinesis groups`: where a group is, and where it goes on; the same over Redis, DynamoDB and KCL's table."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.kinesis import (
    Consumer,
    DynamoDBCheckPointer,
    KCLCheckPointer,
    LeasedCheckPointer,
    RedisCheckPointer,
)
from fastkcl.local_aws import LocalAws
from http_servers import server
from kinesis_groups import KINDS
from kinesis_helpers import QUICK, in_order, numbered, open_shards, put, split, take_all
from kinesis_helpers import environment as environment  # a fixture
from local_aws_helpers import client, make_stream

CHECKPOINTERS = {"redis": RedisCheckPointer, "dynamodb": DynamoDBCheckPointer, "kcl": KCLCheckPointer}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, redis: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in redis.items():
        monkeypatch.setenv(name, value)
    return str(request.param)


@pytest.fixture
def stream(aws: LocalAws) -> str:
    """A new stream of two shards, whose name is the group's as well."""
    return make_stream(aws, 2)


def checkpointer(kind: str, group: str, **options: Any) -> LeasedCheckPointer:
    made = CHECKPOINTERS[kind](group, **options)
    assert isinstance(made, LeasedCheckPointer)
    return made


def repeat_all(link: socket.socket, _: int) -> None:
    link.sendall(b"-ERR cannot parse %s\r\n" % link.recv(65_536).replace(b"\r\n", b" "))


def test_a_password_that_redis_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(repeat_all) as address:
        monkeypatch.setenv("REDIS_PORT", address.rpartition(":")[2])
        monkeypatch.setenv("REDIS_PASSWORD", "REDIS-SECRET")
        done = CliRunner().invoke(cli, ["kinesis", "groups", "list", "-c", "redis"])
        with pytest.raises(Exception, match="cannot parse") as raised:
            asyncio.run(RedisCheckPointer("group").position("shardId-000000000000"))
    assert "Redis: cannot parse" in done.output
    for said in (done.output, str(raised.value)):
        assert "REDIS-SECRET" not in said


def run(kind: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fastkcl", "kinesis", "groups", *arguments, "-c", kind]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)


def output(kind: str, *arguments: str) -> Any:
    """The JSON, in this process: most of a command's time is its start."""
    done = CliRunner().invoke(cli, ["kinesis", "groups", *arguments, "-c", kind, "--json"])
    assert (done.exit_code, done.stderr) == (0, ""), done.output
    return json.loads(done.stdout)


def consume(kind: str, stream: str, **options: Any) -> list[Any]:
    """All items that there are for the group."""

    async def main() -> list[Any]:
        async with Consumer(stream, checkpointer=checkpointer(kind, stream), **{**QUICK, **options}) as consumer:
            return await take_all(consumer)

    return run_alone(main())


def run_alone(work: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    return asyncio.run(work)


def reset(kind: str, stream: str, to: str, *more: str) -> Any:
    return output(kind, "reset", stream, stream, "--to", to, "--execute", *more)


def test_list_and_describe(kind: str, aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 3))
    assert len(consume(kind, stream)) == 24
    put(aws, stream, numbered(8, 1, 3))
    assert stream in output(kind, "list")["groups"]
    assert stream in run(kind, "list").stdout.splitlines()
    described = output(kind, "describe", stream, stream)
    assert (described["group"], described["stream"]) == (stream, stream)
    assert [shard["shard"][-1] for shard in described["shards"]] == ["0", "1"]
    for shard in described["shards"]:
        assert shard["open"]
        assert shard["owner"] is None
        assert shard["position"].partition("/")[0].isdecimal()
        assert shard["seconds_behind"] >= 0
    consume(kind, stream)
    assert [shard["seconds_behind"] for shard in output(kind, "describe", stream, stream)["shards"]] == [0, 0]
    shown = run(kind, "describe", stream, stream).stdout.splitlines()
    assert shown[0].split() == ["shard", "state", "owner", "behind", "position"]
    assert shown[1].split()[1:5] == ["open", "-", "0", "s"]


def test_a_dry_run_writes_nothing(kind: str, aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 3))
    consume(kind, stream)
    before = output(kind, "describe", stream, stream)
    done = run(kind, "reset", stream, stream, "--to", "TRIM_HORIZON")
    assert done.returncode == 0
    assert done.stdout.count("TRIM_HORIZON") == 2
    assert "Nothing was written" in done.stderr
    assert output(kind, "describe", stream, stream) == before
    assert consume(kind, stream) == []


def test_the_beginning_and_the_end(kind: str, aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 3))
    consume(kind, stream)
    assert len(reset(kind, stream, "TRIM_HORIZON")["shards"]) == 2
    again = run(kind, "reset", stream, stream, "--to", "TRIM_HORIZON")
    assert (again.returncode, again.stderr) == (0, "Nothing to change: the group is there already.\n")
    assert len(consume(kind, stream)) == 24
    put(aws, stream, numbered(8, 3, 3))
    reset(kind, stream, "LATEST")
    put(aws, stream, numbered(8, 1, 6))
    assert in_order(consume(kind, stream)) == {key: [6] for key in range(8)}


def test_a_time_and_a_reshard(kind: str, aws: LocalAws, stream: str) -> None:
    """A shard that was closed by then is finished, for all; its children begin at their first record."""
    put(aws, stream, numbered(8, 2))
    split(aws, stream, open_shards(aws, stream)[0])
    time.sleep(0.05)
    put(aws, stream, numbered(8, 2, 2))
    time.sleep(0.05)
    moment = datetime.now(UTC)
    time.sleep(0.05)
    put(aws, stream, numbered(8, 2, 4))
    assert len(consume(kind, stream)) == 48
    moved = {shard["shard"][-1]: shard["to"] for shard in reset(kind, stream, moment.isoformat())["shards"]}
    assert in_order(consume(kind, stream)) == {key: [4, 5] for key in range(8)}
    assert moved.get("0", "SHARD_END") == "SHARD_END"
    reset(kind, stream, "2000-01-01")
    assert in_order(consume(kind, stream)) == {key: list(range(6)) for key in range(8)}


def test_a_group_that_never_was(kind: str, aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 1))
    asyncio.run(checkpointer(kind, stream)._disconnect())
    if kind != "redis":  # its table
        asyncio.run(make_table(kind, stream))
    reset(kind, stream, "LATEST")
    put(aws, stream, numbered(8, 1, 1))
    assert in_order(consume(kind, stream)) == {key: [1] for key in range(8)}


async def make_table(kind: str, group: str) -> None:
    places = checkpointer(kind, group)
    await places.share([])
    await places.close()


def test_a_position(kind: str, aws: LocalAws, stream: str) -> None:
    shard = open_shards(aws, stream)[0]
    kinesis = client(aws)
    low = shard["HashKeyRange"]["StartingHashKey"]
    numbers = [
        kinesis.put_record(StreamName=stream, Data=json.dumps(number).encode(), PartitionKey="k", ExplicitHashKey=low)[
            "SequenceNumber"
        ]
        for number in range(5)
    ]
    assert consume(kind, stream) == list(range(5))
    reset(kind, stream, numbers[2], "--shard", shard["ShardId"])
    assert consume(kind, stream) == [3, 4]
    done = run(kind, "reset", stream, stream, "--to", numbers[2])
    assert (done.returncode, "--shard" in done.stderr) == (2, True)
    done = run(kind, "reset", stream, stream, "--to", "yesterday")
    assert (done.returncode, "yesterday" in done.stderr) == (2, True)


def test_refused_while_a_member_lives(kind: str, aws: LocalAws, stream: str) -> None:
    put(aws, stream, numbered(8, 1))

    async def main() -> None:
        places = checkpointer(kind, stream, id="alive", session_timeout=30, heartbeat_frequency=1)
        async with Consumer(stream, checkpointer=places, **{**QUICK, "idle_timeout": None}) as consumer:
            await anext(consumer)
            before = await asyncio.to_thread(output, kind, "describe", stream, stream)
            arguments = ("reset", stream, stream, "--to", "LATEST", "--execute", "--failover", "30")
            done = await asyncio.to_thread(run, kind, *arguments)
            assert done.returncode == 2
            assert "alive" in done.stderr
            assert "Nothing was written" in done.stderr
            after = await asyncio.to_thread(output, kind, "describe", stream, stream)
            assert [shard["position"] for shard in after["shards"]] == [shard["position"] for shard in before["shards"]]

    asyncio.run(main())


def test_a_position_of_another_shard(kind: str, aws: LocalAws, stream: str) -> None:
    """The group would be refused when it starts again, or begin somewhere else."""
    put(aws, stream, numbered(8, 1))
    consume(kind, stream)
    first = open_shards(aws, stream)[0]
    split(aws, stream, first)
    child = open_shards(aws, stream)[-1]["ShardId"]
    before = output(kind, "describe", stream, stream)
    for position in ("123", first["SequenceNumberRange"]["StartingSequenceNumber"]):
        done = run(kind, "reset", stream, stream, "--to", position, "--shard", child, "--execute", "--failover", "1")
        assert (done.returncode, f"{position} is not a position in {child}" in done.stderr) == (2, True), done.stderr
    assert output(kind, "describe", stream, stream) == before


def test_a_group_of_another_stream(kind: str, aws: LocalAws, stream: str) -> None:
    """Its positions would be shown as this stream's, or overwritten."""
    other = make_stream(aws, 2)
    put(aws, stream, numbered(8, 1))
    consume(kind, stream)
    before = output(kind, "describe", stream, stream)
    for arguments in (["describe"], ["reset", "--to", "LATEST"], ["reset", "--to", "TRIM_HORIZON", "--execute"]):
        done = run(kind, arguments[0], stream, other, *arguments[1:])
        assert done.returncode == 2
        assert f"{stream} keeps positions of stream {stream}, and not of {other}" in done.stderr
    assert output(kind, "describe", stream, stream) == before


def test_what_is_not_there(kind: str, stream: str) -> None:
    done = run(kind, "describe", stream, f"{stream}-2")
    assert done.returncode == 2
    assert f"there is no stream '{stream}-2'" in done.stderr
    done = run(kind, "describe", "nobody", stream)
    assert done.returncode == 2
    if kind == "redis":
        assert f"nobody has no positions in {stream}" in done.stderr
    else:
        table = {"dynamodb": "kinesis-checkpoints-nobody", "kcl": "nobody"}[kind]
        assert f"the group's table: Scan of DynamoDB table {table} in us-east-1: " in done.stderr
        assert "stream" not in done.stderr


def test_a_table_of_another_kind(kind: str, aws: LocalAws, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "redis":
        monkeypatch.setenv("REDIS_PORT", "six")
        done = run(kind, "describe", stream, stream)
        assert (done.returncode, done.stderr.count("\n"), "REDIS_PORT" in done.stderr) == (2, 1, True), done.stderr
        return
    put(aws, stream, numbered(8, 1))
    other = "kcl" if kind == "dynamodb" else "dynamodb"
    consume(other, stream)
    table = stream if other == "kcl" else f"kinesis-checkpoints-{stream}"
    for arguments in (["describe"], ["reset", "--to", "LATEST", "--execute"]):
        done = run(kind, arguments[0], stream, stream, "--table", table, *arguments[1:])
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert f"DynamoDB table {table} in us-east-1" in done.stderr
        assert "not a table of this kind" in done.stderr
