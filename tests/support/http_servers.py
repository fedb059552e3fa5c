"""Servers of HTTP/1.1 that say whatever a test wants."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[socket.socket, int], None]


def request_of(link: socket.socket) -> bytes:
    """A whole request; nothing at the end of the connection."""
    seen = b""
    while b"\r\n\r\n" not in seen:
        data = link.recv(65536)
        if not data:
            return b""
        seen += data
    head, _, body = seen.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")]
    length = int(lengths[0]) if lengths else 0
    while len(body) < length:
        body += link.recv(65536)
    return head + b"\r\n\r\n" + body


def page(status: int, body: bytes, header: str = "") -> bytes:
    """A whole answer."""
    length = "" if status == 204 else f"Content-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status} X\r\n{length}{header}\r\n".encode() + body


@contextmanager
def server(talk: Talk, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that has `talk` with each connection, which is given its number; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    links: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(link: socket.socket, number: int) -> None:
        try:
            if context is not None:
                link = context.wrap_socket(link, server_side=True)
                links.append(link)
            talk(link, number)
        except OSError:
            pass
        finally:
            link.close()

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            links.append(link)
            threads.append(threading.Thread(target=serve, args=(link, len(threads))))
            threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for link in links:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()


def answering(*answers: bytes) -> Talk:
    """Gives these answers on each connection, and closes it."""

    def talk(link: socket.socket, number: int) -> None:
        for answer in answers:
            if not request_of(link):
                return
            link.sendall(answer)

    return talk
