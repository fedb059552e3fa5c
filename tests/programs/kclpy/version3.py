"""Version 3; several checkpoints in a batch, with and without sub-sequence numbers, the last one from a thread."""

from threading import Thread

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        records = process_records_input.records
        log("process_records", observe.message(process_records_input), observe.records(records))
        checkpointer = process_records_input.checkpointer
        for record in records[:: max(len(records) // 3, 1)]:
            position = record.sequence_number, record.sub_sequence_number
            log("checkpoint", position, observe.attempt(checkpointer.checkpoint, *position))
        thread = Thread(target=lambda: log("checkpoint", observe.attempt(checkpointer.checkpoint)))
        thread.start()
        thread.join()

    def lease_lost(self, lease_lost_input):
        log("lease_lost", observe.message(lease_lost_input))

    def shard_ended(self, shard_ended_input):
        log("shard_ended", observe.message(shard_ended_input))
        log("checkpoint", observe.attempt(shard_ended_input.checkpointer.checkpoint))

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested", observe.message(shutdown_requested_input))
        log("checkpoint", observe.attempt(shutdown_requested_input.checkpointer.checkpoint))


if __name__ == "__main__":
    log = observe.Log(kcl)
    log("returned", observe.show(kcl.KCLProcess(Processor()).run()))
