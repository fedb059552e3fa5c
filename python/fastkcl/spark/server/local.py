"""Spark in a JVM of this process, with a Connect server for others on request.

Rules:

- The JVM writes to standard error or to the given log, never to standard output.
- It has its own session (in the sense of setsid), so that a SIGTERM to the process group, which a worker outlives
  to finish its work, does not take Spark away from it. It ends when its standard input does, and so with this process,
  however that dies.
- The handlers of signals stay whose they are; a SparkContext takes SIGINT for itself otherwise.
- It listens on the loopback interface only; its Connect server asks for a token. No message holds one.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, Self

from fastkcl.spark.server.jdk import JavaNotFoundError, use_java
from fastkcl.spark.server.settings import (
    INGEST_SETTINGS,
    TIME_ZONE_SETTING,
    SparkUnavailableError,
    require_spark,
    without_frames,
)
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

__all__ = ["LocalSpark", "interrupt_kept"]

_LOCAL_SETTINGS: Final = {
    "spark.app.name": "fastkcl",
    "spark.driver.memory": "2g",  # the most of its heap; Spark's own default is half of it
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # a daemon logs each line of a worker's standard error as an error
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_CONNECT_SERVER_SETTINGS: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}
_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # not a setting: those are seen in the process list

_END_SECONDS: Final = 20.0


class LocalSpark:
    """Spark in a JVM of this process, for a single worker, a demo or a test. One at a time. A context manager.

    Args:
        master: e.g. ``local[*]``, a thread for each CPU.
        connect: also serve Spark Connect, on the loopback interface, to clients that have `url`: on a free port. If
            this is the `url` of a server that has ended, on its port, to the same clients.
        output: where the JVM's standard output and error go: a descriptor or an open file; standard error by default.
        settings: more settings of Spark; they win.

    Raises:
        SparkUnavailableError: pyspark or Java is missing, the JVM does not start, or a Spark runs in this process.
    """

    session: SparkSession
    """A classic session."""
    java: str
    """Its Java, for people."""
    url: str | None
    """Of the Connect server, ``sc://localhost:PORT/;token=…``, to be kept as secret as the data."""

    def __init__(
        self,
        master: str = "local[*]",
        *,
        connect: bool | str = False,
        output: int | IO[bytes] = 2,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        require_spark()
        try:
            from pyspark import SparkConf, SparkContext
            from pyspark.sql import SparkSession
        except ImportError as error:  # the package pyspark-client has the name but no Spark in it
            raise SparkUnavailableError(
                "the pyspark that is installed can only reach a Connect server: give its sc:// URL,"
                " or pip install 'fastkcl[spark]'"
            ) from error
        if SparkContext._active_spark_context is not None:
            raise SparkUnavailableError("a Spark is running in this process already: give its session as spark=")
        try:
            java = use_java()
        except JavaNotFoundError as error:
            raise SparkUnavailableError(str(error)) from None
        self.java = f"Java {java.version} from {java.source}"
        # Python workers of Spark are started by name; the default, python3, can be another one than this.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf = SparkConf(loadDefaults=False)
        conf.setMaster(master)
        for part in (
            _LOCAL_SETTINGS,
            INGEST_SETTINGS,
            TIME_ZONE_SETTING,
            _CONNECT_SERVER_SETTINGS if connect else {},
        ):
            conf.setAll(list(part.items()))
        conf.setAll(list((settings or {}).items()))
        token = secrets.token_urlsafe(32)
        if isinstance(connect, str):
            address, _, token = connect.partition("/;token=")
            conf.set("spark.connect.grpc.binding.port", address.rpartition(":")[2])
        self._gateway: Any = None  # py4j has no types
        try:
            with (
                _environment(_TOKEN_VARIABLE, token if connect else None),
                _environment("SPARK_REMOTE", None),
                # Set by each Connect session for its process and the children of that; a SparkContext refuses it.
                _environment("SPARK_CONNECT_MODE_ENABLED", None),
                interrupt_kept(),
            ):
                self._launch_jvm(conf, output)
                self._context = SparkContext(conf=conf, gateway=self._gateway)
        except BaseException as error:
            self._end_jvm()
            if not isinstance(error, Exception):
                raise
            raise SparkUnavailableError(f"Spark did not start on {self.java}: {without_frames(error)}") from error
        self.session = SparkSession(self._context)
        self.url = f"sc://localhost:{self._connect_port()}/;token={token}" if connect else None

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return int(self._gateway.proc.pid)

    @property
    def alive(self) -> bool:
        """Whether its JVM runs."""
        return self._gateway is not None and self._gateway.proc.poll() is None

    def close(self) -> None:
        """Stop Spark and end its JVM. Harmless when done before, or when the JVM has died."""
        if self._gateway is None:
            return
        if self._gateway.proc.poll() is None:
            try:
                self.session.stop()
            except Exception as error:
                logger().warning("Spark did not stop by itself, its JVM is ended: %s", error)
        self._end_jvm()

    def kill(self) -> None:
        """End the JVM as a crash would, by SIGKILL."""
        if self._gateway is not None:
            self._gateway.proc.kill()
            self._gateway.proc.wait()
            self._end_jvm()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch_jvm(self, conf: SparkConf, output: int | IO[bytes]) -> None:
        from pyspark import java_gateway

        launch_gateway: Any = java_gateway.launch_gateway  # untyped
        # In a thread: an interrupt in the middle of it would leave a JVM that waits for a connection for ever.
        with ThreadPoolExecutor(max_workers=1) as pool:
            streams = {"stdout": output, "stderr": output, "start_new_session": True}
            launched = pool.submit(launch_gateway, conf, streams)
            try:
                launched.result()
            finally:
                if launched.exception() is None:
                    self._gateway = launched.result()

    def _connect_port(self) -> int:
        # The way pyspark itself finds it (pyspark.sql.connect.client.core, default_port).
        jvm: Any = self._context._jvm
        service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
        return int(getattr(service, "MODULE$").localPort())

    def _end_jvm(self) -> None:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        gateway, self._gateway = self._gateway, None
        if gateway is None:
            return
        with SparkContext._lock:  # state that pyspark keeps for the next context of this process
            SparkContext._gateway = None
            SparkContext._jvm = None
            SparkContext._active_spark_context = None  # still there if the JVM could not be asked to stop
            SparkSession._instantiatedSession = None
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def interrupt_kept() -> Iterator[None]:
    """Keeps the handler of SIGINT, which a SparkContext replaces by one that cancels all jobs.

    A worker answers its daemon to the end after a first SIGINT (`fastkcl.run`), and so its writes have to finish.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _environment(name: str, value: str | None) -> Iterator[None]:
    """Sets or removes a variable for a while."""
    before = os.environ.get(name)
    _set_variable(name, value)
    try:
        yield
    finally:
        _set_variable(name, before)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
