"""Replaces private methods, as tests and tracing do; standard input and output stay the daemon's."""

from unittest import mock

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor


class Process(kcl.KCLProcess):
    def _handle_a_line(self, line):
        log("_handle_a_line", type(line).__name__, len(line), line[:200], line[-1:])
        super()._handle_a_line(line)

    def _perform_action(self, action):
        log("_perform_action", observe.message(action))
        super()._perform_action(action)

    def _report_done(self, response_for=None):
        log("_report_done", response_for)
        super()._report_done(response_for)


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        log("process_records", observe.records(process_records_input.records))
        log("checkpoint", observe.attempt(process_records_input.checkpointer.checkpoint, "1"))

    def shutdown(self, shutdown_input):
        log("shutdown", observe.message(shutdown_input))


write_line = kcl._IOHandler.write_line


def noted_write_line(self, line):
    log("write_line", observe.show(line))
    write_line(self, line)


if __name__ == "__main__":
    log = observe.Log(kcl)
    with mock.patch.object(kcl._IOHandler, "write_line", noted_write_line):
        Process(Processor()).run()
    log("returned")
