"""HTTP of registries: each answer is bounded in bytes, and in time from the first byte to the last.

    call ─▶ connection ─▶ status, headers, chunk sizes, body ─▶ Answer
                            └── before each read the socket gets the time that is left

A timeout of a socket bounds one wait alone: a server that sends a byte now and then would hold its caller for ever.

Rules: redirects are not followed, as they would carry the credentials to another host. Any status is an answer. Proxies
are those of the environment.
"""

from __future__ import annotations

import base64
import io
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from socket import socket
from time import monotonic
from typing import Any, Final

from fastkcl.masking import without_sent, without_users
from fastkcl.payloads.registries.answers import MAX_SCHEMA_BYTES, AwayError, NoJsonError, UnusableError, loads

__all__ = ["LARGEST_ANSWER", "LONGEST_ANSWER", "Answer", "Http"]

LONGEST_ANSWER: Final = 30.0
"""Seconds of one answer."""
LARGEST_ANSWER: Final = 2 * MAX_SCHEMA_BYTES
"""Bytes of one answer."""
_SILENCE: Final = 10.0  # seconds without a byte
_PART: Final = 1 << 16
_SHOWN: Final = 300  # characters of what a server says


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server has answered: a status, headers, and a whole body."""

    status: int
    headers: Message
    body: bytes
    sent: tuple[str, ...] = field(default=(), repr=False)
    """Secrets of the request, which a server may repeat."""

    def json_object(self, call: str) -> dict[str, Any]:
        """The body as a JSON object.

        Args:
            call: and its status, for messages.

        Raises:
            UnusableError: it is deeper than a schema may be.
            AwayError: the body is not a JSON object, so it does not come from a registry.
        """
        kind = self.headers.get("Content-Type")
        if kind is not None and "json" not in kind.lower():
            raise AwayError(
                f"{call}: not the answer of a registry, but {without_sent(kind, *self.sent)[:80]!r}: {self.shown()}"
            )
        try:
            value = loads(self.body.decode(), "the registry's answer")
        except UnicodeDecodeError:
            raise AwayError(f"{call}: not the answer of a registry, but no UTF-8") from None
        except NoJsonError:
            raise AwayError(f"{call}: not the answer of a registry, but no JSON: {self.shown()}") from None
        if not isinstance(value, dict):
            raise AwayError(f"{call}: not the answer of a registry, as it is no object: {self.shown()}")
        return value

    def shown(self) -> str:
        """The beginning of the body, for a message, without the secrets of the request."""
        return without_sent(self.body.decode(errors="replace"), *self.sent)[:_SHOWN]


class Http:
    """Calls of one server.

    Args:
        context: of TLS.
        longest: seconds of one answer.

    Raises:
        ValueError: `longest` is not above 0.
    """

    def __init__(self, context: ssl.SSLContext, longest: float = LONGEST_ANSWER) -> None:
        if not longest > 0:
            raise ValueError(f"an answer may take {longest} s: must be above 0")
        self._longest = longest
        self._opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.ProxyHandler(), _Plain(), _Secure(context), urllib.request.UnknownHandler()):
            self._opener.add_handler(handler)

    def call(self, method: str, url: str, headers: Mapping[str, Any], body: bytes | None = None) -> Answer:
        """The answer to one request.

        Raises:
            AwayError: there was none, or not all of it in the time.
            UnusableError: it has more than `LARGEST_ANSWER` bytes.
        """
        request = _Request(url, data=body, headers=dict(headers), method=method)
        request.ends = monotonic() + self._longest
        try:
            with self._opener.open(request, timeout=min(_SILENCE, self._longest)) as answer:
                return Answer(answer.status, answer.headers, _body_of(answer), _secrets_of(headers))
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, UnusableError):
                raise
            said = without_sent(str(error), *_secrets_of(headers))
            late = f" (an answer may take {self._longest:g} s)" if monotonic() >= request.ends else ""
            raise AwayError(f"{method} {without_users(url)}: {without_users(said)}{late}") from None


class _Request(urllib.request.Request):
    ends: float = 0.0
    """When the answer has to be there, by `monotonic`."""


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:  # noqa: ANN401 - of the library
        """The answer of a connection whose reads are bounded."""
        return self.do_open(_bounded(HTTPConnection, req.ends), req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._trusted = context

    def https_open(self, req: Any) -> Any:  # noqa: ANN401 - of the library
        """The answer of a connection whose reads are bounded. The handshake is, by the socket's timeout."""
        return self.do_open(_bounded(HTTPSConnection, req.ends), req, context=self._trusted)


def _bounded(kind: type[HTTPConnection], ends: float) -> Callable[..., HTTPConnection]:
    """Makes connections whose answers, that of a proxy's tunnel too, end in time."""

    def make(host: str, **options: Any) -> HTTPConnection:  # noqa: ANN401 - of the library
        connection = kind(host, **options)
        connection.response_class = partial(_Response, ends)  # type: ignore[assignment]
        return connection

    return make


class _Response(HTTPResponse):
    def __init__(self, ends: float, sock: socket, *args: Any, **options: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *args, **options)
        self.fp.close()  # the library's reader; the socket stays open
        self.fp = io.BufferedReader(_Reads(sock, ends))


class _Reads(io.RawIOBase):
    """Reads of a socket until a time.

    Args:
        link: that is read.
        ends: by `monotonic`.
    """

    def __init__(self, link: socket, ends: float) -> None:
        super().__init__()
        self._link, self._ends = link, ends
        self._source = link.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, into: Any) -> int | None:  # noqa: ANN401 - a buffer
        """Bytes that came, in what is left of the time.

        Raises:
            TimeoutError: none came, or the time is over.
        """
        left = self._ends - monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        self._link.settimeout(min(_SILENCE, left))
        return self._source.readinto(into)

    def close(self) -> None:
        """Closes the socket, if nobody else has it."""
        self._source.close()
        super().close()


def _secrets_of(headers: Mapping[str, Any]) -> tuple[str, ...]:
    """The credentials of a request, with and without their scheme."""
    given = {
        name.lower(): value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for name, value in headers.items()
    }
    authorization, token = given.get("authorization", ""), given.get("x-amz-security-token", "")
    scheme, _, credentials = authorization.partition(" ")
    parts = [authorization, token]
    if scheme in ("Bearer", "Basic"):
        parts.append(credentials)
    if scheme == "Basic":
        parts.append(base64.b64decode(credentials).decode().partition(":")[2])
    return tuple(filter(None, parts))


def _body_of(answer: HTTPResponse) -> bytes:
    parts, left = [], LARGEST_ANSWER
    while part := answer.read1(min(left + 1, _PART)):
        left -= len(part)
        if left < 0:
            raise UnusableError(f"the registry's answer has more than {LARGEST_ANSWER} bytes")
        parts.append(part)
    if answer.length:
        raise IncompleteRead(b"", answer.length)  # read1 is silent about it
    return b"".join(parts)
