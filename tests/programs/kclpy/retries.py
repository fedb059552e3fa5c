"""Catches CheckpointError as consumers do: some times again, but not after a shutdown."""

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

ATTEMPTS = 3


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        self.largest = (-1, -1)
        log("initialize", initialize_input.shard_id)

    def process_records(self, process_records_input):
        for record in process_records_input.records:
            self.largest = max(self.largest, (int(record.sequence_number), record.sub_sequence_number))
        log("process_records", self.largest, process_records_input.millis_behind_latest)
        if self.largest != (-1, -1):
            self.checkpoint(process_records_input.checkpointer, str(self.largest[0]), self.largest[1])

    def lease_lost(self, lease_lost_input):
        log("lease_lost", observe.message(lease_lost_input))

    def shard_ended(self, shard_ended_input):
        self.checkpoint(shard_ended_input.checkpointer)

    def shutdown_requested(self, shutdown_requested_input):
        self.checkpoint(shutdown_requested_input.checkpointer)

    def checkpoint(self, checkpointer, *position):
        for attempt in range(ATTEMPTS):
            try:
                checkpointer.checkpoint(*position)
            except kcl.CheckpointError as error:
                log("refused", attempt, observe.show(error.value), str(error), repr(error), observe.show(error.args))
                if error.value == "ShutdownException":
                    return
            else:
                log("checkpoint", position)
                return


if __name__ == "__main__":
    log = observe.Log(kcl)
    kcl.KCLProcess(Processor()).run()
    log("returned")
