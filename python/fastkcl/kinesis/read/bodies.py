"""Bodies of answers that are read when there is room for them: aiobotocore's HTTP session, with a gate before the body.

    request ──▶ status and headers ──▶ gate(length of the body) ──▶ body

An answer that waits at the gate fills only the connection's buffers; the rest stays with the service. If its gate
raises, the answer is dropped unread, with its connection. So is an answer of more than `MAX_ANSWER` bytes: the service
never sends that much, and an answer without a length might never end.

Rules: imported with aiobotocore, when a client is opened. Calls outside `gated` have no gate, and errors pass it; both
have bounds of their own.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeAlias

from aiobotocore.httpsession import AIOHTTPSession
from aiohttp import ClientError
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from fastkcl.kinesis.http import MAX_ANSWER
from fastkcl.kinesis.read.budget import READ_AHEAD

__all__ = ["Gate", "GatedSession", "gated"]

Gate: TypeAlias = Callable[[int], Awaitable[None]]
"""Waits until a body of so many bytes may be read."""

_LONGEST_ERROR = 1 << 20
_LONGEST_OTHER = 16 << 20  # of ListShards, or of DynamoDB
LONGEST_ANSWER = 14 << 20
"""The body of a GetRecords answer that does not give its length: 10 MiB of data in base64, with the rest."""

_gate: ContextVar[Gate | None] = ContextVar("_gate", default=None)


@contextmanager
def gated(gate: Gate) -> Iterator[None]:
    """Have the answers of calls in it wait at a gate; of `GatedSession` only."""
    token = _gate.set(gate)
    try:
        yield
    finally:
        with suppress(ValueError):  # it is collected, in another context, after its event loop has ended
            _gate.reset(token)


class _Direct:
    """A session of aiohttp that follows no redirects: the service sends none, and a signed request is for it alone.

    It reads ahead what a reservation has room for, not what is aiohttp's default: 64 KiB became 256 KiB with 3.14.
    """

    def __init__(self, session: Any) -> None:  # noqa: ANN401
        self._session = session

    def request(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - awaitable
        return self._session.request(*args, **{**options, "allow_redirects": False, "read_bufsize": READ_AHEAD})


class GatedSession(AIOHTTPSession):  # type: ignore[misc] # aiobotocore has no types
    """The HTTP session of a client whose calls may be `gated`."""

    async def _get_session(self, proxy_url: Any) -> _Direct:  # noqa: ANN401
        return _Direct(await super()._get_session(proxy_url))

    async def send(self, request: Any) -> Any:  # noqa: ANN401
        """Send a request, and read its answer."""
        gate = _gate.get()
        request.stream_output = True  # the body is left to us
        response = await super().send(request)
        is_good = response.status_code < 300
        most = _LONGEST_ERROR if not is_good else MAX_ANSWER if gate is not None else _LONGEST_OTHER
        try:
            if gate is not None and is_good:
                length = response.headers.get("content-length")
                expected = LONGEST_ANSWER if length is None else int(length)
                _check_length(expected, most)
                await gate(expected)
            response._content = await _read(response.raw, most)
        except BaseException as error:
            response.raw.close()
            if isinstance(error, (TimeoutError, ClientError)):
                raise _named_by_botocore(error, request) from error
            raise
        return response


def _named_by_botocore(error: Exception, request: Any) -> Exception:  # noqa: ANN401
    """An error of reading a body, as botocore has it, and tries again: of a connection that breaks, for example."""
    named: Exception
    if isinstance(error, TimeoutError):
        named = ReadTimeoutError(endpoint_url=request.url, error=error)
    else:
        named = ConnectionClosedError(error=error, request=request, endpoint_url=request.url)
    return named


async def _read(response: Any, most: int) -> bytes:  # noqa: ANN401 - aiohttp's ClientResponse
    """The body, which is in memory once: aiohttp's own read() has its pieces and their sum at the same time."""
    body = io.BytesIO()
    while piece := await response.content.readany():
        body.write(piece)
        _check_length(body.tell(), most)
    return body.getvalue()


def _check_length(length: int, most: int) -> None:
    if length > most:
        raise ConnectionError(f"an answer has {length:,} bytes or more, at most {most:,} are read")
