"""The process that keeps a shared Spark Connect server as long as somebody is attached: `fastkcl.spark.server.shared`.

    python -m fastkcl.spark.server.keeper LISTENER_FD FOLDER STEM HEAP LINGER

It has the JVM as a child, which ends with it, however it ends. Each client that connects gets one line of JSON,
``{"url": …, "pid": …}``, or ``{"error": …}`` if Spark did not start, and nothing else, until it leaves. A client that
sends anything has given Spark up: no other client may find it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from fastkcl.portable import is_linux
from fastkcl.spark.server.local import LocalSpark
from fastkcl.spark.server.settings import SparkUnavailableError
from fastkcl.spark.server.shared import is_ours, lock_file
from fastkcl.stdio.log import logger

_TICK_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 20.0


class Keeper:
    """Accepts clients until there have been none for a while, or Spark has gone.

    Args:
        listener: Unix socket in `folder`, named after `stem`; clients may be waiting already.
        folder: of lock and socket.
        stem: of their names.
        linger: seconds without a client after which the server ends.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        listener: socket.socket,
        folder: Path,
        stem: str,
        linger: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._folder = folder
        self._stem = stem
        self._linger = linger
        self._clock = clock
        self._listening = True
        self._clients: set[socket.socket] = set()
        self._selector = selectors.DefaultSelector()

    def serve(self, spark: LocalSpark) -> None:
        """Send the address of Spark to clients, until the last client or Spark has ended."""
        answer = {"url": spark.url, "pid": os.getpid()}
        process = _descriptor(spark.pid)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        if process is not None:
            self._selector.register(process, selectors.EVENT_READ)
        idle_since = self._clock()
        while True:
            ready = self._selector.select(_TICK_SECONDS)
            if not spark.alive if process is None else any(key.fileobj == process for key, _ in ready):
                logger().error("the JVM of the shared Spark server has ended")
                self.refuse("the JVM of the shared Spark server has ended")
                return
            for key, _ in ready:
                if key.fileobj is self._listener:
                    self._accept(answer)
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
            if self._clients:
                idle_since = self._clock()
            elif self._clock() - idle_since >= self._linger and self._ended(answer):
                return

    def refuse(self, why: str) -> None:
        """Answer all waiting clients that there will be no server, and stop listening."""
        if not self._listening:
            return
        with lock_file(self._folder / f"{self._stem}.lock"):
            self._listener.setblocking(False)
            while self._accept({"error": why}):
                pass
            self._stop_listening()

    def close(self) -> None:
        """Let go of the clients that are left."""
        for client in self._clients:
            client.close()
        self._selector.close()

    def hurry(self, _number: int, _frame: FrameType | None) -> None:
        """Stop waiting for new clients, because the keeper has to end."""
        self._linger = 0.0

    def _ended(self, answer: Mapping[str, object]) -> bool:
        """Close if nobody has come while the lock was not ours."""
        if not self._listening:
            return True
        with lock_file(self._folder / f"{self._stem}.lock"):
            if self._accept(answer):
                return False
            self._stop_listening()
            return True

    def _accept(self, answer: Mapping[str, object]) -> bool:
        """Answer the next client in the queue, if there is one."""
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return False
        client.setblocking(False)
        try:
            if not is_ours(client):
                raise PermissionError
            client.sendall(json.dumps(answer).encode() + b"\n")
        except OSError:  # it has gone already
            client.close()
            return True
        self._clients.add(client)
        self._selector.register(client, selectors.EVENT_READ)
        return True

    def _hear(self, client: socket.socket) -> None:
        given_up = False
        with suppress(OSError):
            given_up = client.recv(1) != b""
        if given_up and self._listening:
            logger().error("a client has given Spark up, which does not answer it: nobody finds this server any more")
            with lock_file(self._folder / f"{self._stem}.lock"):
                self._stop_listening()
            self._linger = 0.0
        self._selector.unregister(client)
        self._clients.remove(client)
        client.close()

    def _stop_listening(self) -> None:
        """Under the lock. Who has connected and was not accepted starts the next server."""
        self._listening = False
        with suppress(KeyError):
            self._selector.unregister(self._listener)
        (self._folder / f"{self._stem}.sock").unlink(missing_ok=True)
        self._listener.close()


def _descriptor(pid: int) -> int | None:
    """Is ready for reading when a process has ended. None where only looks at each tick tell.

    That is elsewhere than on Linux, before Linux 5.3, and in a sandbox that does not know the call.
    """
    if not is_linux():
        return None
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def main() -> None:
    """Leave the process that has started this one, then start Spark and serve."""
    descriptor, folder, stem, heap, linger = sys.argv[1:]
    if os.fork():
        os._exit(0)
    keeper = Keeper(socket.socket(fileno=int(descriptor)), Path(folder), stem, float(linger))
    # A JVM that inherits this does not take the signal for itself either.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = {
        "spark.driver.memory": heap,
        # A JVM whose heap was too small is no server any more: the next write starts another one.
        "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
    }
    try:
        spark = LocalSpark(connect=True, settings=settings)
    except SparkUnavailableError as error:
        logger().error("%s", error)
        keeper.refuse(str(error))
        sys.exit(1)
    signal.signal(signal.SIGTERM, keeper.hurry)
    keeper.serve(spark)
    # It may hang, and could not be stopped then.
    killer = threading.Timer(_STOP_SECONDS, os.kill, (spark.pid, signal.SIGKILL))
    killer.daemon = True
    killer.start()
    spark.close()


if __name__ == "__main__":
    main()
