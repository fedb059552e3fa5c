"""A native child of a real daemon: writes down its calls, and does once the act that a record's data names.

daemon_child.py OUT      a file of JSON lines for each shard in the folder OUT; a file named after each fault
"""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

import fastkcl

OUT = Path(sys.argv[1])
FAULTS = {
    b"!exit": lambda: os._exit(7),
    b"!kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    b"!hang": lambda: time.sleep(600),
    b"!raise": lambda: 1 / 0,
}


class Processor(fastkcl.BatchProcessor):
    def initialize(self, context):
        self.path = OUT / f"{context.shard_id}.jsonl"
        self.note("initialize", stream=context.stream, dialect=context.dialect, start=context.sequence_number)

    def note(self, call, **facts):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"call": call, **facts}) + "\n")

    def process_batch(self, batch, checkpointer):
        records = [
            [
                record.sequence_number,
                record.sub_sequence_number,
                record.partition_key,
                None if record.data is None else base64.b64encode(record.data).decode(),
                record.timestamp_millis,
            ]
            for record in batch
        ]
        for record in batch:
            fault = FAULTS.get(record.data)
            mark = OUT / (record.data or b"").decode().strip("!") if fault else None
            if mark is not None and not mark.exists():
                mark.touch()
                fault()
        if records:
            try:
                checkpointer.checkpoint(retries=3)
            except fastkcl.CheckpointError as error:
                if error.value != "ShutdownException":
                    raise
                return  # the lease is another worker's, which gets these records again
            self.note("batch", records=records)

    def lease_lost(self):
        self.note("lease_lost")

    def shard_ended(self, checkpointer):
        checkpointer.checkpoint(retries=3)
        self.note("shard_ended")

    def shutdown_requested(self, checkpointer):
        self.note("shutdown_requested")


fastkcl.run(Processor())
