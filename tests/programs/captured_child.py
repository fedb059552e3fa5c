"""Answers as the child of the captures did: a checkpoint in the middle of a batch, one at its end, and at each end."""

import contextlib

import fastkcl


class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        records = list(batch)
        for at in [records[len(records) // 2], None] if records else []:
            with contextlib.suppress(fastkcl.CheckpointError):
                checkpointer.checkpoint(at)


fastkcl.run(Processor())
