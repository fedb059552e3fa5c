"""A child of the bench of tables: TableProcessor over a ParquetTable or a DeltaTable, with a gate or without."""

import os

import fastkcl
from fastkcl.tables import DeltaTable, JsonPayload, ParquetTable, TableProcessor
from gate import VARIABLE, Gate

TABLES = {"ParquetTable": ParquetTable, "DeltaTable": DeltaTable}


class Gated(TableProcessor):
    """Begins with the other clients, and tells when the shard's end is checkpointed."""

    rows = 0

    def initialize(self, context: fastkcl.ShardContext) -> None:
        """Be ready."""
        super().initialize(context)
        self._gate = Gate()
        self._gate.wait()

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Count."""
        super().process_batch(batch, checkpointer)
        self.rows += batch.num_rows

    def shard_ended(self, checkpointer: fastkcl.Checkpointer) -> None:
        """Everything is written and checkpointed when this returns."""
        super().shard_ended(checkpointer)
        self._gate.done(self.rows)


if __name__ == "__main__":
    table = TABLES[os.environ["FASTKCL_BENCH_KIND"]](os.environ["FASTKCL_BENCH_TABLE"])
    schema = os.environ.get("FASTKCL_BENCH_SCHEMA")
    processor = Gated if VARIABLE in os.environ else TableProcessor
    fastkcl.run(processor(table, payload=JsonPayload(schema) if schema else None))
