"""Checkpoints whenever it is asked, as the example of easy-kclpy does."""

import sys

from fastkcl.kclpy import kcl
from fastkcl.kclpy.per_record import PerRecordProcessor


class Processor(PerRecordProcessor):
    count = 0

    def process_record(self, data, partition_key, sequence_number, sub_sequence_number, arrival_time):
        self.count += 1

    def should_checkpoint(self):
        return True


if __name__ == "__main__":
    processor = Processor()
    kcl.KCLProcess(processor).run()
    print(processor.count, "records", file=sys.stderr)
