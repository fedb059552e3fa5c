"""Version 1; ends the process in the middle of a batch."""

import sys

import observe
from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)

    def process_records(self, records, checkpointer):
        log("process_records", observe.records(records))
        if records:
            log("checkpoint", observe.attempt(checkpointer.checkpoint, records[0].sequence_number))
            sys.exit(7)

    def shutdown(self, checkpointer, reason):
        log("shutdown")


if __name__ == "__main__":
    log = observe.Log(kcl)
    try:
        kcl.KCLProcess(Processor()).run()
    finally:
        log("finally")
