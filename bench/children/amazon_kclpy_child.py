# ruff: noqa: B018 - to read a value is all that this does
"""A child of the drop-in's bench: a program for amazon_kclpy, as its users have them.

Its argument names the properties that are read of each record. The bench runs it with amazon_kclpy 3.1.3, and with that
name replaced by fastkcl.kclpy, which is all that a migration takes.
"""

import base64
import os
import sys

from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor


class Reads(processor.RecordProcessorBase):
    """What all have in common: a digest of the first batch goes to FASTKCL_BENCH_CHECK, for comparison."""

    def __init__(self):
        self._unchecked = os.environ.get("FASTKCL_BENCH_CHECK")

    def initialize(self, initialize_input):
        """Nothing to prepare."""

    def process_records(self, process_records_input):
        """Read, and nothing else."""
        if self._unchecked:
            self.check(process_records_input.records)
        self.read(process_records_input.records)

    def check(self, records):
        """Values with their lengths before them, so that none can pass for a part of another."""
        import hashlib

        digest = hashlib.sha256()
        for record in records:
            for value in (record.binary_data, record.partition_key.encode(), record.sequence_number.encode()):
                digest.update(b"%d:" % len(value))
                digest.update(value)
        with open(self._unchecked, "w") as file:  # noqa: PTH123 - pathlib would be a part of the start-up
            file.write(digest.hexdigest())
        self._unchecked = None

    def lease_lost(self, lease_lost_input):
        """Nothing is held."""


class Nothing(Reads):
    """What a child costs before anybody does anything with a batch."""

    def read(self, records):
        """Leave them."""


class Payloads(Reads):
    """What nearly every consumer needs."""

    def read(self, records):
        """One value a record."""
        for record in records:
            record.binary_data


class PayloadsAndKeys(Reads):
    """With what tells records apart."""

    def read(self, records):
        """Three values a record."""
        for record in records:
            record.binary_data
            record.partition_key
            record.sequence_number


class _Text(Reads):
    """As programs that are older than `binary_data` have it."""

    def shutdown(self, *_):
        """Nothing is held."""


class Version1Text(_Text):
    """Decodes what `get` gives."""

    version = 1

    def process_records(self, records, checkpointer):
        """Read, and nothing else."""
        if self._unchecked:
            self.check(records)
        for record in records:
            base64.b64decode(record.get("data"))


class Version2Text(_Text):
    """The same with inputs."""

    version = 2

    def read(self, records):
        """One value a record."""
        for record in records:
            base64.b64decode(record.get("data"))


if __name__ == "__main__":
    kinds = {
        "nothing": Nothing,
        "payloads": Payloads,
        "payloads and keys": PayloadsAndKeys,
        "version 1, get and b64decode": Version1Text,
        "version 2, get and b64decode": Version2Text,
    }
    kcl.KCLProcess(kinds[sys.argv[1]]()).run()
