"""Sessions of botocore whose answers have bounds, beside what else answers or changes their requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ConnectionClosedError, ReadTimeoutError
from botocore.session import get_session
from fastkcl.http_bodies import bound_session
from http_servers import request_of, server
from moto import mock_aws

KEYS = {"aws_access_key_id": "A", "aws_secret_access_key": "s", "region_name": "us-east-1"}
IDENTITY = b"""<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>
<Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"""


def always(status: int, body: bytes, seen: list[bytes]) -> Callable[[socket.socket, int], None]:
    def talk(link: socket.socket, _: int) -> None:
        while request := request_of(link):
            seen.append(request)
            link.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    return talk


def client_at(address: str) -> Any:  # noqa: ANN401 - of botocore
    return bound_session(get_session()).create_client("sts", endpoint_url=f"http://{address}", **KEYS)


def test_what_moto_answers_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """moto answers within the process. The request was sent to AWS as well, and its error counted."""

    def no_network(*where: object, **_: object) -> None:
        raise AssertionError(f"sent to {where[:2]}")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        client = bound_session(get_session()).create_client("sts", **KEYS)
        assert client.get_caller_identity()["Account"] == "123456789012"


def test_a_request_is_sent_once() -> None:
    seen: list[bytes] = []
    with server(always(200, IDENTITY, seen)) as address:
        client = client_at(address)
        for _ in range(2):
            assert client.get_caller_identity()["Account"] == "123456789012"
    assert len(seen) == 2


def test_a_program_s_own_handler_sees_the_request() -> None:
    seen: list[bytes] = []

    def add(request: Any, **_: object) -> None:  # noqa: ANN401
        request.headers["X-Mine"] = "yes"

    with server(always(200, IDENTITY, seen)) as address:
        client = client_at(address)
        client.meta.events.register("before-send", add)
        client.get_caller_identity()
    assert b"X-Mine: yes" in seen[0]


@pytest.mark.parametrize("is_silent", [False, True])
def test_errors_of_sending_are_botocore_s_and_tried_again(is_silent: bool) -> None:
    """botocore tries again after its own errors, not after those that it does not know."""
    seen: list[bytes] = []

    def talk(link: socket.socket, _: int) -> None:
        seen.append(request_of(link))
        if is_silent:
            with suppress(OSError):
                link.recv(1)  # until the client has left

    options = Config(read_timeout=0.3, retries={"total_max_attempts": 2})
    with server(talk) as address:
        client = bound_session(get_session()).create_client(
            "sts", endpoint_url=f"http://{address}", config=options, **KEYS
        )
        with pytest.raises(ReadTimeoutError if is_silent else ConnectionClosedError):
            client.get_caller_identity()
    assert len(seen) == 2


def test_an_interpreter_that_starts_no_threads_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may ask AWS in a function of atexit."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "fastkcl-http":
            raise RuntimeError("can't start new thread at interpreter shutdown")
        start(thread)

    with server(always(200, IDENTITY, [])) as address:
        client = client_at(address)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert client.get_caller_identity()["Account"] == "123456789012"


def test_a_request_has_its_callers_context() -> None:
    """By which a program's tracing knows it."""
    caller: ContextVar[str] = ContextVar("caller", default="")
    found: list[str] = []
    with server(always(200, IDENTITY, [])) as address:
        client = client_at(address)
        send = client._endpoint.http_session.send

        def traced(request: Any) -> Any:  # noqa: ANN401 - of botocore
            found.append(caller.get())
            return send(request)

        client._endpoint.http_session.send = traced
        caller.set("me")
        client.get_caller_identity()
    assert found == ["me"]


def test_an_answer_that_has_too_much_names_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastkcl.http_bodies._MOST_BYTES", 1 << 20)
    seen: list[bytes] = []
    with server(always(503, b" " * (2 << 20), seen)) as address:
        client = client_at(address)
        with pytest.raises(BotoCoreError, match=r"to GetCallerIdentity has more than 1 MiB"):
            client.get_caller_identity()
    assert len(seen) == 1
