"""The Spark of the tests: one JVM with a Connect server, for all that ask for `spark`, in all workers.

A JVM takes seconds to start and half a gigabyte, so only tests about the start, death and restart of a Spark start one
of their own. Classic sessions share the JVM, too: this process attaches to its gateway, as notebooks do. Views and
settings are then this process's own; tables of the catalog are everybody's, so each test names its own.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from run_folder import spark_options
from services import shared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WARNINGS = [
    # pyspark 4.3 says so of every pandas 3 that it is used with; nothing here touches pandas.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # Sockets of py4j and channels of gRPC that their owners leave to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            for mark in WARNINGS:
                item.add_marker(mark)


class SharedSpark:
    """The JVM of all tests, as this process has it.

    Attributes:
        url: of its Connect server, with the token.
        pid: of the JVM; for looking, not for signals.
        facts: what the process that started it has reported (programs/service.py).
        session: a classic session with views and settings of this process.
    """

    def __init__(self) -> None:
        self.facts = said = shared("spark")
        self.url: str = said["url"]
        self.pid: int = said["pid"]
        self._gateway: Any = None
        self.session: SparkSession = self._attach(said["port"], said["secret"])

    def _attach(self, port: int, secret: str) -> SparkSession:
        from pyspark import SparkConf, SparkContext, java_gateway
        from pyspark.sql import SparkSession

        launch: Any = java_gateway.launch_gateway  # untyped
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYSPARK_GATEWAY_PORT", str(port))
            patch.setenv("PYSPARK_GATEWAY_SECRET", secret)
            patch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
            self._gateway = launch()
            running = self._gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
            java: Any = self._gateway.jvm.JavaSparkContext(running)
            context = SparkContext(gateway=self._gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
            default = self._gateway.jvm.SparkSession.getDefaultSession().get()
            session = SparkSession(context, jsparkSession=default.newSession())
        session.conf.set("spark.sql.shuffle.partitions", "2")
        return session

    def close(self) -> None:
        """Let go of the JVM, which goes on: `shutdown` of the gateway would close it to all other processes."""
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        context: Any = self.session.sparkContext
        context._accumulatorServer.shutdown()
        self._gateway.close(keep_callback_server=True)
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = None


@pytest.fixture(scope="session")
def spark() -> Iterator[SharedSpark]:
    """The JVM: `spark.session` is a classic session, `spark.url` a Connect server with a token."""
    from fastkcl.spark.server.local import interrupt_kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        with interrupt_kept():
            made = SharedSpark()
        yield made
        made.close()


@pytest.fixture
def connect_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark marks a process as a Connect client for good; here it must be one for a test only."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


@pytest.fixture(params=["classic", "connect"])
def way(request: pytest.FixtureRequest) -> Literal["classic", "connect"]:
    """Has a test run on both, and pyspark's functions make what that one takes."""
    if request.param == "connect":
        request.getfixturevalue("connect_mode")
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def given(spark: SharedSpark, way: str) -> SparkSession | str:
    """What a test gives as ``spark=``: the classic session, and the server's URL."""
    return spark.session if way == "classic" else spark.url


@pytest.fixture(scope="session")
def _connect_session(spark: SharedSpark) -> Iterator[Any]:
    from fastkcl.spark.server.session import Session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = Session(spark.url)
        opened = session.get()
    yield opened
    session.close()


@pytest.fixture
def session(spark: SharedSpark, way: str, request: pytest.FixtureRequest) -> SparkSession:
    """A session of each kind, the same for all tests of a worker, for DataFrames of one's own."""
    return spark.session if way == "classic" else request.getfixturevalue("_connect_session")


@pytest.fixture
def mortal_jvms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that kills JVMs: they leave their temporary files behind, so these are in the test's folder."""
    folder = tmp_path / "jvm-tmp"
    folder.mkdir()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", spark_options(folder))


_numbers = itertools.count()


@pytest.fixture
def new_table(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Names for tables of the catalog that nobody else has."""
    test = re.sub(r"\W+", "_", request.node.originalname or request.node.name)[:40]
    return lambda: f"default.{test}_{os.getpid()}_{next(_numbers)}"
