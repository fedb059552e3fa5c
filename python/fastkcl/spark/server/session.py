"""Opens the Spark that a process writes to, and opens it again when its server was restarted.

    spark=                              opened                                               at the end
    ──────────────────────────────────  ───────────────────────────────────────────────────  ───────────
    a SparkSession                      nothing, it is used as it is                         left alone
    a function without arguments        its result                                           stopped
    "sc://host:15002"                   its own session on that Connect server               released
    "shared", "shared:NAME"             its own session on a Connect server that the         released; the server ends
                                        processes of this user on this host share            after the last of them
    "local[2]", "local[*]"…             Spark in a JVM of this process, one for all of its   ended after the last of
                                        processors                                           them
    None                                the address in FASTKCL_SPARK, else in SPARK_REMOTE,
                                        else "shared", as they are at the opening

A worker of the KCL has one process for each shard, and a JVM takes 0.5 GB and 5 to 7 s to start: hence "shared".

When a Connect server goes while something is written (`Session.call`): the write fails, a new session is opened as soon
as there is a server again, and the write is repeated, all for `reconnect_timeout` seconds at most. After a failed write
the server is pinged once. If it answers, the write itself has failed, and its error is raised.

Rules:

- Nothing here writes to standard output, nor does any JVM. A session that is *given* was started by somebody else: if
  that was before `fastkcl.run` moved the protocol's descriptors away, its JVM holds them. Give a function instead; it
  is called when the protocol is safe.
- Nothing waits without an end for a server that is gone or hangs (`fastkcl.spark.server.connect`).
- `close` is another thread's, and does not wait for a call that is under way.
"""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from fastkcl.checks import check_sendable
from fastkcl.spark.server import connect, in_process, shared
from fastkcl.spark.server.local import LocalSpark, interrupt_kept
from fastkcl.spark.server.settings import (
    INGEST_SETTINGS,
    SparkUnavailableError,
    apply_settings,
    in_one_line,
    require_spark,
)
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULT_RECONNECT_TIMEOUT", "Session"]

DEFAULT_RECONNECT_TIMEOUT: Final = 60.0
"""A server takes 10 to 30 s to be back."""

_ENVIRONMENT_VARIABLES: Final = ("FASTKCL_SPARK", "SPARK_REMOTE")
_DEFAULT: Final = "shared"
_ADDRESS: Final = re.compile(
    rf"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?|{shared.ADDRESS}"
    r"|sc://([^\s:/;@?#\[\]]+|\[[0-9a-fA-F:.]+\])(:(?P<port>\d{1,5}))?(/(;[A-Za-z0-9_.-]+=[^;=]*)*)?"
)
_LAST_PORT: Final = 65535
_SHOWN: Final = re.compile(
    r"(\w+://([\w.-]+|\[[\da-fA-F:.]+\])?(:\d{1,9})?|[\w.-]+:\d{1,9}|local(\[[\w*,\s]{0,8}\]?)?|shared(:[\w.-]*)?)"
    r"(?=[/;?#]|\Z)"
)
"""The beginning of an address that is no secret: not a port or a host with the form of a password."""

_SERVER_SECONDS: Final = 15.0  # at the start, for a server that is being started beside us
_PAUSE_SECONDS: Final = 0.5
_STILL_SECONDS: Final = 15.0

T = TypeVar("T")

Spark: TypeAlias = "SparkSession | str | Callable[[], SparkSession] | None"
"""The types that `Session` accepts; see the table above."""


class Session:
    """The Spark session of one processor.

    Args:
        spark: see the table of this module.
        reconnect_timeout: seconds, from its failure on, in which a write whose server has gone is tried again.

    Raises:
        ValueError: a text that is not an address, or a negative time.
        TypeError: `spark` is something else.
    """

    def __init__(self, spark: Spark = None, *, reconnect_timeout: float = DEFAULT_RECONNECT_TIMEOUT) -> None:
        self._given: SparkSession | None = None
        self._factory: Callable[[], SparkSession] | None = None
        self._address: str | None = None
        self._local: LocalSpark | None = None
        self._attachment: shared.Attachment | None = None
        self._session: SparkSession | None = None
        self._lock = threading.Lock()  # of the three above
        self._closed = False
        if not reconnect_timeout >= 0:
            raise ValueError(f"reconnect_timeout={reconnect_timeout!r}: must be seconds, 0 or more")
        self._reconnect_timeout = reconnect_timeout
        if isinstance(spark, str):
            fault = _fault("spark", spark)
            if fault is not None:
                raise ValueError(fault)
            self._address = spark
        elif callable(spark):
            self._factory = spark
        elif hasattr(spark, "createDataFrame"):
            self._given = spark
        elif spark is not None:
            raise TypeError(f"spark must be a session, a function, an address or None, not {type(spark).__name__}")

    def get(self) -> SparkSession:
        """The session, opened at the first call, with the settings for ingest.

        Raises:
            SparkUnavailableError: pyspark or Java is missing, the JVM does not start, or the server does not answer.
        """
        if self._session is None:
            require_spark()
            self._open(time.monotonic() + _SERVER_SECONDS, lambda: True)
            atexit.register(self.close)
        assert self._session is not None
        return self._session

    def call(self, function: Callable[[SparkSession], T], wanted: Callable[[], bool] = lambda: True) -> T:
        """Call a function with a session that its server knows; call it again if the server dies during the call.

        A server forgets a session after an hour without use (``spark.connect.session.manager.defaultSessionTimeout``)
        and when it is restarted; a quiet shard gets there easily.

        Args:
            function: it may be called more than once.
            wanted: asked while a server is waited for; False gives up.

        Raises:
            SparkUnavailableError: there was no server within `reconnect_timeout`, or it is not wanted any more.
            Exception: the error of `function` while its server is well, or when the time was over.
        """
        deadline: float | None = None
        while True:
            session = self.get()
            if self._connected and not self._alive(session):
                deadline = deadline or time.monotonic() + self._reconnect_timeout
                session = self._reopen(session, deadline, wanted)
            try:
                return function(session)
            except Exception as error:
                if not self._connected or not wanted():
                    raise
                alive = self._alive(session)
                if alive and not connect.is_unavailable(error):
                    raise
                deadline = deadline or time.monotonic() + self._reconnect_timeout
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                logger().warning(
                    "the write is repeated, for %.0f s at most: Spark Connect was gone: %s", left, in_one_line(error)
                )
                if alive:  # only the connection was cut; the running work is repeated here
                    session.interruptAll()

    def close(self) -> None:
        """Release the opened session, within seconds, also when the server is gone. Harmless when done before.

        Nothing is opened afterwards.
        """
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            attachment, self._attachment = self._attachment, None
            local, self._local = self._local, None
        atexit.unregister(self.close)
        if local is not None:
            in_process.release(local)
        elif session is not None and session is not self._given:
            connect.release(session)
        if attachment is not None:
            attachment.close()

    @property
    def _connected(self) -> bool:
        """Whether this is a session that can be opened again on a Connect server."""
        return self._address is not None and not self._address.startswith("local")

    def _alive(self, session: SparkSession) -> bool:
        return (self._attachment is None or self._attachment.alive) and connect.is_alive(session)

    def _open(self, deadline: float, wanted: Callable[[], bool]) -> SparkSession:
        """Open the requested session; a Connect server is waited for until `deadline`."""
        if self._given is not None:
            return self._hold(apply_settings(self._given, INGEST_SETTINGS))
        if self._factory is not None:
            with interrupt_kept():
                session = self._factory()
            return self._hold(apply_settings(session, INGEST_SETTINGS))
        if self._address is None:
            self._address = _address_of_environment()
        if not self._connected:
            local = in_process.acquire(self._address)
            return self._hold(local.session, local=local)
        still = time.monotonic() + _STILL_SECONDS
        while True:
            try:
                return self._open_connected(wanted)
            except SparkUnavailableError as error:
                now = time.monotonic()
                if now >= deadline or not wanted() or self._closed:
                    raise
                if now >= still:
                    still = now + _STILL_SECONDS
                    logger().warning("waiting for Spark, for %.0f s at most: %s", deadline - now, error)
            time.sleep(_PAUSE_SECONDS)

    def _open_connected(self, wanted: Callable[[], bool]) -> SparkSession:
        """Open a session on a Connect server, once."""
        assert self._address is not None
        if self._address.startswith("sc://"):
            return self._hold(connect.open_session(self._address))
        attachment = shared.SharedServer(self._address).attach(wanted)
        try:
            session = connect.open_session(attachment.url)
        except SparkUnavailableError:
            attachment.give_up()
            raise
        except BaseException:
            attachment.close()
            raise
        return self._hold(session, attachment=attachment)

    def _reopen(self, session: SparkSession, deadline: float, wanted: Callable[[], bool]) -> SparkSession:
        logger().warning("Spark Connect does not know the session any more, or is gone: opening a new one")
        with self._lock:
            self._session = None
            attachment, self._attachment = self._attachment, None
        if attachment is not None:
            attachment.close()
        connect.abandon(session)
        begun = time.monotonic()
        opened = self._open(deadline, wanted)
        logger().warning("a new Spark session is open after %.1f s", time.monotonic() - begun)
        return opened

    def _hold(
        self,
        session: SparkSession,
        *,
        local: LocalSpark | None = None,
        attachment: shared.Attachment | None = None,
    ) -> SparkSession:
        """Keep the opened session, unless `close` was called meanwhile."""
        with self._lock:
            self._session, self._local, self._attachment = session, local, attachment
            if not self._closed:
                return session
        self.close()
        raise SparkUnavailableError("the session is closed")


def _fault(origin: str, address: str) -> str | None:
    """The fault of the address of a Spark, None if there is none."""
    try:
        check_sendable(origin, address)
    except ValueError as error:
        return str(error)
    found = _ADDRESS.fullmatch(address)
    if found is not None and int(found["port"] or 0) <= _LAST_PORT:
        return None
    # The fault may be in the token: nothing after the host is shown, and no host that may be a password.
    known = None if "@" in address else _SHOWN.match(address)
    scheme = re.match(r"(\w+://)?", address)
    shown = known[0] if known else f"{scheme[0]}…"  # type: ignore[index]
    return (
        f"{origin}={shown!r}: expected sc://HOST:PORT[/;KEY=VALUE] of a Spark Connect server,"
        " shared[:NAME][;memory=4g], or local[*]"
    )


def _address_of_environment() -> str:
    for name in _ENVIRONMENT_VARIABLES:
        address = os.environ.get(name, "").strip()  # a file's content ends in a line feed
        if address:
            fault = _fault(name, address)
            if fault is not None:
                raise SparkUnavailableError(fault)
            return address
    return _DEFAULT
