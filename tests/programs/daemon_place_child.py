"""A child of a real daemon that stops inside an aggregate: it checkpoints there, and does nothing any more.

daemon_place_child.py OUT      a file of JSON lines for each shard in the folder OUT

A record whose data is ``!stop`` is the last one that its shard's child writes down; every other batch is checkpointed.
"""

import json
import sys
from pathlib import Path

import fastkcl

OUT = Path(sys.argv[1])


class Processor(fastkcl.BatchProcessor):
    def initialize(self, context):
        self.path = OUT / f"{context.shard_id}.jsonl"
        self.stopped = False
        self.note(start=[context.sequence_number, context.sub_sequence_number])

    def note(self, **facts):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts) + "\n")

    def process_batch(self, batch, checkpointer):
        if self.stopped:
            return
        for record in batch:
            place = fastkcl.Position(record.sequence_number, record.sub_sequence_number)
            self.note(record=[*place, record.partition_key, record.data.decode()])
            if record.data == b"!stop":
                checkpointer.checkpoint(place, retries=3)
                self.stopped = True
                self.note(stopped=True)
                return
        if len(batch):
            checkpointer.checkpoint(retries=3)

    def shutdown_requested(self, checkpointer):
        pass  # it stands where it stands

    def shard_ended(self, checkpointer):
        checkpointer.checkpoint(retries=3)


fastkcl.run(Processor())
