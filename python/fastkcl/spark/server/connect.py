"""Opens sessions on a Spark Connect server, with an end to every wait for one that is gone or hangs.

By itself the client of Connect repeats a failed call for ten minutes and more, and a call to a server that hangs has no
end. Here:

    nobody listens       a call is repeated for `_PATIENCE_SECONDS`, in which a running job is found again if only the
                         way to the server was cut; opening a session gives up at once, the caller decides
    nobody answers       gRPC asks for a sign of life every `_KEEPALIVE_SECONDS` and waits for it as long; a machine
                         that vanished and a process that was stopped are gone then
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from fastkcl import ConfigurationError
from fastkcl.checks import check_sendable
from fastkcl.masking import remember_lasting, remember_url
from fastkcl.spark.server.settings import (
    CONNECT_SETTINGS,
    INGEST_SETTINGS,
    LOOPBACK_SETTINGS,
    TIME_ZONE_SETTING,
    SparkUnavailableError,
    apply_settings,
    without_frames,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.client.retries import RetryPolicy

__all__ = ["abandon", "endpoint_of", "is_alive", "is_unavailable", "open_session", "release"]

_TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_PATIENCE_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 5.0
_KEEPALIVE_SECONDS: Final = 20.0  # a server of Spark 4.3 takes one each 10 s
_PING_SECONDS: Final = 60.0  # that gRPC waits for the answer to a ping of another kind; its own default
_CONNECT_SECONDS: Final = 10.0
_RELEASE_SECONDS: Final = 5.0


def endpoint_of(url: str) -> str:
    """Host and port, for people; no token."""
    from pyspark.sql.connect.client import DefaultChannelBuilder

    endpoint: str = DefaultChannelBuilder(url).endpoint
    return endpoint


def open_session(url: str) -> SparkSession:
    """Open a session of one's own, with the settings for ingest.

    Raises:
        SparkUnavailableError: nobody listens there, or the server does not open one.
        ConfigurationError: the client refuses the address, or no request can carry the token.
    """
    from pyspark.errors import PySparkException

    _check_token()
    remember_url(url)
    with _address_read():
        endpoint = endpoint_of(url)
        _check_listener(endpoint)
        session = _unopened(url)
        settings = INGEST_SETTINGS | CONNECT_SETTINGS | TIME_ZONE_SETTING
        if endpoint.rpartition(":")[0] in _LOOPBACK:
            settings |= LOOPBACK_SETTINGS
        try:
            apply_settings(session, settings)
        except PySparkException as error:
            session.client.close()
            raise SparkUnavailableError(
                f"the server at {endpoint} opens no session of Spark Connect: {without_frames(error)}"
            ) from None
        except (ValueError, TypeError):  # gRPC's, of a parameter
            session.client.close()
            raise
    session.client.set_retry_policies([_retry_policy()])
    return session


def _check_token() -> None:
    """Look at the token that the client takes from the environment.

    Raises:
        ConfigurationError: no request can carry it.
    """
    token = os.environ.get(_TOKEN_VARIABLE, "")
    try:
        check_sendable(_TOKEN_VARIABLE, token.strip(), is_header=True)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    remember_lasting(token.strip())
    if token != token.strip():
        os.environ[_TOKEN_VARIABLE] = token.strip()


def _unopened(url: str) -> SparkSession:
    """A session that its server does not know yet."""
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
    from pyspark.sql.connect.session import SparkSession as Connected

    options = {
        # Seconds that a try to connect may take, and the longest pause between two of them.
        "grpc.min_reconnect_backoff_ms": _CONNECT_SECONDS,
        "grpc.max_reconnect_backoff_ms": _PAUSE_SECONDS,
        "grpc.http2.ping_timeout_ms": _PING_SECONDS,
    }
    if "grpc_keepalive_" not in url:
        options |= {"grpc.keepalive_time_ms": _KEEPALIVE_SECONDS, "grpc.keepalive_timeout_ms": _KEEPALIVE_SECONDS}
    builder = DefaultChannelBuilder(url, [(name, int(seconds * 1000)) for name, seconds in options.items()])
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # for pyspark.sql.functions; pyspark's own builder does it as well
    session = cast("SparkSession", Connected.builder.channelBuilder(builder).create())
    # pyspark's own farewell at the end of the process has no bound, and asks a server that is gone again and again.
    atexit.unregister(getattr(session.client, "_on_exit", session.stop))
    if hasattr(ExecutePlanResponseReattachableIterator, "shutdown"):
        session.client.close = partial(_close_channel, session.client)  # type: ignore[method-assign]
    session.client.set_retry_policies([])
    return session


def _close_channel(client: SparkConnectClient) -> None:
    """What `SparkConnectClient.close` does, but for the threads that all sessions of a process share.

    Before PySpark 4.2 it ends them, and waits until they have ended. A call of another session fails then ("cannot
    schedule new futures after shutdown"). When a session is collected just while gRPC begins a call, both wait for
    each other.
    """
    client._channel.close()
    client._closed = True


@contextlib.contextmanager
def _address_read() -> Iterator[None]:
    """Errors of the client about a part of the address, which may be secret, as are the values in their texts."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"the client of Spark Connect refuses a part of the address ({type(error).__name__}): correct the"
            " KEY=VALUE, or the host, of FASTKCL_SPARK, SPARK_REMOTE or spark="
        ) from None


def is_alive(session: SparkSession) -> bool:
    """Whether the server answers and still has the session; asked once."""
    policies = session.client.get_retry_policies()
    session.client.set_retry_policies([])
    try:
        session.conf.get("spark.sql.session.timeZone")
    except Exception:
        return False
    session.client.set_retry_policies(policies)
    return True


def is_unavailable(error: BaseException) -> bool:
    """Whether an exception, or its cause, means that the server could not be reached."""
    seen: BaseException | None = error
    while seen is not None:
        if any(f"StatusCode.{code}" in str(seen) for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def abandon(session: SparkSession) -> None:
    """Let go of a session whose server is gone or has forgotten it; nothing is waited for."""
    threading.Thread(target=session.client.close, daemon=True, name="fastkcl-abandon-session").start()


def release(session: SparkSession) -> None:
    """Release a session, once, within seconds. That can hang; a worker has to end when its daemon has."""
    if type(session).__module__.startswith("pyspark.sql.connect."):  # a classic one raises when asked for its client
        session.client.set_retry_policies([])
    farewell = threading.Thread(target=session.stop, daemon=True, name="fastkcl-release-session")
    farewell.start()
    farewell.join(_RELEASE_SECONDS)


def _check_listener(endpoint: str) -> None:
    """Raise at once an error that gRPC would retry for long.

    Raises:
        SparkUnavailableError: nobody listens there.
    """
    if any(os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")):
        return  # the client will not go there itself
    host, port = endpoint.removeprefix("[").rsplit(":", 1)
    try:
        socket.create_connection((host.removesuffix("]"), int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise SparkUnavailableError(
            f"no Spark Connect server answers at {endpoint}: {error}. Start one there"
            " (sbin/start-connect-server.sh of Spark), or correct FASTKCL_SPARK, SPARK_REMOTE or spark="
        ) from None


def _retry_policy() -> RetryPolicy:
    """Which failed calls the client of Connect repeats, and for how long."""
    from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicyState

    class State(RetryPolicyState):
        """Counts seconds, too: a try at a server that hangs takes long."""

        deadline: float | None = None

        def next_attempt(self, *exception: BaseException | None) -> int | None:
            now = time.monotonic()
            if self.deadline is None:
                self.deadline = now + _PATIENCE_SECONDS
            pause: int | None = None if now > self.deadline else super().next_attempt(*exception)
            return pause

    class Policy(DefaultPolicy):
        """The default's errors, with other pauses."""

        def to_state(self) -> RetryPolicyState:
            return State(self)

    pause = int(_PAUSE_SECONDS * 1000)
    policy = Policy(max_backoff=pause)
    policy.max_server_retry_delay = pause  # no argument in every version
    return policy
