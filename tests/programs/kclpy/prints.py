"""Prints before, during and after the dialogue, with and without a line feed.

Text that begins with a capital word is still held back by Python when the dialogue begins, or printed later.
"""

import observe
from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)
        print("DURING initialize.")

    def process_records(self, records, checkpointer):
        print("DURING process_records", len(records), end="")
        log("checkpoint", observe.attempt(checkpointer.checkpoint))
        print("DURING process_records, again.")

    def shutdown(self, checkpointer, reason):
        print("DURING shutdown", end="")
        log("checkpoint", observe.attempt(checkpointer.checkpoint))


if __name__ == "__main__":
    log = observe.Log(kcl)
    print("before,", '{"action":', "and shown", end="", flush=True)
    print("BEFORE, and held back.")
    kcl.KCLProcess(Processor()).run()
    print("AFTER it", end="")
