"""HTTP/1.1 for small signed calls: one request at a time on a connection, connections kept, each answer bounded.

    post ──▶ a kept connection, or a new one (proxy, TLS) ──▶ request ──▶ Answer: status, headers, body

The body is a view of the connection's buffer. Only the reader that `Http.post` gets may use it, and only during the
call. So an answer of 10 MiB is received into the memory of the last one.

Rules: calls block; any number of threads may make them. A forked process makes its own connections. A request may reach
the service twice: if the service has closed a kept connection, the request is sent again on a new one.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Self, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from fastkcl.masking import remember_url, without_sent
from fastkcl.stdio.given_files import trusting

__all__ = ["Answer", "Http", "ProxyError"]

MAX_HEADERS = 64 << 10
MAX_ANSWER = 64 << 20
"""Bytes of a body: GetRecords gives 10 MiB of data, in base64, and names for each of 10,000 records."""
SMALL = 64 << 10
LARGE_KEPT = 4
"""So many idle connections keep a buffer above `SMALL`."""
MAX_IDLE = 64
CONNECT_TIMEOUT = 4.0
TIMEOUT = 60.0

_T = TypeVar("_T")
_LENGTH = re.compile(r"\d{1,15}", re.ASCII)


class ProxyError(OSError):
    """The proxy refuses to connect, or cannot be used."""


class _ClosedError(ConnectionError):
    """A kept connection was closed before any byte of an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a service.

    Attributes:
        status: of HTTP.
        headers: by their names in lower case.
        body: until the reader returns.
    """

    status: int
    headers: Mapping[str, str]
    body: memoryview


class Http:
    """Connections to one service.

    Args:
        url: of the service; its path is that of each request.
        proxy: URL of an HTTP proxy, with its user and password if it wants them; None for none.
        ca_bundle: file of the certificates that are trusted; None for the system's.
        connect_timeout: seconds for each address of the service.
        timeout: seconds from a request to the end of its answer.

    Raises:
        ValueError: a URL that cannot be one of a service, or of a proxy.
    """

    def __init__(
        self,
        url: str,
        *,
        proxy: str | None = None,
        ca_bundle: str | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        timeout: float = TIMEOUT,
    ) -> None:
        parts = urlsplit(url)
        port = _port_of(parts, "the endpoint")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"the endpoint must be http://HOST:PORT or https://HOST:PORT, not {_without_user(url)!r}")
        self.url = url
        self._tls = parts.scheme == "https"
        self._name = parts.hostname
        self._address = parts.hostname, port or (443 if self._tls else 80)
        self.host = _host_header(parts.hostname, port, 443 if self._tls else 80)
        self._path = parts.path or "/"
        self._proxy = None if proxy is None else _Proxy.parse(proxy)
        self._ca_bundle = ca_bundle
        self._connect_timeout, self._timeout = connect_timeout, timeout
        self._context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._is_closed = False
        self._process = os.getpid()

    def post(self, headers: Mapping[str, str], body: bytes, read: Callable[[Answer], _T]) -> _T:
        """Send a request, and read its answer.

        Args:
            headers: without Host and Content-Length.
            body: as it is.
            read: sees the answer, whatever its status; returns what `post` returns.

        Raises:
            OSError: no connection, or it broke; `TimeoutError`, `ssl.SSLError`, `ProxyError` among them.
            ValueError: a header with a line end.
        """
        deadline = monotonic() + self._timeout
        request = self._request(headers, body)
        connection = self._take()
        if connection is not None:
            try:
                return self._exchange(connection, request, read, deadline)
            except _ClosedError:
                pass
        return self._exchange(self._connect(), request, read, deadline)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; those in use end with their requests, and none is kept from now on."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _request(self, headers: Mapping[str, str], body: bytes) -> bytes:
        forward = self._proxy if not self._tls else None  # with TLS the proxy only connects
        target = self._path if forward is None else f"http://{self.host}{self._path}"
        lines = [f"POST {target} HTTP/1.1", f"Host: {self.host}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if forward is not None and forward.authorization is not None:
            lines.append(f"Proxy-Authorization: {forward.authorization}")
        head = "\r\n".join(lines)
        if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
            raise ValueError("a header of the request has a line end: see the credentials")
        return head.encode("latin-1") + b"\r\n\r\n" + body

    def _exchange(self, connection: _Connection, request: bytes, read: Callable[[Answer], _T], deadline: float) -> _T:
        try:
            answer, may_stay = connection.exchange(request, deadline)
            with answer.body:
                result = read(answer)
        except BaseException:
            connection.close()
            raise
        if may_stay:
            self._give_back(connection)
        else:
            connection.close()
        return result

    def _take(self) -> _Connection | None:
        with self._lock:
            if self._process != os.getpid():
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _give_back(self, connection: _Connection) -> None:
        with self._lock:
            if self._is_closed or self._process != os.getpid() or len(self._idle) >= MAX_IDLE:
                connection.close()
                return
            if connection.is_large and sum(other.is_large for other in self._idle) >= LARGE_KEPT:
                connection.shrink()
            connection.is_kept = True
            self._idle.append(connection)

    def _connect(self) -> _Connection:
        address = self._address if self._proxy is None else self._proxy.address
        plain = socket.create_connection(address, timeout=self._connect_timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if not self._tls:
                return _Connection(plain)
            if self._proxy is not None:
                self._proxy.connect(plain, self._address, monotonic() + self._connect_timeout)
            plain.settimeout(self._connect_timeout)
            return _Connection(self._tls_context().wrap_socket(plain, server_hostname=self._name))
        except BaseException:
            plain.close()
            raise

    def _tls_context(self) -> ssl.SSLContext:
        with self._lock:
            if self._context is None:
                self._context = trusting(self._ca_bundle)
            return self._context


class _Proxy:
    def __init__(self, address: tuple[str, int], authorization: str | None) -> None:
        self.address = address
        self.authorization = authorization

    @classmethod
    def parse(cls, url: str) -> _Proxy:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = _port_of(parts, "the proxy")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"the proxy must be http://HOST:PORT, not {_without_user(url)!r}")
        authorization = None
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            remember_url(url)
            authorization = f"Basic {base64.b64encode(user.encode()).decode()}"
        return cls((parts.hostname, port or 80), authorization)

    def connect(self, plain: socket.socket, address: tuple[str, int], deadline: float) -> None:
        """Let it connect to the service.

        Raises:
            ProxyError: it does not.
        """
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        lines = [f"CONNECT {host}:{address[1]} HTTP/1.1", f"Host: {host}:{address[1]}"]
        if self.authorization is not None:
            lines.append(f"Proxy-Authorization: {self.authorization}")
        connection = _Connection(plain)
        status, _, _, _ = connection.ask("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n", deadline)
        if not 200 <= status < 300:
            raise ProxyError(f"the proxy {self.address[0]}:{self.address[1]} answered {status} to CONNECT {host}")


class _Connection:
    """A connection and its buffer.

    Attributes:
        is_kept: whether it has had an answer, so that the service may have closed it since.
    """

    def __init__(self, link: socket.socket) -> None:
        self.is_kept = False
        self._link = link
        self._buffer = bytearray(SMALL + MAX_HEADERS)

    @property
    def is_large(self) -> bool:
        return len(self._buffer) > SMALL + MAX_HEADERS

    def shrink(self) -> None:
        self._buffer = bytearray(SMALL + MAX_HEADERS)

    def close(self) -> None:
        self._link.close()

    def exchange(self, request: bytes, deadline: float) -> tuple[Answer, bool]:
        """The answer to a request, and whether the connection can be used again."""
        status, headers, begin, filled = self.ask(request, deadline)
        may_stay = headers.get("connection", "").lower() != "close"
        if headers.get("transfer-encoding", "identity").lower() != "identity":
            begin, end, filled = self._chunks(begin, filled, deadline)
        elif status in (204, 304):
            end = begin
        elif "content-length" in headers:
            end = begin + _length_of(headers["content-length"])
            filled = self._fill(begin, filled, end, deadline)
        else:
            end, may_stay = self._rest(begin, filled, deadline), False
            filled = end
        view = memoryview(self._buffer)[begin:end].toreadonly()
        return Answer(status, headers, view), may_stay and filled == end

    def ask(self, request: bytes, deadline: float) -> tuple[int, dict[str, str], int, int]:
        """Send a request; status and headers of its answer, where its body begins, and where what has come ends.

        Raises:
            ConnectionError: something else than HTTP came.
        """
        try:
            self._link.settimeout(_seconds_until(deadline))
            self._link.sendall(request)
            filled = self._receive(0, deadline)
        except (ConnectionError, ssl.SSLEOFError) as error:
            if self.is_kept:
                raise _ClosedError from error
            raise
        if not filled and self.is_kept:
            raise _ClosedError
        begin = 0
        while True:
            end = self._buffer.find(b"\r\n\r\n", begin, min(filled, MAX_HEADERS))
            if end >= 0:
                status, headers = _parse(bytes(memoryview(self._buffer)[begin:end]))
                begin = end + 4
                if status >= 200:
                    return status, headers, begin, filled
                continue
            if filled >= MAX_HEADERS:
                raise ConnectionError(f"the headers of an answer have more than {MAX_HEADERS:,} bytes")
            filled = self._more(filled, deadline)

    def _receive(self, at: int, deadline: float) -> int:
        """Receive what there is; how many bytes."""
        self._link.settimeout(_seconds_until(deadline))
        with memoryview(self._buffer) as view:
            return self._link.recv_into(view[at:])

    def _more(self, filled: int, deadline: float) -> int:
        count = self._receive(filled, deadline)
        if not count:
            raise ConnectionError("the connection was closed in the middle of an answer")
        return filled + count

    def _fill(self, begin: int, filled: int, end: int, deadline: float) -> int:
        """Receive up to a byte."""
        self._reserve(begin, filled, end)
        while filled < end:
            filled = self._more(filled, deadline)
        return filled

    def _reserve(self, begin: int, filled: int, end: int) -> None:
        if end - begin > MAX_ANSWER:
            raise ConnectionError(f"an answer has {end - begin:,} bytes, at most {MAX_ANSWER:,} are read")
        if end > len(self._buffer):
            larger = bytearray(max(end, min(2 * len(self._buffer), begin + MAX_ANSWER)))
            larger[:filled] = memoryview(self._buffer)[:filled]
            self._buffer = larger

    def _rest(self, begin: int, filled: int, deadline: float) -> int:
        """Receive until the service closes."""
        while True:
            if filled == len(self._buffer):
                self._reserve(begin, filled, filled + SMALL)
            count = self._receive(filled, deadline)
            if not count:
                return filled
            filled += count

    def _chunks(self, begin: int, filled: int, deadline: float) -> tuple[int, int, int]:
        """Receive a body in chunks, and move them together; where it begins and ends, and where what has come ends."""
        end = at = begin
        while True:
            while (line := self._buffer.find(b"\r\n", at, filled)) < 0:
                if filled - at > MAX_HEADERS:
                    raise ConnectionError("a chunk of an answer has no length")
                if filled == len(self._buffer):
                    self._reserve(begin, filled, filled + SMALL)
                filled = self._more(filled, deadline)
            size = _chunk_size(bytes(self._buffer[at:line]))
            at = line + 2
            filled = self._fill(begin, filled, at + size + 2, deadline) if size else filled
            if not size:
                return begin, end, self._skip_trailers(begin, at, filled, end, deadline)
            self._buffer[end : end + size] = self._buffer[at : at + size]
            end, at = end + size, at + size + 2

    def _skip_trailers(self, begin: int, at: int, filled: int, end: int, deadline: float) -> int:
        """Receive the lines after the last chunk; `end` if nothing follows them."""
        while True:
            line = self._buffer.find(b"\r\n", at, filled)
            if line == at:
                return end if line + 2 == filled else filled
            if line > at:
                at = line + 2
                continue
            if filled - at > MAX_HEADERS:
                raise ConnectionError("the trailers of an answer have no end")
            if filled == len(self._buffer):
                self._reserve(begin, filled, filled + SMALL)
            filled = self._more(filled, deadline)


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
        raise ConnectionError(f"the answer is not HTTP: {without_sent(first)[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        name, value = name.lower(), value.strip()
        if not separator or (name == "content-length" and headers.get(name, value) != value):
            raise ConnectionError(f"the answer has a line that is no header: {without_sent(line)[:80]!r}")
        headers[name] = value
    return int(status), headers


def _length_of(text: str) -> int:
    if not _LENGTH.fullmatch(text):
        raise ConnectionError(f"the answer has the Content-Length {without_sent(text)[:40]!r}")
    return int(text)


def _chunk_size(line: bytes) -> int:
    size = line.partition(b";")[0].strip()
    if not size or len(size) > 8 or not all(byte in b"0123456789abcdefABCDEF" for byte in size):
        raise ConnectionError(f"a chunk of the answer has the length {without_sent(line.decode('latin-1'))[:40]!r}")
    return int(size, 16)


def _seconds_until(deadline: float) -> float:
    left = deadline - monotonic()
    if left <= 0:
        raise TimeoutError("no whole answer in time")
    return left


def _host_header(name: str, port: int | None, default: int) -> str:
    host = f"[{name}]" if ":" in name else name
    return host if port in (None, default) else f"{host}:{port}"


def _port_of(parts: SplitResult, name: str) -> int | None:
    try:
        return parts.port
    except ValueError:  # its text may be a part of a password
        raise ValueError(f"{name} must be http://HOST:PORT: its port is not a number from 0 to 65535") from None


def _without_user(url: str) -> str:
    """A URL as a message may show it."""
    scheme, separator, rest = url.rpartition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"
