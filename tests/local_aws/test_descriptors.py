"""A server that runs out of descriptors: new connections wait, its log stays short, it recovers, and it stops."""

import asyncio
import contextlib
import errno
import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastkcl.local_aws.listener import Listener
from fastkcl.local_aws.server import report
from local_aws_helpers import JSON, headers, post
from waiting import PATIENCE, wait_until

LIMIT = 64
LOG_BYTES = 2000


class Limited:
    """A server that may have 64 descriptors."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", sys.executable, "-m", "fastkcl", "local-aws"]
                + ["--port=0", "--create-stream=s", "--until-stdin-ends"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.log()

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def connect(self, stack: contextlib.ExitStack, count: int) -> None:
        """Open so many connections, of which the kernel takes more than the server can."""
        port = int(self.url.rpartition(":")[2])
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            connection.sendall(b"POST / HTTP/1.1\r\n")

    def answers(self) -> bool:
        return post(self.url, b"{}", headers("ListStreams", JSON))[0] == 200


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Limited]:
    limited = Limited(tmp_path / "log")
    yield limited
    limited.process.kill()
    limited.process.communicate(timeout=60)


def test_it_waits_recovers_and_stops(server: Limited) -> None:
    for turn in range(2):
        with contextlib.ExitStack() as connections:
            server.connect(connections, 4 * LIMIT)
            wait_until(lambda: "new connections wait" in server.log(), "the line of a full server", seen=server.log)
            assert len(server.log()) < LOG_BYTES * (turn + 1)
        assert server.answers()
    with contextlib.ExitStack() as connections:
        server.connect(connections, 4 * LIMIT)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    assert len(server.log()) < 3 * LOG_BYTES, server.log()
    assert "Traceback" not in server.log()


def test_a_connection_ends_with_its_client(server: Limited) -> None:
    """Before a request, between two, and while one is answered: none keeps its descriptor."""
    port = int(server.url.rpartition(":")[2])
    descriptors = Path(f"/proc/{server.process.pid}/fd")
    assert server.answers()
    before = len(list(descriptors.iterdir()))
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # with its settings
    for sent in (b"", request, request + request, http2):
        for reads in (False, True):
            for _ in range(LIMIT):
                with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                    connection.sendall(sent)
                    if sent and reads:
                        assert connection.recv(1)
            assert server.answers()
    wait_until(lambda: len(list(descriptors.iterdir())) <= before, "the descriptors of before", seen=server.log)


def test_what_is_connected_is_served_meanwhile(server: Limited) -> None:
    first = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=60)
    fields = headers("ListStreams", JSON)
    first.request("POST", "/", b"{}", fields)
    assert first.getresponse().read()
    with contextlib.ExitStack() as connections:
        server.connect(connections, 4 * LIMIT)
        wait_until(lambda: "new connections wait" in server.log(), "the line of a full server", seen=server.log)
        dynamodb = {"X-Amz-Target": "DynamoDB_20120810.ListTables", "Content-Type": "application/x-amz-json-1.0"}
        for target in (fields, dynamodb):  # the first request of a service imports it
            first.request("POST", "/", b"{}", target)
            answer = first.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True), server.log()
    first.close()


def test_a_retry_of_a_listener_that_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio plans one when it is out of descriptors; a server that was stopped before that logs nothing of it."""
    monkeypatch.setattr(asyncio.constants, "ACCEPT_RETRY_DELAY", 0.05)  # type: ignore[attr-defined]
    retries: list[object] = []

    def full(_: Listener) -> None:
        raise OSError(errno.EMFILE, "full")

    async def life() -> None:
        loop = asyncio.get_running_loop()
        listening = Listener.of(socket.create_server(("127.0.0.1", 0)))

        def seen(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            retries.append(context.get("exception"))
            report(listening, loop, context)

        loop.set_exception_handler(seen)
        with monkeypatch.context() as patch:
            patch.setattr(Listener, "_check_descriptors", full)
            server = await asyncio.start_server(lambda *_: None, sock=listening)
            with socket.create_connection(listening.getsockname()):
                async with asyncio.timeout(PATIENCE):
                    while not retries:  # the failure itself
                        await asyncio.sleep(0)
                    server.close()
                    while not any(isinstance(error, ValueError) for error in retries):
                        await asyncio.sleep(0)

    asyncio.run(life())
    assert caplog.text == ""


def test_an_answer_waits_for_no_acknowledgement() -> None:
    """Its body is written after its headers, and a client acknowledges those 40 ms later, unless it has to say more."""

    async def has_no_delay() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = writer.get_extra_info("socket")
            found.set_result(link.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = Listener.of(socket.create_server(("127.0.0.1", 0)))
        async with await asyncio.start_server(talk, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await asyncio.wait_for(found, PATIENCE)

    assert asyncio.run(has_no_delay())
