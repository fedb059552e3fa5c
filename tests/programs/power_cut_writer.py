"""A server for the tests: for each line, a process that writes a record a commit and tells how far the table is.

Not a test. Arguments: ParquetSink or DeltaSink. Lines on standard input: folder and first number, or the word "kill".
Lines on standard output: "pid N", "told N" when up to there is in the table for sure, "failed 1" when it has raised,
"ended N" with its exit status.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

import fastkcl.spark.schema  # noqa: F401 - or each fork imports pyspark for itself
from fastkcl.spark import sinks
from sink_helpers import SHARD, FakeSession, rows


def write(folder, first):
    sink = getattr(sinks, sys.argv[1])(folder)
    position = sink.open(SHARD)
    if position is not None:
        tell("told", position.sequence_number)
    while True:
        tell("told", sink.write(rows(first, first), FakeSession()).sequence_number)
        first += 1


def tell(*words):
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


while line := sys.stdin.readline():
    folder, first = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            write(folder, first)
        except BaseException:
            tell("failed", 1)
            traceback.print_exc()
        os._exit(1)
    tell("pid", child)
    sys.stdin.readline()
    os.kill(child, signal.SIGKILL)
    tell("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
