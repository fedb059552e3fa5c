"""Version 2; checkpoints at a sequence number, in the middle of each batch and when it is asked to stop."""

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor


class Processor(processor.RecordProcessorBase):
    def __init__(self):
        self.middle = None

    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        records = process_records_input.records
        log("process_records", observe.message(process_records_input), observe.records(records))
        log("the same", records is process_records_input.records)
        if records:
            self.middle = records[len(records) // 2].sequence_number
            log("checkpoint", observe.attempt(process_records_input.checkpointer.checkpoint, self.middle))

    def shutdown(self, shutdown_input):
        log("shutdown", observe.message(shutdown_input))
        log("checkpoint", observe.attempt(shutdown_input.checkpointer.checkpoint, self.middle))

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested", observe.message(shutdown_requested_input))
        log("checkpoint", observe.attempt(shutdown_requested_input.checkpointer.checkpoint, self.middle))


if __name__ == "__main__":
    log = observe.Log(kcl)
    log("returned", observe.show(kcl.KCLProcess(Processor()).run()))
