"""Avro and Protobuf payloads of the source: options, the schema that the driver has found, and readers in the tasks.

    driver: schema=latest:… ─▶ bytes ──▶ travels with `Rows` ──▶ task: FramedReader by the same bytes
            a name of the start ───────▶ travels with `Rows` ──▶ worker: new to it? forgets which ids were missing

Spark's Python workers outlive a query. So each start asks anew for the newest version, and for ids that were missing;
and its lines are logged, whatever an earlier query has logged in the same process.

Rules: nothing that travels holds a secret: users, passwords and tokens of a registry are in the environment of driver
and executors. Glue is called as the query calls Kinesis: by its role and its credentials.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from fastkcl.payloads.framed import FramedReader, registry_of_payload
from fastkcl.payloads.options import AvroPayload, JsonPayload, ProtobufPayload
from fastkcl.payloads.registries.glue import GlueClient
from fastkcl.payloads.registries.options import GlueRegistry, registry_of
from fastkcl.payloads.registries.registry import Registry, RegistryAwayError
from fastkcl.payloads.told import Told
from fastkcl.spark.source.options import REFUSED, OptionError, SourceOptions

if TYPE_CHECKING:
    from fastkcl._core import OpenedPayloads, RecordBatch
    from fastkcl.kinesis.access import Access

__all__ = ["PayloadSource", "check_without_payload"]

MAX_PAYLOAD_BYTES: Final = 32 << 20
_MOST_STARTS: Final = 100  # queries that run at once in a process, and their lines
_OF_A_SCHEMA: Final = ("schema", "message", "keepPayload", "casts")
_OF_A_HEADER: Final = ("framing", "registry", "registryEndpoint")


class PayloadSource:
    """How payloads with a schema are opened in this query.

    Args:
        options: of the query; ``payload`` is avro, protobuf, or json with a framing.
        columns: of JSON objects, as `SchemaReader` takes them.

    Raises:
        OptionError: options that do not fit together.
        ConfigurationError: a schema that is none.
        RegistryAwayError: the registry did not answer for ``maxOutage``.
    """

    def __init__(self, options: SourceOptions, columns: bytes | None = None) -> None:
        self._access = options.access_of(options.streams[0])
        self._endpoint = options["registryEndpoint"]
        self._max_outage = options["maxOutage"] / 1000
        try:
            self._payload = _payload_of(options)
        except (TypeError, ValueError) as error:
            raise OptionError(str(error)) from error
        self._schema = columns
        self._start = uuid.uuid4().hex  # of the query: Spark makes this once for its tasks, and carries it to them
        self._reader: FramedReader | None = None
        latest = str(options["schema"] or "")
        if latest.startswith("latest:") and (registry := self._registry()) is not None:
            registry.forget_latest(latest.removeprefix("latest:"))
        self._schema = self.reader.schema

    def __getstate__(self) -> dict[str, Any]:
        """The part that a task needs; it makes the rest."""
        return {**self.__dict__, "_reader": None}

    @property
    def reader(self) -> FramedReader:
        """The reader of this process."""
        if self._reader is None:
            with _option_names():
                registry = self._registry()
                self._reader = FramedReader(
                    self._payload,
                    self._schema,
                    max_payload_bytes=MAX_PAYLOAD_BYTES,
                    registry=registry,
                    told=_told_of(self._start, registry),
                )
        return self._reader

    def open(self, batch: RecordBatch, offset: int, max_bytes: int) -> OpenedPayloads:
        """As `FramedReader.open`.

        Raises:
            RegistryAwayError: the registry did not answer for ``maxOutage``.
        """
        with _option_names():
            return self.reader.open(batch, offset, max_bytes)

    def _registry(self) -> Registry | None:
        """The registry as this process knows it."""
        if self._payload.registry is not None and isinstance(registry_of(self._payload.registry), GlueRegistry):
            return _glue(self._access, self._endpoint, self._max_outage)
        return registry_of_payload(self._payload)


@contextmanager
def _option_names() -> Iterator[None]:
    """Have errors of a registry name the option as the source has it."""
    try:
        yield
    except RegistryAwayError as error:
        raise RegistryAwayError(str(error).replace("max_outage is", "maxOutage is")) from error


def check_without_payload(options: SourceOptions) -> None:
    """Refuse options of payloads with a schema where there are none.

    Raises:
        OptionError: there is one.
    """
    _refuse_of_a_schema(options)
    for name in _OF_A_HEADER:
        if options[name] not in (None, "none"):
            raise OptionError(f"{name} is for payload=avro or protobuf, or for json with a framing")


def _refuse_of_a_schema(options: SourceOptions) -> None:
    """Refuse what names or shapes the columns of Avro and Protobuf.

    Raises:
        OptionError: there is one.
    """
    for name in _OF_A_SCHEMA:
        if options[name]:
            of_json = "; the columns of JSON come from .schema(…)" if options["payload"] == "json" else ""
            raise OptionError(f"{name} is for payload=avro or protobuf{of_json}")


def _payload_of(options: SourceOptions) -> AvroPayload | ProtobufPayload | JsonPayload:
    known: dict[str, Any] = {
        "framing": options["framing"],
        "registry": options["registry"],
        "compression": options["compression"],
        "max_outage": options["maxOutage"] / 1000,
    }
    if "@" in urlsplit(options["registry"] or "").netloc:
        raise ValueError(f"the URL of the option registry must hold no user, {REFUSED['registryUser']}")
    if options["registryEndpoint"] is not None and options["registry"] != "glue":
        raise ValueError("registryEndpoint is for registry=glue; another registry is named by its URL in registry")
    if options["payload"] == "json":
        _refuse_of_a_schema(options)
        return JsonPayload("", **known)
    if options["schema"] is None:
        raise ValueError(f"payload={options['payload']} needs schema: a file, its text, or latest:NAME of the registry")
    known |= {"schema": options["schema"], "keep_payload": options["keepPayload"]}
    known["casts"] = dict(options["casts"]) if options["casts"] else None
    if options["payload"] == "protobuf":
        return ProtobufPayload(message=options["message"], **known)
    if options["message"] is not None:
        raise ValueError("message is for payload=protobuf")
    return AvroPayload(**known)


_lock = threading.Lock()
_told: dict[tuple[int, str], Told] = {}
_registries: dict[tuple[int, Access, str | None, float], Registry] = {}


def _told_of(start: str, registry: Registry | None) -> Told:
    """What this process has logged since a start of a query. At its first task here, missing ids are forgotten."""
    key = os.getpid(), start
    with _lock:
        told = _told.pop(key, None)
        if told is None:
            told = Told()
            if registry is not None:
                registry.forget_missing()
        _told[key] = told  # the last one
        while len(_told) > _MOST_STARTS:
            del _told[next(iter(_told))]
        return told


def _glue(access: Access, endpoint: str | None, max_outage: float) -> Registry:
    """Glue's registry as this process knows it, called as the query's access says."""
    key = os.getpid(), access, endpoint, max_outage
    with _lock:
        for other in [other for other in _registries if other[0] != key[0]]:
            del _registries[other]  # of the process that was forked
        if key not in _registries:
            own = access.credentials is not None or access.role_arn is not None
            client = GlueClient(
                GlueRegistry(region=access.region, endpoint_url=endpoint),
                credentials=access.find_credentials() if own else None,
            )
            _registries[key] = Registry(client, max_outage)
        return _registries[key]
