"""Programs that consume a stream, and their final output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastkcl.local_aws import LocalAws
from local_aws_helpers import client
from paths import PROGRAMS

HASH_KEYS = 2**128


@contextmanager
def program(aws: LocalAws, name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program of tests/programs as a process, which is ended with the block."""
    command = [sys.executable, str(PROGRAMS / name), *map(str, arguments)]
    environment = {**os.environ, **aws.environment}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def last_line(process: subprocess.Popen[str], *, seconds: float) -> dict[str, Any]:
    """The JSON object that it writes before it ends by itself."""
    out, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, out
    value: dict[str, Any] = json.loads(out.splitlines()[-1])
    return value


def put_texts(aws: LocalAws, stream: str, texts: list[str], *, shards: int = 1) -> None:
    """Put texts, one a record, into the shards of a new stream in turn."""
    kinesis = client(aws)
    entries = [
        {"Data": text.encode(), "PartitionKey": "k", "ExplicitHashKey": str(number % shards * HASH_KEYS // shards + 1)}
        for number, text in enumerate(texts)
    ]
    at_once = max(1, min(500, 4_000_000 // max(map(len, texts))))
    for start in range(0, len(entries), at_once):
        answer = kinesis.put_records(StreamName=stream, Records=entries[start : start + at_once])
        assert not answer["FailedRecordCount"]
