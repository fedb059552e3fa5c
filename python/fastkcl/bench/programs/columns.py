"""fastkcl's child: each batch as a pyarrow.RecordBatch, or, with the argument ``nothing``, no batch looked at."""

import os
import sys

import fastkcl

CHECK = os.environ.get("FASTKCL_BENCH_CHECK")


class Nothing(fastkcl.BatchProcessor):
    """The cost of a child that does nothing with it."""

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Take the batch over, and let it go."""


class Columns(fastkcl.BatchProcessor):
    """Takes each batch into pyarrow; the first one is written to FASTKCL_BENCH_CHECK for comparison."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._pyarrow = pa
        self._unchecked = CHECK

    def process_batch(self, batch: fastkcl.RecordBatch, checkpointer: fastkcl.Checkpointer) -> None:
        """Import the batch, without a copy."""
        columns = self._pyarrow.record_batch(batch)
        if self._unchecked:
            with self._pyarrow.ipc.new_file(self._unchecked, columns.schema) as file:
                file.write(columns)
            self._unchecked = None


if __name__ == "__main__":
    fastkcl.run(Nothing() if sys.argv[1:] == ["nothing"] else Columns(), stream="bench")
