"""Version 1; copies records and sends them to worker processes, forked and started afresh."""

import copy
import multiprocessing
import pickle

import observe
from amazon_kclpy import kcl


def work(record):
    record.worked = True
    return record, observe.record(record)


class Processor(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        log("initialize", shard_id)

    def process_records(self, records, checkpointer):
        records = records[:60]
        for record in records:
            record.tags = ["a"]
        ways = [
            list(map(copy.copy, records)),
            copy.deepcopy(records),
            *(pickle.loads(pickle.dumps(records, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        ]
        for way in ways:
            log("copies", observe.records(way), [record.tags for record in way])
        if records:
            log("shared", ways[0][0].tags is records[0].tags, ways[1][0].tags is records[0].tags)
        for name, pool in pools.items():
            done = pool.map(work, records)
            log(name, [seen for _, seen in done], observe.records([record for record, _ in done]))
            log("worked", all(record.worked for record, _ in done), hasattr(records[0], "worked") if records else None)
        log("checkpoint", observe.attempt(checkpointer.checkpoint))

    def shutdown(self, checkpointer, reason):
        log("shutdown", reason)


if __name__ == "__main__":
    log = observe.Log(kcl)
    with multiprocessing.get_context("fork").Pool(1) as fork, multiprocessing.get_context("spawn").Pool(1) as spawn:
        pools = {"fork": fork, "spawn": spawn}
        kcl.KCLProcess(Processor()).run()
    log("returned")
