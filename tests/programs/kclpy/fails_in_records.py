"""Raises in initialize and in process_records, in all ways; the daemon is told that all went well."""

from itertools import cycle

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class OwnError(Exception):
    def __str__(self):
        return "own words, in\ntwo lines: \u00fc \u2028"


def chained():
    try:
        {}["key"]
    except KeyError as error:
        raise RuntimeError("after another") from error


def throw(error):
    raise error


class Processor(processor.RecordProcessorBase):
    def __init__(self):
        self.ways = cycle(
            [
                lambda checkpointer: throw(ValueError("boom")),
                lambda checkpointer: checkpointer.checkpoint("not a number"),
                lambda checkpointer: throw(OwnError()),
                lambda checkpointer: chained(),
                lambda checkpointer: checkpointer.checkpoint() or throw(ExceptionGroup("both", [ValueError("one")])),
                lambda checkpointer: checkpointer.no_such_method(),
                lambda checkpointer: None,
            ]
        )

    def initialize(self, initialize_input):
        log("initialize", observe.message(initialize_input))
        raise OSError(5, "no database")

    def process_records(self, process_records_input):
        log("process_records", observe.records(process_records_input.records[:10]))
        next(self.ways)(process_records_input.checkpointer)
        log("went well")

    def lease_lost(self, lease_lost_input):
        log("lease_lost")

    def shard_ended(self, shard_ended_input):
        log("shard_ended", observe.attempt(shard_ended_input.checkpointer.checkpoint))

    def shutdown_requested(self, shutdown_requested_input):
        log("shutdown_requested")


if __name__ == "__main__":
    log = observe.Log(kcl)
    kcl.KCLProcess(Processor()).run()
    log("returned")
