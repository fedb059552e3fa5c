"""A child built on fastkcl.run that writes down each call of a user method, for the fault tests.

processor.py LOG [options]      one JSON object a line: {"attempt", "call", ...}
"""

import argparse
import json
import os
from pathlib import Path

import fastkcl

parser = argparse.ArgumentParser()
parser.add_argument("log")
parser.add_argument("--function", action="store_true", help="the decorator form, checkpointing after each batch")
parser.add_argument("--no-checkpoint", action="store_true", help="not in process_batch")
parser.add_argument("--catch", action="store_true", help="catch checkpoint errors and go on")
parser.add_argument("--retries", type=int, default=0)
parser.add_argument("--raise-at", help="sequence number at which user code fails")
parser.add_argument("--on-error", default="stop")
options = parser.parse_args()


def note(call, **facts):
    row = {"attempt": int(os.environ["FASTKCL_REPLAY_ATTEMPT"]), "call": call, **facts}
    with Path(options.log).open("a") as log:
        log.write(json.dumps(row) + "\n")


def records_of(batch):
    return [[r.sequence_number, r.sub_sequence_number, r.partition_key, (r.data or b"").hex()] for r in batch]


class Processor(fastkcl.BatchProcessor):
    def initialize(self, context):
        note(
            "initialize",
            stream=context.stream,
            shard_id=context.shard_id,
            sequence_number=context.sequence_number,
            sub_sequence_number=context.sub_sequence_number,
            dialect=context.dialect,
        )

    def process_batch(self, batch, checkpointer):
        note("process_batch", records=records_of(batch), behind=batch.millis_behind_latest)
        if any(record.sequence_number == options.raise_at for record in batch):
            raise RuntimeError("a poison record")
        if not options.no_checkpoint:
            self.checkpoint(checkpointer)

    def checkpoint(self, checkpointer):
        try:
            checkpointer.checkpoint(retries=options.retries, backoff=0.01)
        except fastkcl.CheckpointError as error:
            note("checkpoint_error", value=error.value, retryable=error.retryable)
            if not options.catch:
                raise

    def lease_lost(self):
        note("lease_lost")

    def shard_ended(self, checkpointer):
        note("shard_ended")
        super().shard_ended(checkpointer)

    def shutdown_requested(self, checkpointer):
        note("shutdown_requested")
        super().shutdown_requested(checkpointer)


@fastkcl.processor(checkpoint_interval=0)
def function(batch):
    note("process_batch", records=records_of(batch))


fastkcl.run(function if options.function else Processor(), on_error=options.on_error)
