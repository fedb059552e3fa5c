"""Version 1; a checkpoint at the end of each batch."""

import observe
from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", observe.show(shard_id))

    def process_records(self, records, checkpointer):
        log("process_records", observe.records(records), observe.show(checkpointer))
        log("checkpoint", observe.attempt(checkpointer.checkpoint))

    def shutdown(self, checkpointer, reason):
        log("shutdown", observe.show(checkpointer), observe.show(reason))
        log("checkpoint", observe.attempt(checkpointer.checkpoint))


if __name__ == "__main__":
    log = observe.Log(kcl)
    log("returned", observe.show(kcl.KCLProcess(Processor()).run()))
