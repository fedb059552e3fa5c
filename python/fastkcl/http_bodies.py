"""Answers of HTTP servers, waited for and read up to a bound.

The clients' own timeouts are for each read. A server that sends a byte now and then, in its headers or its body, keeps
them for ever; one that sends without an end takes all memory there is.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, Final, TypeVar

__all__ = ["BodyError", "answered", "bound_session"]

R = TypeVar("R")

_PART: Final = 1 << 16
_MOST_BYTES: Final = 16 << 20
"""Of an answer of AWS: the largest, of ListShards or Query, have a few MB."""
_SECONDS: Final = 300


class BodyError(Exception):
    """What is wrong with an answer: ``has more than 16 MiB``."""


def answered(send: Callable[[], R], most: int, seconds: float, *, unpack: bool = False) -> tuple[R, bytes]:
    """An answer, and its body.

    Args:
        send: sends the request, in a thread of its own; its answer has urllib3's as `raw`, whose body is not read yet.
        most: bytes of the body.
        seconds: for all of it.
        unpack: a body that the server has packed.

    Raises:
        BodyError: it has more, or takes longer.
        Exception: of `send`, or urllib3's.
    """
    found: Future[tuple[R, bytes]] = Future()
    began: list[Any] = []

    def exchange() -> None:
        try:
            answer = send()
            began.append(answer.raw)  # type: ignore[attr-defined]
            found.set_result((answer, _read(began[0], most, unpack=unpack or None)))
        except BaseException as error:
            found.set_exception(error)

    try:
        run = copy_context().run  # who traces requests knows them by it
        threading.Thread(target=run, args=(exchange,), name="fastkcl-http", daemon=True).start()
    except RuntimeError:  # an interpreter that ends starts none; then without the bound in time
        exchange()
    try:
        return found.result(seconds)
    except TimeoutError:
        if found.done():  # its own
            raise
    with suppress(Exception):  # then its thread ends by itself
        began[0]._connection.sock.shutdown(socket.SHUT_RDWR)
    raise BodyError(f"takes more than {seconds:g} s")


def bound_session(session: Any, fault: Callable[[str, str, str], Exception] | None = None) -> Any:  # noqa: ANN401 - of botocore
    """Have the clients of a session read no more than an answer of AWS may have, those for its credentials too.

    botocore reads an answer to its end, if it has one.

    Args:
        session: of botocore. Clients that are there already are not bounded. Calls whose answer is a stream, as
            GetObject's, do not work with the others.
        fault: makes the error. It gets the call's name, the fault of its answer, and the URL. A BotoCoreError if None.

    Returns:
        The session.
    """

    class Bounded:
        def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401
            super().__init__(*args, **options)
            _bound(self, fault or _fault)

    def add(base_classes: list[type], **_: object) -> None:
        base_classes.insert(0, Bounded)

    session.register("creating-client-class", add)
    return session


def _fault(call: str, fault: str, url: str) -> Exception:
    from botocore.exceptions import BotoCoreError

    class AnswerError(BotoCoreError):  # type: ignore[misc]
        __qualname__ = "AnswerError"  # which obstore shows
        fmt = "the answer of {url} to {call} {fault}: is it AWS? Look at AWS_ENDPOINT_URL and HTTPS_PROXY"

    return AnswerError(call=call, fault=fault, url=url)


def _bound(client: Any, fault: Callable[[str, str, str], Exception]) -> None:  # noqa: ANN401
    endpoint = client._endpoint
    send = endpoint._send  # not called where something else answers the request, as moto does

    def name(event_name: str, request: Any, **_: object) -> None:  # noqa: ANN401
        request.call = event_name.rpartition(".")[2]

    def bounded(request: Any) -> Any:  # noqa: ANN401
        request.stream_output = True
        try:
            with _named_by_botocore(request):
                response, body = answered(lambda: send(request), _MOST_BYTES, _SECONDS)
        except BodyError as error:
            raise fault(request.call, str(error), request.url) from None
        response._content = body
        return response

    client.meta.events.register("before-send", name)
    endpoint._send = bounded


@contextmanager
def _named_by_botocore(request: Any) -> Iterator[None]:  # noqa: ANN401
    """Errors of reading a body, as botocore has them, and tries again: of a connection that breaks, for example."""
    from botocore.exceptions import BotoCoreError, ConnectionClosedError, HTTPClientError, ReadTimeoutError
    from urllib3.exceptions import HTTPError, ProtocolError
    from urllib3.exceptions import ReadTimeoutError as LateError

    try:
        yield
    except BotoCoreError:  # of sending; some are OSErrors too
        raise
    except LateError as error:
        raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
    except ProtocolError as error:
        raise ConnectionClosedError(error=error, request=request, endpoint_url=request.url) from error
    except (HTTPError, OSError) as error:
        raise HTTPClientError(error=error) from error


def _read(raw: Any, most: int, *, unpack: bool | None) -> bytes:  # noqa: ANN401 - of urllib3
    body = bytearray()
    for part in raw.stream(_PART, decode_content=unpack):
        body += part
        if len(body) > most:
            raw.close()
            raise BodyError(f"has more than {most >> 20} MiB")
    return bytes(body)
