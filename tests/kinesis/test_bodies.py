"""Bodies of answers that come without an end, or are longer than any of the service's."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import nullcontext

import pytest
from aiohttp.client_proto import ResponseHandler
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError
from fastkcl.kinesis.http import MAX_ANSWER
from fastkcl.kinesis.read.bodies import Gate, GatedSession, gated
from fastkcl.kinesis.read.budget import SMALLEST_RESERVATION
from http_servers import request_of, server
from waiting import PATIENCE, until

HEAD = b"HTTP/1.1 200 OK\r\n"
PIECE = b" " * (1 << 20)


async def no_wait(length: int) -> None:
    del length


def read_body(address: str, gate: Gate | None = no_wait) -> bytes:
    async def main() -> bytes:
        async with GatedSession() as session:
            request = AWSPreparedRequest(
                "POST", f"http://{address}/", HTTPHeaders.from_dict({"Content-Length": "0"}), b"", False
            )
            with nullcontext() if gate is None else gated(gate):
                response = await session.send(request)
            return bytes(response._content)

    return asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_body_without_an_end_is_dropped() -> None:
    sent = 0

    def talk(link: socket.socket, number: int) -> None:
        nonlocal sent
        request_of(link)
        link.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while sent < 4 * MAX_ANSWER:
            link.sendall(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
            sent += len(PIECE)
        link.sendall(b"0\r\n\r\n")

    with server(talk) as address, pytest.raises(ConnectionError, match="at most 67,108,864 are read"):
        read_body(address)
    assert sent < 2 * MAX_ANSWER


def test_a_body_that_says_it_is_too_long_is_not_read() -> None:
    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        link.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (MAX_ANSWER + 1))
        link.recv(1)  # until the client closes

    with server(talk) as address, pytest.raises(ConnectionError, match="an answer has 67,108,865 bytes"):
        read_body(address)


def talk_at_length(link: socket.socket, number: int) -> None:
    request_of(link)
    link.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (20 << 20))
    for _ in range(20):
        link.sendall(PIECE)


def test_a_large_body_is_read() -> None:
    with server(talk_at_length) as address:
        assert len(read_body(address)) == 20 << 20


def test_an_answer_that_waits_is_not_above_its_reservation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What aiohttp reads ahead is bounded here: its default became four times as much with 3.14."""
    received, most, paused = 0, 0, False
    receive, pause = ResponseHandler.data_received, ResponseHandler.pause_reading

    def data_received(handler: ResponseHandler, data: bytes) -> None:
        nonlocal received
        received += len(data)
        receive(handler, data)

    def pause_reading(handler: ResponseHandler) -> None:
        nonlocal paused
        paused = True
        pause(handler)

    async def waits_until_it_is_paused(length: int) -> None:
        nonlocal most
        assert length == 20 << 20
        await until(lambda: paused, "a connection that is not read any more", seen=lambda: received)
        most = received

    monkeypatch.setattr(ResponseHandler, "data_received", data_received)
    monkeypatch.setattr(ResponseHandler, "pause_reading", pause_reading)
    with server(talk_at_length) as address:
        assert len(read_body(address, waits_until_it_is_paused)) == 20 << 20
    assert 0 < most <= SMALLEST_RESERVATION + 1000  # the head is not the body's


def endless(status: bytes, sent: list[int]) -> Callable[[socket.socket, int], None]:
    """An answer without an end, up to what nobody should read."""

    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        link.sendall(b"HTTP/1.1 " + status + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        while sum(sent) < 2 * MAX_ANSWER:
            link.sendall(b"%x\r\n%s\r\n" % (len(PIECE), PIECE))
            sent.append(len(PIECE))

    return talk


@pytest.mark.parametrize(
    ("status", "gate", "most"),
    [(b"400 Bad Request", no_wait, 1 << 20), (b"400 Bad Request", None, 1 << 20), (b"200 OK", None, 16 << 20)],
)
def test_errors_and_other_answers_have_bounds_of_their_own(status: bytes, gate: Gate | None, most: int) -> None:
    """An error that had no end took all memory there was."""
    sent: list[int] = []
    with server(endless(status, sent)) as address, pytest.raises(ConnectionError, match=f"at most {most:,} are read"):
        read_body(address, gate)
    assert sum(sent) < 2 * most + 8 * len(PIECE)


@pytest.mark.parametrize("gate", [no_wait, None])
@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request"])
def test_a_connection_that_breaks_is_an_error_that_botocore_tries_again(status: bytes, gate: Gate | None) -> None:
    def talk(link: socket.socket, number: int) -> None:
        request_of(link)
        link.sendall(b"HTTP/1.1 " + status + b"\r\nContent-Length: 100\r\n\r\n{")

    with server(talk) as address, pytest.raises(ConnectionClosedError):
        read_body(address, gate)
