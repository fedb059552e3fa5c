"""A proxy before an object store that harms requests as networks and stores do: once in a while, by a seed.

no request    the connection ends, and the store has seen nothing
no answer     the store has done it, and the connection ends
late          the connection ends, and the store does it a moment later
409           the store has done nothing; another request for this object is under way
500           the store has done it, and reports a failure
503           the store has done nothing, and asks for less
hang          nothing comes; the connection ends after some seconds, which a client bears
"""

from __future__ import annotations

import http.client
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread, Timer
from typing import Any
from urllib.parse import urlsplit

FAULTS = ("no request", "no answer", "late", "409", "500", "503", "hang")
WEIGHTS = (4, 4, 4, 4, 4, 4, 1)
HANG_SECONDS = 6.0
LATE_SECONDS = (0.02, 1.5)
NOT_FORWARDED = {"connection", "keep-alive", "transfer-encoding", "proxy-connection", "expect"}
_CODES = {"409": "ConditionalRequestConflict", "500": "InternalError", "503": "SlowDown"}


class FaultProxy:
    """Forwards requests to a server, but for some.

    Args:
        upstream: its address, ``http://127.0.0.1:7070``.
        share: of the requests that something is done to.
        seed: of the choice.
    """

    def __init__(self, upstream: str, share: float, seed: int) -> None:
        self._host = urlsplit(upstream).netloc
        self._share = share
        self._chance = random.Random(seed)
        self._lock = Lock()
        self.requests = 0
        self.faults: Counter[str] = Counter()
        self.is_down = False
        """Whether every connection ends, and the store sees nothing."""
        self.url = ""

    def chosen(self, method: str) -> str | None:
        """What is done to the next request."""
        with self._lock:
            self.requests += 1
            if self.is_down:
                self.faults["down"] += 1
                return "no request"
            if self._chance.random() >= self._share:
                return None
            (fault,) = self._chance.choices(FAULTS, WEIGHTS)
            if fault == "409" and method != "PUT":
                fault = "503"
            self.faults[fault] += 1
            return fault

    def late(self) -> float:
        """Seconds."""
        with self._lock:
            return self._chance.uniform(*LATE_SECONDS)

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """The store's answer."""
        return forwarded(self._host, method, path, headers, body)


def forwarded(host: str, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
    """The answer of a store. The signature is of the name that the client has used for the host, so that one stays."""
    link = http.client.HTTPConnection(host, timeout=60)
    try:
        link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            link.putheader(name, value)
        link.endheaders(body or None)
        answer = link.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        link.close()


def answer(handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    """Give a client a store's answer."""
    handler.send_response_only(status)
    length = str(len(body))
    for name, value in headers:
        if name.lower() == "content-length":
            length = value  # of an answer to HEAD
        elif name.lower() not in NOT_FORWARDED:
            handler.send_header(name, value)
    handler.send_header("content-length", length)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


@contextmanager
def fault_proxy(upstream: str, share: float, seed: int) -> Iterator[FaultProxy]:
    """A proxy that listens at its `url`."""
    proxy = FaultProxy(upstream, share, seed)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(proxy))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits for the acknowledgement of its headers

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED}
            call = self.command, self.path, headers, body
            match proxy.chosen(self.command):
                case None:
                    answer(self, *proxy.forward(*call))
                case "409" | "503" as code:
                    self.refuse(code)
                case "500":
                    proxy.forward(*call)
                    self.refuse("500")
                case "no answer":
                    proxy.forward(*call)
                    self.close_connection = True
                case "late":
                    timer = Timer(proxy.late(), _quietly, (proxy, call))
                    timer.daemon = True
                    timer.start()
                    self.close_connection = True
                case "hang":
                    time.sleep(HANG_SECONDS)
                    self.close_connection = True
                case _:
                    self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - as http.server has them

        def refuse(self, code: str) -> None:
            text = f"<Error><Code>{_CODES[code]}</Code><Message>by the proxy</Message></Error>".encode()
            answer(self, int(code), [("content-type", "application/xml")], text)

        def log_message(self, *_: Any) -> None: ...

    return Handler


def _quietly(proxy: FaultProxy, call: Any) -> None:
    with suppress(OSError, http.client.HTTPException):
        proxy.forward(*call)
