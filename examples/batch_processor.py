"""A processor with all its methods: counts records by partition key, and checkpoints the counted records.

Try it:  fastkcl replay --profile clickstream --shards 2 -- python examples/batch_processor.py
Needs pyarrow:  pip install 'fastkcl[arrow]'
"""

import fastkcl
import pyarrow as pa
import pyarrow.compute as pc


class CountKeys(fastkcl.BatchProcessor):
    """Counts the records of one shard; one object serves one shard in one process."""

    def initialize(self, context: fastkcl.ShardContext) -> None:
        """Begin with a shard; its records from the last checkpoint on are delivered next."""
        self.shard = context.shard_id
        self.records = 0
        self.keys: set[str] = set()

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Look at the columns without a copy, and checkpoint at the last record."""
        columns = pa.record_batch(batch)
        self.records += columns.num_rows
        self.keys.update(pc.unique(columns["partitionKey"]).to_pylist())
        if len(batch) > 0:
            try:
                checkpointer.checkpoint(batch.last_position, retries=2)
            except fastkcl.CheckpointError as error:
                if error.value == "ShutdownException":  # the lease is another worker's; leaseLost comes next
                    return
                if not error.retryable:
                    raise
                print(f"{self.shard}: {error}")  # the next batch's checkpoint covers this one

    def lease_lost(self) -> None:
        """Nothing can be checkpointed any more."""
        self._report("lease lost")

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        """The shard was split or merged; without this checkpoint its child shards do not start."""
        checkpointer.checkpoint(retries=5)
        self._report("shard ended")

    def _report(self, end: str) -> None:
        print(f"{self.shard}: {end} after {self.records} records of {len(self.keys)} partition keys")


if __name__ == "__main__":
    fastkcl.run(CountKeys())
