"""Version 1; notes a hang-up and goes on waiting, ends at a request to terminate."""

import signal
import sys

import observe
from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)

    def process_records(self, records, checkpointer):
        log("process_records", len(records))

    def shutdown(self, checkpointer, reason):
        log("shutdown", reason)


def hang_up(number, frame):
    log("hang up")


def terminate(number, frame):
    log("terminate")
    sys.exit(3)


if __name__ == "__main__":
    log = observe.Log(kcl)
    signal.signal(signal.SIGHUP, hang_up)
    signal.signal(signal.SIGTERM, terminate)
    try:
        kcl.KCLProcess(Processor()).run()
    finally:
        log("finally")
