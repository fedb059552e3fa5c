"""The Spark of the tests: one JVM with a classic session and a Connect server, for all that asks for `spark`.

A JVM takes seconds to start and half a gigabyte, so only tests about the start, death and restart of a Spark start one
of their own. The tests that use this one come last: then it is never there beside those, and what it sets in this
process (JAVA_HOME, what pyspark remembers) meets no test that has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from fastkcl.spark import LocalSpark
    from pyspark.sql import SparkSession

WARNINGS = [
    # pyspark 4.3 says so of every pandas 3 that it is used with; nothing here touches pandas.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # Sockets of py4j and channels of gRPC that their owners leave to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def uses_spark(item: pytest.Item) -> bool:
        return "spark" in getattr(item, "fixturenames", ())

    for item in filter(uses_spark, items):
        for mark in WARNINGS:
            item.add_marker(mark)
    items.sort(key=uses_spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSpark]:
    """The JVM: `spark.session` is a classic session, `spark.url` a Connect server with a token.

    The defaults of LocalSpark are under test, too: nothing is set before the start.
    """
    from fastkcl.spark import LocalSpark

    folder = tmp_path_factory.mktemp("spark")
    with (folder / "jvm.log").open("wb") as output:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)  # spark-warehouse, if anything wants one
            patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")  # as where a process with a Connect session started this
            local = LocalSpark(connect=True, output=output)
        with local:
            local.session.conf.set("spark.sql.shuffle.partitions", "2")
            yield local


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
def given(spark: LocalSpark, way: str) -> SparkSession | str:
    """What a test gives as ``spark=``: the classic session, and the server's URL."""
    if way == "classic":
        return spark.session
    assert spark.url is not None
    return spark.url


@pytest.fixture(scope="session")
def _connect_session(spark: LocalSpark) -> Iterator[Any]:
    from fastkcl.spark.session import Session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        session = Session(spark.url)
        opened = session.get()
    yield opened
    session.close()


@pytest.fixture
def session(spark: LocalSpark, way: str, request: pytest.FixtureRequest) -> SparkSession:
    """A session of each kind, the same for all tests, for DataFrames of one's own."""
    return spark.session if way == "classic" else request.getfixturevalue("_connect_session")
