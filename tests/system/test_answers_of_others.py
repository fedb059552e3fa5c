"""Commands that ask AWS, and are answered by something else: a proxy's page, or JSON of another form."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from aws_commands import COMMANDS, environment
from http_servers import page, request_of, server

PAGE = b"<html>\x1b[31mPlease sign in</html>"
NESTED = {"StreamDescription": {}, "StreamDescriptionSummary": {}, "Shards": [{}], "TableNames": [5]}
TYPES = {
    "StreamDescription": [],
    "StreamDescriptionSummary": 7,
    "Shards": "x",
    "TableNames": 3,
    "Table": 5,
    "Items": {},
}
NOT_AWS = {
    "page": page(200, PAGE),
    "no UTF-8": page(200, b"\xe4"),
    "null": page(200, b"null"),
    "list": page(200, b"[]"),
    "deep": page(200, b"[" * 100_000),
    "types": page(200, json.dumps({"StreamNames": 5, "HasMoreStreams": "x", **TYPES}).encode()),
    "nested": page(200, json.dumps({"StreamNames": [5], "HasMoreStreams": False, **NESTED}).encode()),
    "201": page(201, PAGE),
    "204": page(204, b""),
    "302": page(302, b"", "Location: http://127.0.0.1:9/\r\n"),
    "403 and no UTF-8": page(403, b"<html>\xe4</html>"),
    "400 and no name": page(400, b'{"__type": 5}'),
    "407": page(407, b""),
}


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_an_answer_that_is_not_aws_s(tmp_path: Path, args: list[str]) -> None:
    """A page of a proxy; some were a traceback, and for others `tail` and `put` took 40 s, or never ended."""
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
    command = [sys.executable, "-m", "fastkcl", *args]
    all_of_them = args[1] in ("list", "tail")  # by boto3 and by aiobotocore
    for name in NOT_AWS if all_of_them else ("page", "nested", "403 and no UTF-8"):

        def talk(link: socket.socket, _: int, answer: bytes = NOT_AWS[name]) -> None:
            while request_of(link):
                link.sendall(answer)

        with server(talk) as address:
            env = environment() | keys | {"AWS_ENDPOINT_URL": f"http://{address}"}
            done = subprocess.run(command, capture_output=True, timeout=20, cwd=tmp_path, env=env)
        assert (done.returncode, done.stdout) == (2, b""), name
        assert done.stderr.startswith(b"Error: the answer to "), name
        assert b"something else that is not AWS, has answered http://127.0.0.1:" in done.stderr, name
        assert b"look at --endpoint-url, AWS_ENDPOINT_URL and HTTPS_PROXY" in done.stderr, name
        assert len(done.stderr.splitlines()) == 1, name
