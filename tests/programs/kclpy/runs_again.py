"""Obeys its records, and runs again whatever has left run(): ``runs_again.py LOG WAY [BETWEEN]``.

Records are Python, and so is BETWEEN, which is done between two runs. ``new`` makes another KCLProcess for each run,
``text`` one of a class that handles lines by itself, ``new text`` such a one for each run, ``same`` is one of ours.
"""

import os
import subprocess
import sys
import threading
import time

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

MOST_RUNS = int(os.environ.get("MOST_RUNS", "5"))
NAMES = {module.__name__: module for module in (os, subprocess, sys, threading, time)}


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", initialize_input.shard_id)

    def process_records(self, process_records_input):
        checkpointer = process_records_input.checkpointer
        for record in process_records_input.records:
            source = record.binary_data.decode()
            log("record", source[:60])
            exec(source, NAMES | {"checkpointer": checkpointer})

    def lease_lost(self, lease_lost_input):
        log("lease_lost")

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested")


class OwnLines(kcl.KCLProcess):
    def _handle_a_line(self, line):
        super()._handle_a_line(line)


def main(way, between="pass"):
    make = OwnLines if "text" in way else kcl.KCLProcess
    process = make(Processor())
    for _ in range(MOST_RUNS):
        try:
            process.run()
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            log("left", error.code if isinstance(error, SystemExit) else isinstance(error, ValueError))
            print("left by", type(error).__name__, error, file=sys.stderr, flush=True)
            exec(between, NAMES | {"process": process})
        else:
            log("returned")
            return
        if "new" in way:
            process = make(Processor())


if __name__ == "__main__":
    log = observe.Log(kcl)
    main(*sys.argv[2:])
