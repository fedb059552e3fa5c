"""Counts the words of a stream: an ordinary amazon_kclpy program that knows nothing of fastkcl.

    fastkcl run examples/word_consumer.py          in the daemon's properties, as executableName
    fastkcl replay --profile tiny -- fastkcl run examples/word_consumer.py

It also runs with amazon_kclpy installed, as ``python3 examples/word_consumer.py``. What changes is the time it takes.
"""

import sys
import time
from collections import Counter

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

CHECKPOINT_SECONDS = 60
CHECKPOINT_ATTEMPTS = 5
RETRY_SECONDS = 5


def log(text):
    """Standard output belongs to the daemon."""
    print(text, file=sys.stderr, flush=True)


class WordCounter(processor.RecordProcessorBase):
    """Counts the words of one shard, and checkpoints once a minute."""

    def initialize(self, initialize_input):
        """Called once, before anything else."""
        self.shard_id = initialize_input.shard_id
        self.words = Counter()
        self.last = None
        self.checkpointed_at = time.monotonic()

    def process_records(self, process_records_input):
        """Called with a list of records, again and again."""
        for record in process_records_input.records:
            self.words.update(record.binary_data.decode("utf-8", "replace").split())
            self.last = (record.sequence_number, record.sub_sequence_number)
        if self.last and time.monotonic() - self.checkpointed_at > CHECKPOINT_SECONDS:
            self.checkpoint(process_records_input.checkpointer, *self.last)

    def lease_lost(self, lease_lost_input):
        """Another worker has the shard; it counts from our last checkpoint on."""
        log(f"{self.shard_id}: lease lost")

    def shard_ended(self, shard_ended_input):
        """All records of the shard have been here. Without this checkpoint its child shards do not start."""
        self.checkpoint(shard_ended_input.checkpointer)
        self.report()

    def shutdown_requested(self, shutdown_requested_input):
        """The daemon is about to stop."""
        if self.last:
            self.checkpoint(shutdown_requested_input.checkpointer, *self.last)
        self.report()

    def report(self):
        """The most frequent words."""
        log(f"{self.shard_id}: {sum(self.words.values())} words, most often {self.words.most_common(3)}")

    def checkpoint(self, checkpointer, sequence_number=None, sub_sequence_number=None):
        """Store how far we are; try again where the lease table is throttled."""
        for attempt in range(CHECKPOINT_ATTEMPTS):
            try:
                checkpointer.checkpoint(sequence_number, sub_sequence_number)
            except kcl.CheckpointError as error:
                if error.value == "ShutdownException":
                    log(f"{self.shard_id}: the lease has moved, no checkpoint")
                    return
                if error.value != "ThrottlingException" or attempt + 1 == CHECKPOINT_ATTEMPTS:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                self.checkpointed_at = time.monotonic()
                return


if __name__ == "__main__":
    kcl.KCLProcess(WordCounter()).run()
