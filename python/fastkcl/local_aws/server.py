"""Serves `LocalAwsApp` on one port until it is stopped: hypercorn speaks HTTP/1.1 and HTTP/2 without TLS on it.

Clients of the modern daemon open HTTP/2 with prior knowledge, everything else speaks HTTP/1.1: hypercorn sees which
from the first bytes of a connection.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hypercorn.asyncio import serve as serve_hypercorn
from hypercorn.config import Config, Sockets

from fastkcl.local_aws.app import LocalAwsApp
from fastkcl.local_aws.connection import use_connections
from fastkcl.local_aws.errors import ServiceError
from fastkcl.local_aws.listener import Listener, is_out_of_resources
from fastkcl.local_aws.streams import KinesisOptions
from fastkcl.local_aws.whims import WhimOptions

__all__ = ["ListenError", "ServerOptions", "report", "serve"]

_BACKLOG = 512  # connections that wait in the kernel
_GRACE = 2.0  # seconds for requests that are under way at the end
_ANY_ADDRESS = frozenset({"", "0.0.0.0", "::"})
_YOUNG_OBJECTS = 50_000  # before garbage is looked for


class ListenError(Exception):
    """The address cannot be listened at; the message names it, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """The address, and the services.

    Attributes:
        host: address to listen at.
        port: 0 for a free one.
        names: host names by which clients may call it, besides `host` and those of loopback.
        kinesis: options of streams.
        streams: streams to make at the start, each a name and a number of shards; those that are there stay.
        state: file from which the state comes, and in which it is kept; None to forget it.
        trace: operations whose bodies go to standard error, or ``all``.
        whims: what the service does now and then.
        until_stdin_ends: end at the end of standard input as well, so not to outlive a parent that was killed.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: Sequence[str] = ()
    kinesis: KinesisOptions = field(default_factory=KinesisOptions)
    streams: Sequence[tuple[str, int]] = ()
    state: Path | None = None
    trace: frozenset[str] = frozenset()
    whims: WhimOptions = field(default_factory=WhimOptions)
    until_stdin_ends: bool = False


def serve(options: ServerOptions, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM, SIGINT, SIGHUP, or the end of standard input where that is asked for.

    Args:
        options: see there.
        on_ready: is called with the URL when connections are taken.

    Raises:
        ListenError: the address cannot be listened at.
        JournalError: the state cannot be used.
        ServiceError: a stream cannot be made.
    """
    with _listen(options.host, options.port) as listener:
        names = {options.host, *options.names} - _ANY_ADDRESS
        app = LocalAwsApp(options.kinesis, options.state, options.trace, names, options.whims)
        for name, shards in options.streams:
            try:
                app.call_kinesis("CreateStream", {"StreamName": name, "ShardCount": shards})
            except ServiceError as error:
                if error.kind != "ResourceInUseException":
                    raise
        # Present modules stay: to look through moto's modules again and again takes longer than many an answer. And an
        # answer's records, which are gone with it, are no reason to look at all.
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS)
        host, port = listener.getsockname()[:2]
        url = f"http://{'127.0.0.1' if host in _ANY_ADDRESS else host}:{port}"
        asyncio.run(_serve(app, listener, options, lambda: on_ready(url)))


def _listen(host: str, port: int) -> socket.socket:
    try:
        # SO_REUSEADDR is set: a restart need not wait for connections of the one before.
        return socket.create_server((host, port), backlog=_BACKLOG)
    except socket.gaierror as error:
        raise ListenError(f"cannot listen at {host}:{port}: {error.strerror}") from None
    except OSError as error:
        raise ListenError(f"cannot listen at {host}:{port}: {os.strerror(error.errno or 0)}") from None


async def _serve(
    app: LocalAwsApp, listener: socket.socket, options: ServerOptions, on_ready: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    listening = Listener.of(listener)
    loop.set_exception_handler(partial(report, listening))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # by nohup
            continue
        loop.add_signal_handler(number, app.ending.set)
    if options.until_stdin_ends:
        _at_end_of_stdin(loop, app.ending.set)
    config = _Config(listening)
    config.backlog = _BACKLOG
    config.loglevel = "WARNING"
    config.include_server_header = False
    config.include_date_header = False  # the answers have the service's own time
    # A daemon keeps its connections while its child works, or while this process is stopped.
    config.keep_alive_timeout = 3600
    config.h2_max_concurrent_streams = 1000
    config.h2_max_inbound_frame_size = 2**20
    config.graceful_timeout = _GRACE
    config.shutdown_timeout = _GRACE
    use_connections()
    on_ready()
    await serve_hypercorn(app, config, shutdown_trigger=app.ending.wait)


class _Config(Config):
    """Hypercorn's, with a socket that listens already."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__()
        self._listener = listener

    def create_sockets(self) -> Sockets:
        """The socket alone."""
        return Sockets([], [self._listener], [])


def report(listening: Listener, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log uncaught errors; the listener itself has logged that it is out of descriptors.

    Args:
        listening: the server's. A retry that asyncio has planned for it is no error when it is closed.
        loop: whose error it is.
        context: of asyncio.
    """
    error = context.get("exception")
    is_late_retry = isinstance(error, ValueError) and listening.fileno() < 0
    if not is_out_of_resources(error) and not is_late_retry:
        loop.default_exception_handler(context)


def _at_end_of_stdin(loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            then()

    loop.add_reader(descriptor, look)
