"""A child of the pipe bench: fastkcl.run, each batch as a pyarrow.RecordBatch."""

import os

import fastkcl
import pyarrow as pa

CHECK = os.environ.get("FASTKCL_BENCH_CHECK")


class Columns(fastkcl.BatchProcessor):
    """Takes each batch into pyarrow; the first one is written to FASTKCL_BENCH_CHECK for comparison."""

    def __init__(self) -> None:
        self._unchecked = CHECK

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Import the batch, without a copy."""
        columns = pa.record_batch(batch)
        if self._unchecked:
            with pa.ipc.new_file(self._unchecked, columns.schema) as file:
                file.write(columns)
            self._unchecked = None


if __name__ == "__main__":
    fastkcl.run(Columns(), stream="bench")
