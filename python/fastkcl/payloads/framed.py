"""Opens payloads with a schema: learns the ids of a batch's headers first, then opens the batch in Rust.

    batch ─▶ SchemaReader.unknown ─▶ Registry.schemas ─▶ add, or reject ─▶ SchemaReader.open
                                          └── away: the batch waits, up to max_outage; then an error

Rules: an id that cannot be used is logged once a process, and its records are corrupt. Fields of a writer's schema that
the reader's schema lacks are logged once for each id. Of payloads that are corrupt for themselves, a reader logs the
first. Readers of one query share what was logged: each line comes once a query in a process.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from fastkcl import ConfigurationError, RecordBatch
from fastkcl._core import SchemaReader
from fastkcl.payloads.corrupt import id_of_header, reason_of
from fastkcl.payloads.options import CORRUPT, JsonPayload, ProtobufPayload, SchemaPayload
from fastkcl.payloads.registries.answers import UnusableError
from fastkcl.payloads.registries.lookups import Missing
from fastkcl.payloads.registries.options import registry_of
from fastkcl.payloads.registries.registry import Registry, registry_for
from fastkcl.payloads.schemas import definition, format_of, reader_schema
from fastkcl.payloads.told import Told
from fastkcl.stdio.log import logger

if TYPE_CHECKING:
    from fastkcl._core import OpenedPayloads

__all__ = ["FramedReader", "registry_of_payload"]

_MOST_SHOWN = 20
_FIRST_CORRUPT = "the first payload that is corrupt for itself"


class FramedReader:
    """Opens batches; `PayloadReader`'s place is its own. For one thread at a time.

    Args:
        payload: what payloads are.
        schema: that they are read by, as `SchemaReader` takes it; None to find it as the payload says.
        max_payload_bytes: of one unpacked payload.
        registry: None for that of the payload.
        told: what the readers of its query have logged; None for a reader that is by itself.

    Raises:
        ConfigurationError: a schema that is none, or has types without a Spark type.
        RegistryAwayError: the registry did not answer for `max_outage`.
    """

    def __init__(
        self,
        payload: SchemaPayload | JsonPayload,
        schema: bytes | None = None,
        *,
        max_payload_bytes: int,
        registry: Registry | None = None,
        told: Told | None = None,
    ) -> None:
        self._registry = registry_of_payload(payload) if registry is None else registry
        if schema is None:
            assert not isinstance(payload, JsonPayload)
            schema = reader_schema(payload, self._registry)
        self._format = format_of(payload)
        typed = None if isinstance(payload, JsonPayload) else payload
        self.schema = schema
        """That payloads are read by, as `SchemaReader` takes it."""
        try:
            self._reader = SchemaReader(
                format=self._format,
                framing=payload.framing,
                schema=schema,
                message=payload.message if isinstance(payload, ProtobufPayload) else None,
                casts=None if typed is None else typed.casts,
                compression=payload.compression,
                max_payload_bytes=max_payload_bytes,
                keep_payload=typed is not None and typed.keep_payload,
            )
        except ValueError as error:
            raise ConfigurationError(f"the schema of the payloads: {error}") from error
        self._framing = payload.framing
        self._unpacks = payload.compression != "none"
        self._has_told = False
        self._told = told
        self._lock = threading.Lock()

    @property
    def columns(self) -> SchemaReader:
        """An Arrow capsule of the columns that it makes, for ``pyarrow.schema``."""
        return self._reader

    def open(self, batch: RecordBatch, offset: int, max_bytes: int) -> OpenedPayloads:
        """Open the payloads from row offset on: as many as make no more than max_bytes, and at least one.

        Raises:
            RegistryAwayError: the registry did not answer for `max_outage`; the batch can be opened later.
            IndexError: offset is outside of the batch.
        """
        with self._lock:
            if unknown := self._reader.unknown(batch):
                self._learn(unknown)
        opened = self._reader.open(batch, offset, max_bytes)
        if not self._has_told:
            self._tell(opened)
        return opened

    def _learn(self, ids: list[str]) -> None:
        if self._registry is None:
            for id_ in ids:
                self._reject(id_, "there is no registry: give registry= a folder that has its schema")
            return
        for id_, found in self._registry.schemas(ids).items():
            if isinstance(found, Missing):
                self._reject(id_, found.reason)
                continue
            try:
                dropped = self._reader.add(id_, definition(found, self._format))
            except (UnusableError, ValueError) as error:
                self._reject(id_, str(error))
                continue
            if dropped:
                more = f" and {len(dropped) - _MOST_SHOWN} more" if len(dropped) > _MOST_SHOWN else ""
                said = (
                    f"schema {id_} has fields that the reader's schema lacks, and which are dropped:"
                    f" {', '.join(dropped[:_MOST_SHOWN])}{more}; a newer schema= takes them from the next start on"
                )
                if self._is_new(said):
                    logger().warning("%s", said)

    def _reject(self, id: str, reason: str) -> None:  # noqa: A002 - the field's word
        said = f"records of the schema {id} are corrupt, and kept as they came: {reason}"
        if self._is_new(said):
            logger().error("%s", said)
        self._reader.reject(id, reason)

    def _is_new(self, text: str) -> bool:
        """Whether a text was not logged: in this query, or else in this process."""
        if self._told is not None:
            return self._told.is_new(text)
        return self._registry is None or self._registry.told.is_new(text)

    def _tell(self, opened: OpenedPayloads) -> None:
        """Log why the first payload is corrupt, unless its id is, which has its line."""
        import pyarrow as pa

        rows = pa.record_batch(opened)
        corrupt = rows[CORRUPT]
        if corrupt.null_count == len(corrupt):
            return
        import pyarrow.compute as pc

        rejected = self._reader.rejected
        for row in pc.indices_nonzero(corrupt.is_valid())[:_MOST_SHOWN].to_pylist():
            payload = corrupt[row].as_py()
            if id_of_header(self._framing, payload) not in rejected:
                self._has_told = True
                if self._told is not None and not self._told.is_new(_FIRST_CORRUPT):
                    return
                logger().warning(
                    "the payload of sequence number %s is corrupt, and kept as it came; others are not named: %s",
                    rows["sequenceNumber"][row],
                    reason_of(self._framing, payload, unpacks=self._unpacks),
                )
                return


def registry_of_payload(payload: SchemaPayload | JsonPayload) -> Registry | None:
    """The registry of a payload's options; None if it has none.

    Raises:
        ConfigurationError: it cannot be reached as it is set.
    """
    if payload.registry is None:
        return None
    return registry_for(registry_of(payload.registry), payload.max_outage)
