"""Registries of schemas: which schema an id in a record's header stands for.

    options    which registry, as users say it; no secret is shown
    answers    what a registry answers, checked before it is believed
    lookups    which id is looked up when, what is known, and when an outage has lasted too long; no I/O
    registry   does what `lookups` decides, for all readers of a process
    http       answers bounded in bytes and in time, for glue and confluent
    glue, confluent, folder   the calls of each
    references named types of other schemas, put where an Avro schema uses them

Rules: an id is immutable, so what is known stays known. A registry that is away is not the record's fault: nothing is
corrupt for it. What a registry answers about an id concerns that id alone.
"""

from fastkcl.payloads.registries.options import ConfluentRegistry, FolderRegistry, GlueRegistry

__all__ = ["ConfluentRegistry", "FolderRegistry", "GlueRegistry"]
