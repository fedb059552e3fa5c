"""Writes down the view of a program of amazon_kclpy: its calls, and values with their types. Imports no such package.

The programs beside this file are unchanged programs of amazon_kclpy: ``python NAME.py LOG``. They run with the original
and with ours, and their logs have to be equal, but for the first line, which says whose modules these are.
"""

import hashlib
import json
import sys

RECORD_PROPERTIES = (
    "data",
    "binary_data",
    "partition_key",
    "sequence_number",
    "sub_sequence_number",
    "timestamp_millis",
    "approximate_arrival_timestamp",
)
RECORD_FIELDS = (
    "data",
    "partitionKey",
    "sequenceNumber",
    "subSequenceNumber",
    "approximateArrivalTimestamp",
    "action",
    "unknown",
)
INPUT_PROPERTIES = (
    "action",
    "shard_id",
    "sequence_number",
    "sub_sequence_number",
    "millis_behind_latest",
    "reason",
    "checkpointer",
    "error",
)
SHOWN_RECORDS = 60


def show(value):
    """A value and its type; of objects without a value only the type."""
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    return f"{type(value).__name__} {value!r}"


def attempt(function, *arguments):
    """What a call returns or raises."""
    try:
        return show(function(*arguments))
    except Exception as error:
        return f"raised {type(error).__name__} {error} {error.args!r} {getattr(error, 'value', None)!r}"


def record(each):
    """All that a record can be asked for."""
    return [
        type(each).__name__,
        *(show(getattr(each, name)) for name in RECORD_PROPERTIES),
        *(attempt(each.get, name) for name in RECORD_FIELDS),
        *(attempt(each.__getitem__, name) for name in RECORD_FIELDS),
    ]


def records(each_of):
    """All that a list of records can be asked for: the first ones in full, a digest of them all."""
    seen = [record(each) for each in each_of]
    digest = hashlib.sha256(json.dumps(seen).encode()).hexdigest()
    return {"type": type(each_of).__name__, "count": len(each_of), "digest": digest, "first": seen[:SHOWN_RECORDS]}


def message(each):
    """All that an input can be asked for, but for its records."""
    values = {name: show(getattr(each, name)) for name in INPUT_PROPERTIES if hasattr(each, name)}
    return {"type": type(each).__name__, **values}


class Log:
    """Appends to the file that the command line names; the first line says whose modules are used."""

    def __init__(self, module):
        self._file = open(sys.argv[1], "a", encoding="ascii")  # noqa: SIM115, PTH123 - open for as long as the program
        self("modules of", module.__file__)

    def __call__(self, what, *values):
        self._file.write(json.dumps([what, *values]) + "\n")
        self._file.flush()
