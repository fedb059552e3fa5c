"""Replaces the methods that write, and none that reads."""

from unittest import mock

import observe
from amazon_kclpy import kcl


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)

    def process_records(self, records, checkpointer):
        log("process_records", observe.records(records))
        log("checkpoint", observe.attempt(checkpointer.checkpoint, "1", 2))

    def shutdown(self, checkpointer, reason):
        log("shutdown", reason)


if __name__ == "__main__":
    log = observe.Log(kcl)
    process = kcl.KCLProcess(Processor())
    handler = process.io_handler
    with (
        mock.patch.object(handler, "write_line", wraps=handler.write_line) as write_line,
        mock.patch.object(handler, "write_action", wraps=handler.write_action) as write_action,
        mock.patch.object(process, "_report_done", wraps=process._report_done) as report_done,
        mock.patch.object(process, "_perform_action", wraps=process._perform_action) as perform_action,
    ):
        process.run()
    log("write_line", [repr(call) for call in write_line.call_args_list])
    log("write_action", [repr(call) for call in write_action.call_args_list])
    log("_report_done", [repr(call) for call in report_done.call_args_list])
    log("_perform_action", [observe.message(call.args[0]) for call in perform_action.call_args_list])
