"""Closes every descriptor from 3 on in the middle of its work, as programs that become daemons do.

Arguments: which of our interfaces serves it, and its action after that.
"""

import contextlib
import io
import os
import sys
from pathlib import Path

import fastkcl
from fastkcl import dkb, processv1
from fastkcl.kclpy import kcl
from fastkcl.kclpy.v3 import processor

interface, then = sys.argv[1:3]


def close(checkpointer):
    os.closerange(3, 4096)
    if then == "opens files":  # their numbers are those of the descriptors that were closed
        for number in range(20):
            open_files.append(Path(sys.argv[3], str(number)).open("w+b", buffering=0))  # noqa: SIM115
            open_files[-1].write(b'{"action":"leaseLost"}\n')
            open_files[-1].seek(0)
    if then == "checkpoints":
        checkpointer.checkpoint()
    if then == "checkpoints and swallows":
        with contextlib.suppress(Exception):
            checkpointer.checkpoint()
    if then == "raises":
        raise ValueError("boom")


open_files = []


class Batches(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        close(checkpointer)


class Records(processor.RecordProcessorBase):
    def initialize(self, i):
        pass

    def process_records(self, i):
        close(i.checkpointer)

    def lease_lost(self, i):
        pass


if interface == "run":
    fastkcl.run(Batches(), on_error="skip")
elif interface == "drop-in":
    kcl.KCLProcess(Records()).run()
elif interface == "stitch":
    processv1.run(lambda message, stitch: close(None), ["instanceid=me", f"corepid={os.getppid()}"])
elif interface == "stage":
    stage = dkb.processor(input_type="text", output_type="text")(lambda content: close(None))
    stage.configure(["--mode", "s"])
    sys.exit(stage.run())
else:
    kcl.KCLProcess(Records(), io.StringIO(sys.argv[4])).run()
