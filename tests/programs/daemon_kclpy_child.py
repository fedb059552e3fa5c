"""An unchanged amazon_kclpy program that knows nothing of fastkcl: writes down its records, and checkpoints them.

daemon_kclpy_child.py OUT      a file of JSON lines for each shard in the folder OUT, as daemon_child.py writes it
"""

import base64
import json
import sys
from pathlib import Path

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

OUT = Path(sys.argv[1])


class RecordProcessor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        self.path = OUT / f"{initialize_input.shard_id}.jsonl"
        self.note("initialize", start=initialize_input.sequence_number)

    def note(self, call, **facts):
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"call": call, **facts}) + "\n")

    def process_records(self, process_records_input):
        records = [
            [
                record.sequence_number,
                record.sub_sequence_number,
                record.partition_key,
                base64.b64encode(record.binary_data).decode(),
                record.timestamp_millis,
            ]
            for record in process_records_input.records
        ]
        if records:
            print("taken", len(records))
            process_records_input.checkpointer.checkpoint()
            self.note("batch", records=records)

    def lease_lost(self, lease_lost_input):
        self.note("lease_lost")

    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()
        self.note("shard_ended")

    def shutdown_requested(self, shutdown_requested_input):
        shutdown_requested_input.checkpointer.checkpoint()
        self.note("shutdown_requested")


if __name__ == "__main__":
    kcl.KCLProcess(RecordProcessor()).run()
