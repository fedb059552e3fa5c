"""One Spark in this process for all of its processors that ask for the same master.

A process has one SparkContext, and `fastkcl.kinesis.run_processors` has a processor for each shard: the first of them
starts the JVM, the others use it, and it ends after the last.

Rules: a processor that asks waits while it starts. Another master while it runs is refused, as `LocalSpark` does.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from fastkcl.spark.server.local import LocalSpark

__all__ = ["acquire", "release"]


class _Running(NamedTuple):
    spark: LocalSpark
    master: str
    pid: int  # of this process: a forked child has none of it


_lock = threading.Lock()
_running: _Running | None = None
_users = 0


def acquire(master: str) -> LocalSpark:
    """The Spark of this process, started if there is none; `release` it.

    Args:
        master: e.g. ``local[2]``.

    Raises:
        SparkUnavailableError: see `LocalSpark`.
    """
    global _running, _users
    with _lock:
        if _running is not None and (_running.pid != os.getpid() or not _running.spark.alive):
            if _running.pid == os.getpid():
                _running.spark.close()  # remains of a JVM that died
            _running, _users = None, 0
        if _running is None:
            _running = _Running(LocalSpark(master), master, os.getpid())
        elif _running.master != master:
            return LocalSpark(master)
        _users += 1
        return _running.spark


def release(spark: LocalSpark) -> None:
    """Release the result of `acquire`; the last one ends it."""
    global _running, _users
    with _lock:
        if _running is None or _running.spark is not spark:
            spark.close()
            return
        _users -= 1
        if not _users:
            _running = None
            spark.close()
