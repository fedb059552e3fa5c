"""A processor with methods of the command line's: ``acts.py LOG VERSION SOURCE``. SOURCE is the text of the methods."""

import multiprocessing
import os
import pickle
import sys

import observe
from amazon_kclpy import kcl
from amazon_kclpy.v2 import processor as v2
from amazon_kclpy.v3 import processor as v3


class Version1(kcl.RecordProcessorBase):
    def initialize(self, shard_id):
        pass

    def process_records(self, records, checkpointer):
        pass

    def shutdown(self, checkpointer, reason):
        pass


class Version2(v2.RecordProcessorBase):
    def initialize(self, initialize_input):
        pass

    def process_records(self, process_records_input):
        pass

    def shutdown(self, shutdown_input):
        pass


class Version3(v3.RecordProcessorBase):
    def initialize(self, initialize_input):
        pass

    def process_records(self, process_records_input):
        pass

    def lease_lost(self, lease_lost_input):
        pass

    def shard_ended(self, shard_ended_input):
        pass

    def shutdown_requested(self, shutdown_requested_input):
        pass


class UnspeakableError(Exception):
    """Nothing can be said of it."""

    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


class UnreadableError(UnspeakableError):
    """Not even the module traceback can print it."""

    @property
    def __notes__(self):
        raise RuntimeError("no notes")


NAMES = {
    "UnspeakableError": UnspeakableError,
    "UnreadableError": UnreadableError,
    "kcl": kcl,
    **{module.__name__: module for module in (multiprocessing, os, pickle, sys)},
}


def main(version, source):
    processor = {"1": Version1, "2": Version2, "3": Version3}[version]()
    names = dict(NAMES)
    exec(source, names)
    for name in names.keys() - NAMES.keys():
        setattr(type(processor), name, names[name])
    kcl.KCLProcess(processor).run()


if __name__ == "__main__":
    observe.Log(kcl)
    main(*sys.argv[2:])
