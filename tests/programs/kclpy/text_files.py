"""Brings its own files: one that it has wrapped, one of a class of its own, one in memory."""

import io
import sys

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Output:
    def __init__(self):
        self.pieces = []

    def write(self, text):
        self.pieces.append(text)

    def flush(self):
        text = "".join(self.pieces)
        self.pieces.clear()
        log("flush", text)
        sys.stdout.write(text)
        sys.stdout.flush()


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        log("process_records", observe.records(process_records_input.records))
        log("checkpoint", observe.attempt(process_records_input.checkpointer.checkpoint, "7", 8))
        raise ValueError("to the file in memory")

    def lease_lost(self, lease_lost_input):
        log("lease_lost", observe.message(lease_lost_input))

    def shard_ended(self, shard_ended_input):
        log("checkpoint", observe.attempt(shard_ended_input.checkpointer.checkpoint))

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested", observe.message(shutdown_requested_input))


if __name__ == "__main__":
    log = observe.Log(kcl)
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", newline="\n")
    errors = io.StringIO()
    kcl.KCLProcess(Processor(), input_file=lines, output_file=Output(), error_file=errors).run()
    caught = [line for line in errors.getvalue().splitlines() if line.startswith("Caught")]
    log("errors", caught, "ValueError: to the file in memory" in errors.getvalue())
