"""Opens the Spark that a process writes to: a session given, a Connect server, or one of its own.

    spark=                              what is opened                                       at the end
    ──────────────────────────────────  ───────────────────────────────────────────────────  ───────────
    a SparkSession                      nothing, it is used as it is                         left alone
    a function without arguments        what it returns                                      stopped
    "sc://host:15002"                   a session of its own on that Connect server          released
    "local[2]", "local[*]"…             Spark in a JVM of this process                       ended
    None                                the URL in FASTKCL_SPARK, else in SPARK_REMOTE,
                                        else "local[*]", as they are at the opening

A worker of the KCL has one process for each shard, a JVM takes 0.5 GB and 5 to 7 s to start: with more than a shard
or two point them at one Connect server for the host or the cluster.

Rules:

- Nothing here writes to standard output, nor does the JVM: its output goes to standard error. A session that is
  *given* was started by somebody else: if that was before `fastkcl.run` moved the protocol's descriptors away, its
  JVM holds them. Give a function instead; it is called when the protocol is safe.
- The JVM has a session (in the sense of setsid) of its own, so that a SIGTERM to the process group, which the worker
  outlives to finish its work, does not take Spark away from it. It ends when its standard input does, and so with
  this process, however that dies.
- The handlers of signals stay whose they are; a SparkContext takes SIGINT for itself otherwise.
- A JVM started here listens on the loopback interface only; its Connect server asks for a token. No message holds one.
- Nothing waits without an end for a server that is gone: the client of Connect gives up within a minute.
"""

from __future__ import annotations

import atexit
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Final, Self, TypeAlias

from fastkcl import ConfigurationError
from fastkcl.spark.jdk import JavaNotFoundError, use_java
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client.retries import RetryPolicy

__all__ = ["MAX_CONNECT_BYTES", "LocalSpark", "Session", "SparkUnavailableError", "without_frames"]

MAX_CONNECT_BYTES: Final = 120_000_000
"""Bytes of a table up to which Spark Connect sends it inside the plan; the client's limit is 128 MiB a message."""

# Measured on Spark 4.3 (docs/spark.md).
_INGEST_SETTINGS: Final = {
    # Classic, default 48 MB: below it, rows are copied one by one on the driver; 0 is 1.6 times faster.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    # Connect, default 1 MiB: above it, a table is uploaded as an artifact that the server keeps as long as the session.
    "spark.sql.session.localRelationCacheThreshold": str(MAX_CONNECT_BYTES),
    # Default INT96: other readers take that for nanoseconds, which end in the year 2262, of no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_TIME_ZONE_SETTING: Final = {"spark.sql.session.timeZone": "UTC"}
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

_ENVIRONMENT_VARIABLES: Final = ("FASTKCL_SPARK", "SPARK_REMOTE")
_LOCAL: Final = "local[*]"
_ADDRESS: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?"
    r"|sc://([^\s:/;@\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d+))?(/(;[^;=]+=[^;=]*)*)?"
)
_LAST_PORT: Final = 65535

# The client's own patience is 10 minutes and more; the daemon waits meanwhile, and so does who wants to stop it.
_RETRIES: Final = 7  # after 0.05, 0.2, 0.8, 3.2, 10, 10 and 10 s
_RETRY_PAUSE_SECONDS: Final = 10.0
_SERVER_SECONDS: Final = 15.0  # for a server that is being started beside us
_SERVER_PAUSE_SECONDS: Final = 0.5
_RELEASE_SECONDS: Final = 5.0
_END_SECONDS: Final = 20.0

Spark: TypeAlias = "SparkSession | str | Callable[[], SparkSession] | None"
"""What `Session` accepts; see the table above."""


class SparkUnavailableError(ConfigurationError):
    """Spark is not installed or does not start. `str()` says what to do."""


class Session:
    """The Spark session of one processor.

    Args:
        spark: see the table of this module.

    Raises:
        ValueError: a text that is neither an ``sc://`` URL nor ``local…``.
    """

    def __init__(self, spark: Spark = None) -> None:
        self._given: SparkSession | None = None
        self._factory: Callable[[], SparkSession] | None = None
        self._url: str | None = None
        self._local: LocalSpark | None = None
        self._session: SparkSession | None = None
        if isinstance(spark, str):
            fault = _fault("spark", spark)
            if fault is not None:
                raise ValueError(fault)
            self._url = spark
        elif callable(spark):
            self._factory = spark
        elif hasattr(spark, "createDataFrame"):
            self._given = spark
        elif spark is not None:
            raise TypeError(f"spark must be a session, a function, an sc:// URL or None, not {type(spark).__name__}")

    def get(self) -> SparkSession:
        """The session, opened at the first call, with the settings for ingest.

        Raises:
            SparkUnavailableError: pyspark or Java is missing, the JVM does not start, or the server does not answer.
        """
        if self._session is None:
            self._session = self._open()
            atexit.register(self.close)
        return self._session

    def usable(self) -> SparkSession:
        """The session; a new one on the same Connect server if that does not know the old one any more.

        A server forgets a session after an hour without use (``spark.connect.session.manager.defaultSessionTimeout``)
        and when it is restarted; a quiet shard gets there easily. To be called before anything is written.

        Raises:
            SparkUnavailableError: the server does not answer.
        """
        session = self.get()
        if self._url is None or self._local is not None:
            return session
        try:
            session.conf.get("spark.sql.session.timeZone")
        except Exception as error:
            logger().warning("opening a new Spark session, the old one fails: %s", without_frames(error))
        else:
            return session
        self.close()
        return self.get()

    def close(self) -> None:
        """Release what `get` opened, within seconds, also when the server is gone. Harmless when done before."""
        session, self._session = self._session, None
        atexit.unregister(self.close)
        if session is None or session is self._given:
            return
        if self._local is not None:
            self._local.close()
            self._local = None
            return
        if self._url is not None:
            session.client.set_retry_policies([])  # a farewell is said once
        # It can hang all the same; a worker has to end when its daemon has.
        farewell = threading.Thread(target=session.stop, daemon=True, name="fastkcl-release-session")
        farewell.start()
        farewell.join(_RELEASE_SECONDS)

    def _open(self) -> SparkSession:
        _require_spark()
        if self._given is not None:
            return _prepare(self._given, _INGEST_SETTINGS)
        if self._factory is not None:
            with _interrupt_kept():
                session = self._factory()
            return _prepare(session, _INGEST_SETTINGS)
        if self._url is None:
            self._url = _address_of_environment()
        if self._url.startswith("sc://"):
            return _connect(self._url)
        self._local = LocalSpark(self._url)
        return self._local.session


class LocalSpark:
    """Spark in a JVM of this process, for a single worker, a demo or a test. One at a time. A context manager.

    Args:
        master: e.g. ``local[*]``, a thread for each CPU.
        connect: also serve Spark Connect, on the loopback interface, to whoever has `url`: on a free port, or if this
            is the `url` of one that has ended, where that was, to the same clients.
        output: where the JVM's standard output and error go: a descriptor or an open file; standard error by default.
        settings: more settings of Spark; they win.

    Raises:
        SparkUnavailableError: pyspark or Java is missing, the JVM does not start, or a Spark runs in this process.
    """

    session: SparkSession
    """A classic session."""
    java: str
    """What it runs on, for people."""
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
        _require_spark()
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
            _INGEST_SETTINGS,
            _TIME_ZONE_SETTING,
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
                _interrupt_kept(),
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
        with SparkContext._lock:  # what pyspark keeps for the next context of this process
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


def _fault(origin: str, address: str) -> str | None:
    """What is wrong with the address of a Spark, None if nothing is."""
    found = _ADDRESS.fullmatch(address)
    if found is not None and int(found["port"] or 0) <= _LAST_PORT:
        return None
    shown = address.partition(";")[0]  # a token may follow
    return f"{origin}={shown!r}: expected sc://HOST:PORT[/;KEY=VALUE] of a Spark Connect server, or {_LOCAL}"


def _address_of_environment() -> str:
    for name in _ENVIRONMENT_VARIABLES:
        address = os.environ.get(name)
        if address:
            fault = _fault(name, address)
            if fault is not None:
                raise SparkUnavailableError(fault)
            return address
    return _LOCAL


def _connect(url: str) -> SparkSession:
    """Open a session on a Connect server.

    Raises:
        SparkUnavailableError: it does not answer, or refuses.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    endpoint = _wait_for_server(url)
    session = SparkSession.builder.remote(url).create()
    session.client.set_retry_policies([_retry_policy()])
    try:
        return _prepare(session, {**_INGEST_SETTINGS, **_TIME_ZONE_SETTING})
    except PySparkException as error:
        session.client.close()  # or it asks the server once more when the process ends
        raise SparkUnavailableError(
            f"what answers at {endpoint} opens no session of Spark Connect: {without_frames(error)}"
        ) from error


def _retry_policy() -> RetryPolicy:
    """Which failed calls the client of Connect repeats, and for how long: less than a minute where nobody listens."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    pause = int(_RETRY_PAUSE_SECONDS * 1000)
    policy = DefaultPolicy(max_retries=_RETRIES, max_backoff=pause)
    policy.max_server_retry_delay = pause  # no argument in every version
    return policy


def without_frames(error: BaseException) -> str:
    """What Java says, without where in Java it was said."""
    return re.sub(r"\s+(at \S+\(|JVM stacktrace:).*", "", str(error), flags=re.DOTALL)


def _wait_for_server(url: str) -> str:
    """Fail in seconds where the client of Connect would try a wrong address for ten minutes without a word.

    Returns:
        Host and port.

    Raises:
        SparkUnavailableError: nobody listens there.
    """
    from pyspark.sql.connect.client import DefaultChannelBuilder

    endpoint: str = DefaultChannelBuilder(url).endpoint
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return endpoint  # the client will not go there itself
    host, port = endpoint.removeprefix("[").rsplit(":", 1)
    deadline = time.monotonic() + _SERVER_SECONDS
    while True:
        try:
            socket.create_connection((host.removesuffix("]"), int(port)), timeout=_SERVER_SECONDS).close()
            return endpoint
        except OSError as error:
            if time.monotonic() > deadline:
                raise SparkUnavailableError(
                    f"no Spark Connect server answers at {endpoint}: {error}. Start one there"
                    " (sbin/start-connect-server.sh of Spark), or correct FASTKCL_SPARK, SPARK_REMOTE or spark="
                ) from None
        time.sleep(_SERVER_PAUSE_SECONDS)


@contextmanager
def _interrupt_kept() -> Iterator[None]:
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


def _require_spark() -> None:
    if not sys.warnoptions:
        # pyspark says so of itself wherever pandas 3 is installed; no records go that way.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    for name in ("pyspark", "pyarrow"):
        try:
            import_module(name)
        except ImportError as error:
            raise SparkUnavailableError(f"{name} is not installed: pip install 'fastkcl[spark]'") from error


def _prepare(session: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
