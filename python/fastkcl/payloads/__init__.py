"""What is inside of a record: how payloads become typed columns.

    options      each kind of payload, as users say it, and the rules that all of them share
    schema_text  schemas of JSON objects as text
    schemas      the schemas of Avro and Protobuf payloads: files, texts, and what registries have
    registries/  which schema an id stands for: Glue, Confluent, a folder
    framed       opens payloads with a schema; waits for what a registry knows
    writing      makes payloads with a schema: the frames of registries
    opener       opens the payloads of batches, as many as make one table
    opened       records whose payloads are opened
    batches      opens batches for programs that read them themselves
    table        openers for tables that are written without Spark

Nothing here knows Spark, or how a table commits. `fastkcl.tables` and `fastkcl.spark` have the payloads' names, too.
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
