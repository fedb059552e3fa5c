"""Converts the payloads of records to typed columns.

    options      the options of each kind of payload, and the rules that all of them share
    schema_text  schemas of JSON objects as text
    schemas      the schemas of Avro and Protobuf payloads: from files, texts and registries
    registries/  find the schema of an id: Glue, Confluent, a folder
    framed       opens payloads with a schema; waits for the registry's answers
    writing      makes payloads with a schema: the frames of registries
    opener       opens the payloads of batches, as many as make one table
    opened       records whose payloads are opened
    batches      opens batches for programs that read them themselves
    table        openers for tables that are written without Spark

Nothing here depends on Spark or on tables. `fastkcl.tables` and `fastkcl.spark` export the payloads' names, too.
"""

from fastkcl.payloads.batches import BatchOpener
from fastkcl.payloads.options import AvroPayload, BinaryPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.registries.options import ConfluentRegistry, FolderRegistry, GlueRegistry
from fastkcl.payloads.registries.registry import RegistryAwayError

__all__ = [
    "AvroPayload",
    "BatchOpener",
    "BinaryPayload",
    "ConfluentRegistry",
    "FolderRegistry",
    "GlueRegistry",
    "JsonPayload",
    "ProtobufPayload",
    "RegistryAwayError",
]
