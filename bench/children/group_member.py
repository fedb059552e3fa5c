"""A member of a group: group_member.py STREAM. Writes a line for each batch: time in ns, shard, records."""

import asyncio
import os
import sys
import time

from fastkcl import BatchProcessor
from fastkcl.kinesis import KCLCheckPointer, run_processors


class Counting(BatchProcessor):
    """Says what it got, and checkpoints it."""

    def initialize(self, context):
        """Of this shard."""
        self.shard_id = context.shard_id

    def process_batch(self, batch, checkpointer):
        """Batches without records are ticks."""
        if batch.num_rows:
            os.write(1, f"{time.monotonic_ns()} {self.shard_id} {batch.num_rows}\n".encode())  # whole, from any thread
            checkpointer.checkpoint()

    def shard_ended(self, checkpointer):
        """All is done."""
        checkpointer.checkpoint()

    def shutdown_requested(self, checkpointer):
        """All is done that was given."""
        checkpointer.checkpoint()


checkpointer = KCLCheckPointer(sys.argv[1], session_timeout=3, heartbeat_frequency=1)
asyncio.run(
    run_processors(sys.argv[1], Counting, checkpointer=checkpointer, shard_fetch_rate=5, sleep_time_no_records=0.2)
)
