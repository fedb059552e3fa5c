"""The word-putter and the consumer of examples/, as a user of amazon_kclpy has them."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fastkcl import _core
from kcl_helpers import SHARD_ENDED, SHUTDOWN_REQUESTED, Child, checkpoint, status
from paths import EXAMPLES

RUN = ("-m", "fastkcl", "run")


def words(*batch: str, first: int = 1) -> bytes:
    numbers = [str(first + index) for index in range(len(batch))]
    return _core.encode_process_records([word.encode() for word in batch], list(batch), numbers, [0] * len(batch), None)


def test_the_consumer_counts() -> None:
    with Child(*RUN, str(EXAMPLES / "word_consumer.py")) as child:
        child.daemon.start()
        child.daemon.ask(words("dog cat", "cat"), status("processRecords"))
        child.daemon.ask(words("cat", first=3), status("processRecords"))
        child.daemon.ask(SHUTDOWN_REQUESTED, checkpoint("3", 0), status("shutdownRequested"))
        child.daemon.ask(SHARD_ENDED, checkpoint(), status("shardEnded"))
        code, stderr = child.finish()
    assert code == 0
    assert "shardId-000000000000: 4 words, most often [('cat', 3), ('dog', 1)]" in stderr


class Kinesis(BaseHTTPRequestHandler):
    """Enough of the service for the putter; refuses the first record that it sees."""

    put: list[dict[str, Any]]
    created: list[str]

    def do_POST(self) -> None:
        action = self.headers["X-Amz-Target"].partition(".")[2]
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code, answer = 200, {}
        if action == "PutRecords":
            results = [{"ShardId": "shardId-000000000000", "SequenceNumber": "1"} for _ in request["Records"]]
            if not self.put:
                results[0] = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "slower"}
            self.put += request["Records"]
            answer = {"Records": results, "FailedRecordCount": sum("ErrorCode" in result for result in results)}
        elif action == "CreateStream":
            self.created.append(request["StreamName"])
        elif action == "DescribeStream":
            answer = {"StreamDescription": {"StreamStatus": "ACTIVE", "StreamName": request["StreamName"]}}
        else:
            code, answer = 400, {"__type": "ResourceNotFoundException"}
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def kinesis() -> Iterator[tuple[str, type[Kinesis]]]:
    handler = type("Handler", (Kinesis,), {"put": [], "created": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join()


def test_the_putter_puts_every_word(kinesis: tuple[str, type[Kinesis]], monkeypatch: pytest.MonkeyPatch) -> None:
    url, service = kinesis
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    command = [sys.executable, str(EXAMPLES / "word_putter.py"), "--stream", "words", "--region", "eu-central-1"]
    done = subprocess.run(
        [*command, "--seconds", "1", "cat", "dog"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert service.created == ["words"]
    put = [base64.b64decode(record["Data"]).decode() for record in service.put]
    assert put == ["cat", "dog", "cat"]  # the first cat was refused
    assert "1 of 2 words were refused" in done.stderr
    assert "2 words are in words" in done.stderr
