"""The other child: amazon_kclpy's loop, each batch as a pyarrow.RecordBatch.

With amazon_kclpy installed this is its own KCLProcess; without it, the same loop over `fastkcl.bench.kclpy_steps`:
read a line of text, decode, call the processor, write the status with a line feed before and after, flush.
"""

import json
import os
import sys

import pyarrow as pa
from fastkcl.bench import arrow_columns, kclpy_steps
from fastkcl.bench.original import import_original

CHECK = os.environ.get("FASTKCL_BENCH_CHECK")


class Columns:
    """Reads the records into columns; the first batch is written to FASTKCL_BENCH_CHECK for comparison."""

    version = 3

    def __init__(self) -> None:
        self._unchecked = CHECK

    def initialize(self, initialize_input: object) -> None:
        """Nothing to prepare."""

    def process_records(self, process_records_input: kclpy_steps.Message) -> None:
        """One array a column."""
        columns = arrow_columns.kclpy_records_to_arrow(process_records_input.records)
        if self._unchecked:
            with pa.ipc.new_file(self._unchecked, columns.schema) as file:
                file.write(columns)
            self._unchecked = None

    def lease_lost(self, lease_lost_input: object) -> None:
        """Nothing is held."""


def run_steps(processor: Columns) -> None:
    """The original's loop over standard input and output."""
    while line := sys.stdin.readline():
        message = kclpy_steps.decode(line)
        if message.action == "initialize":
            processor.initialize(message)
        elif message.action == "processRecords":
            processor.process_records(message)
        elif message.action == "leaseLost":
            processor.lease_lost(message)
        sys.stdout.write(f"\n{json.dumps({'action': 'status', 'responseFor': message.action})}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if import_original() is None:
        run_steps(Columns())
    else:
        from amazon_kclpy import kcl

        kcl.KCLProcess(Columns()).run()
