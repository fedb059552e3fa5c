"""Version 2; raises in shutdown: a checkpoint without a lease, or its own error. Has no shutdown_requested."""

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor


class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))

    def process_records(self, process_records_input):
        log("process_records", len(process_records_input.records))

    def shutdown(self, shutdown_input):
        log("shutdown", observe.message(shutdown_input))
        if shutdown_input.reason == "ZOMBIE":
            shutdown_input.checkpointer.checkpoint("1", 2)
        raise RuntimeError("cannot end")


if __name__ == "__main__":
    log = observe.Log(kcl)
    kcl.KCLProcess(Processor()).run()
    log("returned")
