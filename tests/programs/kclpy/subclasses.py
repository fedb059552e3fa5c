"""Puts classes of its own in the place of the package's: of a record, of an input, of the checkpointer."""

import observe
from amazon_kclpy import dispatch, kcl, messages
from amazon_kclpy.v3 import processor


class OwnRecord(messages.Record):
    def __init__(self, json_dict):
        super().__init__(json_dict)
        self.length = len(self.binary_data)
        self.wire = sorted(json_dict.items())

    @property
    def partition_key(self):
        return super().partition_key.upper()


class OwnInput(messages.ProcessRecordsInput):
    def __init__(self, json_dict):
        super().__init__(json_dict)
        self.wire = sorted(json_dict)

    def dispatch(self, checkpointer, record_processor):
        log("dispatch", len(self.records))
        super().dispatch(checkpointer, record_processor)


class OwnCheckpointer(kcl.Checkpointer):
    def checkpoint(self, sequence_number=None, sub_sequence_number=None):
        log("asked", sequence_number, sub_sequence_number)
        super().checkpoint(sequence_number, sub_sequence_number)


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        records = process_records_input.records
        log("process_records", observe.message(process_records_input), process_records_input.wire)
        log("records", observe.records(records), [(record.length, record.wire) for record in records[:60]])
        for record in records[:2]:
            log("checkpoint", observe.attempt(process_records_input.checkpointer.checkpoint, record.sequence_number, 1))

    def lease_lost(self, lease_lost_input):
        log("lease_lost", observe.message(lease_lost_input))

    def shard_ended(self, shard_ended_input):
        log("checkpoint", observe.attempt(shard_ended_input.checkpointer.checkpoint))

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested", observe.message(shutdown_requested_input))


if __name__ == "__main__":
    log = observe.Log(kcl)
    dispatch._serializers["record"] = OwnRecord
    dispatch._serializers["processRecords"] = OwnInput
    process = kcl.KCLProcess(Processor())
    process.checkpointer = OwnCheckpointer(process.io_handler)
    process.run()
    log("returned")
