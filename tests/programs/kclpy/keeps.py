"""Keeps records, gives them attributes, and reports them when all is over."""

import gc
import weakref

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Processor(processor.RecordProcessorBase):
    def __init__(self):
        self.kept = []
        self.lists = []
        self.refs = []

    def initialize(self, initialize_input):
        self.kept.append(initialize_input)

    def process_records(self, process_records_input):
        records = process_records_input.records
        for place, record in enumerate(records):
            record.place = place
            record.itself = record
        self.kept.extend(records[::7])
        self.refs.extend(weakref.ref(record) for record in records[1:50:2])
        records.sort(key=lambda record: record.partition_key)
        if len(self.lists) < 3:
            self.lists.append(records)
        del records[5:]
        log("process_records", [observe.attempt(setattr, record, "extra", 1) for record in records])
        log("checkpoint", observe.attempt(process_records_input.checkpointer.checkpoint))

    def lease_lost(self, lease_lost_input):
        self.kept.append(lease_lost_input)

    def shard_ended(self, shard_ended_input):
        self.kept.append(shard_ended_input)
        log("checkpoint", observe.attempt(shard_ended_input.checkpointer.checkpoint))

    def shutdown_requested(self, shutdown_requested_input):
        self.kept.append(shutdown_requested_input)

    def report(self):
        log("inputs", [observe.message(each) for each in self.kept if not hasattr(each, "place")])
        log("kept", observe.records([each for each in self.kept if hasattr(each, "place")]))
        log("places", [each.place for each in self.kept if hasattr(each, "place")])
        log("lists", [observe.records(records) for records in self.lists])
        gc.collect()
        log("refs", sum(ref() is not None for ref in self.refs))


if __name__ == "__main__":
    log = observe.Log(kcl)
    consumer = Processor()
    kcl.KCLProcess(consumer).run()
    consumer.report()
