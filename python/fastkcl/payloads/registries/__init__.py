"""Registries of schemas: which schema an id in a record's header stands for.

    options    the options that name a registry; they show no secret
    answers    checks of a registry's answers
    lookups    decides which id is looked up when, and when an outage has lasted too long; no I/O
    registry   carries out the decisions of `lookups`, for all readers of a process
    http       answers bounded in bytes and in time, for glue and confluent
    glue, confluent, folder   the calls of each
    references named types of other schemas, put where an Avro schema uses them

Rules: the schema of an id never changes, so it is kept for ever. A record does not become corrupt because a registry is
away. A registry's answer about an id affects only that id.
"""

from fastkcl.payloads.registries.options import ConfluentRegistry, FolderRegistry, GlueRegistry

__all__ = ["ConfluentRegistry", "FolderRegistry", "GlueRegistry"]
