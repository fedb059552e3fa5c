"""The options of the source: one table, with the names that other connectors have for them.

    spark.readStream … .option(name, value) ─▶ OPTIONS, REFUSED, IGNORED ─▶ SourceOptions

Names count in any case. An unknown one is refused with the nearest; one that would put a secret into Spark's plans, its
checkpoint and its event log is refused with the way that works.

Rules: parsed options hold no secret, so they may travel to every process and stand in a log.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from fastkcl.kinesis.access import Access
from fastkcl.kinesis.read.plan import TRIM, PlanOptions, Position
from fastkcl.payloads.options import FORMATS, casts_of
from fastkcl.stdio.log import escaping_formatter, has_handlers

__all__ = [
    "COLUMNS",
    "EXTRA_COLUMNS",
    "IGNORED",
    "OPTIONS",
    "REFUSED",
    "TYPES",
    "Option",
    "OptionError",
    "SourceOptions",
    "show_log",
]

log = logging.getLogger("fastkcl.spark.source")

_DEFAULT_TYPES: Final = {
    "data": "binary",
    "stream": "string",
    "partitionKey": "string",
    "sequenceNumber": "string",
    "subSequenceNumber": "bigint",
    "approximateArrivalTimestamp": "timestamp",
    "shardId": "string",
}
_EXTRA_TYPES: Final = {
    "explicitHashKey": "string",
    "encryptionType": "string",
}
TYPES: Final = {**_DEFAULT_TYPES, **_EXTRA_TYPES}
"""Columns of a record, and Spark's names of their types. All may be null."""
COLUMNS: Final = tuple(TYPES)
DEFAULT_COLUMNS: Final = tuple(_DEFAULT_TYPES)
"""Those without the option `columns`."""
EXTRA_COLUMNS: Final = tuple(_EXTRA_TYPES)


class OptionError(ValueError):
    """An option that cannot be meant; the message names it, and what to write."""


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table.

    Attributes:
        name: as the documentation has it.
        parse: makes the value of its text.
        default: as text; None for none.
        meaning: in a few words.
        aliases: of other connectors; ``kinesis.`` before any of them, and before the name, is left out.
        only: of ``spark.read`` or ``spark.readStream``, the one that has it; None if both have.
    """

    name: str
    parse: Callable[[str], Any]
    default: str | None
    meaning: str
    aliases: tuple[str, ...] = ()
    only: Literal["read", "readStream"] | None = None


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names:
        raise ValueError("must have a name")
    return names


_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_ARN = re.compile(r"arn:[^:]+:kinesis:([^:]+):\d+:stream/[a-zA-Z0-9_.-]{1,128}")


def _streams(value: str) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a stream")
    return names


def _arns(value: str) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if not _ARN.fullmatch(name):
            raise ValueError(f"{name!r} is not an ARN of a stream: arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
    return names


def _boolean(value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return value.strip().lower() == "true"


def _count(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not re.fullmatch(r"\d{1,15}", value.strip(), re.ASCII) or not least <= int(value) <= most:
            raise ValueError(f"must be {least} or more" if most == 2**31 - 1 else f"must be {least} to {most}")
        return int(value)

    return parse


_UNITS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_BYTES = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30}


def _milliseconds(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", value.strip().lower(), re.ASCII)
        if found is None or found[2] not in _UNITS:
            raise ValueError("must be a time such as 400ms, 10s or 5m")
        time = int(found[1]) * _UNITS[found[2]]
        if time < least:
            raise ValueError(f"must be {least}ms or more")
        return time

    return parse


def _bytes(least: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        found = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", value.strip().lower(), re.ASCII)
        if found is None or found[2] not in _BYTES:
            raise ValueError("must be a size such as 8m or 1g")
        size = int(found[1]) << _BYTES[found[2]]
        if not least <= size < 2**50:
            raise ValueError(f"must be {least} bytes or more")
        return size

    return parse


def _moment(value: str) -> int:
    """A time, in ms since the epoch."""
    value = value.strip()
    if re.fullmatch(r"\d{10,14}", value, re.ASCII):
        if len(value) < 12:
            raise ValueError("must be in milliseconds, or in ISO 8601")
        return int(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("must be a time in ISO 8601, such as 2026-11-21T08:00:00Z, or in milliseconds") from None
    if moment.tzinfo is None:
        raise ValueError("must have a time zone, such as 2026-11-21T08:00:00Z")
    if moment.timestamp() < 0:
        raise ValueError("must be 1970 or later")
    return int(moment.timestamp() * 1000)


def _position(value: str) -> Position | None:
    """Where a new query begins; None for the latest record."""
    text = value.strip()
    if text.startswith("{"):
        try:
            parts = json.loads(text)
        except ValueError:
            parts = None
        if not isinstance(parts, dict) or not isinstance(parts.get("at_timestamp"), str | int):
            raise ValueError('must be {"at_timestamp": "2026-11-21T08:00:00Z"}')
        if "format" in parts:
            raise ValueError("must not have a format: write the time in ISO 8601")
        return Position.since(_moment(str(parts["at_timestamp"])))
    known = {"latest": None, "trim_horizon": TRIM, "earliest": TRIM}
    if text.lower() in known:
        return known[text.lower()]
    name, _, time = text.partition(" ")
    if name.lower() == "at_timestamp" and time.strip():
        return Position.since(_moment(time))
    raise ValueError("must be latest, trim_horizon, earliest, or AT_TIMESTAMP with a time")


def _columns(value: str) -> tuple[str, ...]:
    by_name = {name.lower(): name for name in COLUMNS}
    wanted = [name.lower() for name in _names(value)]
    unknown = [name for name in wanted if name not in by_name]
    if unknown or len(set(wanted)) < len(wanted):
        raise ValueError(f"must be some of {', '.join(COLUMNS)}, each once")
    return tuple(name for name in COLUMNS if name.lower() in wanted)


def _one_of(*known: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in known:
            raise ValueError(f"must be {' or '.join(known)}")
        return value.strip().lower()

    return parse


def _casts(value: str) -> tuple[tuple[str, str], ...]:
    return tuple(casts_of(_names(value)).items())


def _function(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value.strip()):
        raise ValueError("must be module:function")
    return value.strip()


OPTIONS: Final = (
    Option("streamName", _streams, None, "names of streams, with commas between them"),
    Option("streamARN", _arns, None, "ARNs of streams, in the place of names"),
    Option(
        "region",
        _text,
        None,
        "of the streams; that of the ARN, the environment or the profile by default",
        ("kinesisRegion",),
    ),
    Option("endpoint", _text, None, "URL of another service than AWS's", ("endpointUrl",)),
    Option(
        "initialPosition",
        _position,
        "latest",
        "where a new query begins: latest, trim_horizon, earliest, or AT_TIMESTAMP with a time",
        ("startingPosition",),
        "readStream",
    ),
    Option("failOnDataLoss", _boolean, "true", "whether records that the stream has trimmed are an error"),
    Option("maxRecordsPerTrigger", _count(1), None, "records of a batch", only="readStream"),
    Option("maxFetchRecordsPerShard", _count(1), None, "the same for each shard", only="readStream"),
    Option("maxBytesPerTrigger", _bytes(1), None, "bytes of a batch", only="readStream"),
    Option("maxSlice", _milliseconds(1), "5m", "of a shard in a batch, where no other limit is set", only="readStream"),
    Option(
        "maxRecordsPerFetch",
        _count(1, 10_000),
        "10000",
        "records of a call that a task makes",
        ("getRecords.numberOfRecordsPerFetch", "maxRecordPerRead"),
    ),
    Option(
        "minFetchPeriod",
        _milliseconds(200),
        "400ms",
        "between two looks at a shard",
        ("getRecords.fetchIntervalMs",),
        "readStream",
    ),
    Option(
        "shardFetchInterval",
        _milliseconds(1000),
        "10s",
        "between two lists of shards",
        ("describeShardInterval",),
        "readStream",
    ),
    Option("shardsPerTask", _count(1), None, "sets the number of tasks; they are counted by bytes by default"),
    Option("inlineBytes", _bytes(0), "8m", "of records that travel with the plan; 0 for none", only="readStream"),
    Option("driverThreads", _count(1, 1000), "32", "for the calls of the driver", only="readStream"),
    Option("deaggregate", _boolean, "true", "whether KPL aggregates become their user records"),
    Option("columns", _columns, None, "which columns are made"),
    Option(
        "payload",
        _one_of(*FORMATS),
        "binary",
        "others than binary: typed columns; json by the schema of the query",
    ),
    Option("schema", _text, None, "of avro and protobuf: a file, its text, or latest:NAME of the registry"),
    Option("message", _text, None, "of protobuf: the message's full name"),
    Option(
        "framing",
        _one_of("none", "glue", "confluent", "single-object"),
        "none",
        "of payloads: the header that names their schema",
    ),
    Option("registry", _text, None, "of schemas: glue, confluent, a URL, or a folder of schemas by id"),
    Option("registryEndpoint", _text, None, "URL of another Glue than AWS's"),
    Option("keepPayload", _boolean, "false", "of avro and protobuf: whether data stays beside the typed columns"),
    Option("casts", _casts, None, "of avro and protobuf: field=string or field=drop, with commas between them"),
    Option("compression", _one_of("none", "gzip", "auto"), "none", "of payloads"),
    Option("roleArn", _text, None, "a role that driver and executors assume", ("stsRoleArn",)),
    Option("roleExternalId", _text, None, "for the role"),
    Option("roleSessionName", _text, "fastkcl", "for the role", ("stsSessionName",)),
    Option("stsEndpoint", _text, None, "URL of the service that gives roles", ("stsEndpointUrl",)),
    Option("credentials", _function, None, "module:function that returns key, secret, token and expiry"),
    Option("maxOutage", _milliseconds(0), "10m", "for which the service may be away"),
    Option("startingTimestamp", _moment, None, "since when; the oldest record by default", only="read"),
    Option("endingTimestamp", _moment, None, "until when; now by default", only="read"),
)

_KEYS = (
    "it would stand in plans and logs: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on driver and executors, or use "
    "roleArn or credentials=module:function"
)
_REGISTRY = "it would stand in plans and logs: set FASTKCL_REGISTRY_USER, _PASSWORD or _TOKEN on driver and executors"
_PROXY = "set HTTPS_PROXY on driver and executors"
REFUSED: Final = {
    "awsAccessKey": _KEYS,
    "awsAccessKeyId": _KEYS,
    "awsSecretKey": _KEYS,
    "awsSecretAccessKey": _KEYS,
    "accessKey": _KEYS,
    "accessKeyId": _KEYS,
    "secretKey": _KEYS,
    "secretAccessKey": _KEYS,
    "sessionToken": _KEYS,
    "awsSessionToken": _KEYS,
    "credentialProviderClass": "it names a class of Java: use credentials=module:function",
    "credentialProviderParam": "it is for a class of Java: use credentials=module:function",
    "serviceCredential": "it belongs to a platform: use roleArn or credentials=module:function",
    "registryUser": _REGISTRY,
    "registryPassword": _REGISTRY,
    "registryToken": _REGISTRY,
    "proxyAddress": _PROXY,
    "proxyPort": _PROXY,
    "proxyUsername": _PROXY,
    "proxyPassword": _PROXY,
    "registeredConsumerName": "streams are read by polling: leave it out",
    "registerNewConsumer": "streams are read by polling: leave it out",
}
IGNORED: Final = (
    *("metadata*", "dynamodb.*", "client*Retr*", "minBatchesToRetain", "avoidEmptyBatches", "checkNewRecordThreads"),
    *("fetchBufferSize", "maxFetchDuration", "maxFetchRate", "maxFetchTimePerShardSec", "coalesce*"),
    *("internal.*", "shardsPerTaskHint", "maxPartitions", "maxShardsPerDescribe", "subscribeToShard.*"),
    *("consumerName", "consumerNamePrefix", "consumerRefreshInterval", "registeredConsumerId"),
    *("registeredConsumerIdType", "requireConsumerDeregistration"),
)
"""Of other connectors, whose way needs them and ours does not. Those of fan-out mean nothing to who polls."""

_BY_NAME: Final = {name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What a query reads, and how.

    Attributes:
        streams: names or ARNs.
        access: how they are reached.
        values: of each option, by its name.
        given: the name by which the query has an option, by the option's own.
    """

    streams: tuple[str, ...]
    access: Access
    values: Mapping[str, Any]
    given: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """From the options of a query.

        Raises:
            OptionError: one is unknown, refused, or has a value that it cannot have.
        """
        defaults = ((option.name, option.default, option.parse) for option in OPTIONS)
        values: dict[str, Any] = {name: None if text is None else parse(text) for name, text, parse in defaults}
        given: dict[str, str] = {}
        found = [(option, name, value) for name, value in options.items() if (option := _find(name)) is not None]
        payload = next((str(value).strip().lower() for option, _, value in found if option.name == "payload"), "binary")
        for option, name, value in found:
            if given.setdefault(option.name, name) != name:
                raise OptionError(f"{given[option.name]} and {name} are the same option: give one of them")
            if option.name == "columns" and payload in FORMATS and payload != "binary":
                raise OptionError(f"{name} is for payload=binary: with {payload} the schema names them")
            try:
                values[option.name] = option.parse(str(value))
            except ValueError as error:
                raise OptionError(f"option {name}={str(value)[:100]!r} {error}") from None
        names, arns = values["streamName"], values["streamARN"]
        if (names is None) == (arns is None):
            raise OptionError("name the stream by the option streamName, or by streamARN")
        streams = names or arns
        if len(set(streams)) < len(streams):
            raise OptionError(f"each stream has to be named once: {', '.join(streams)}")
        access = Access(
            region=values["region"],
            endpoint_url=values["endpoint"],
            role_arn=values["roleArn"],
            role_external_id=values["roleExternalId"],
            role_session_name=values["roleSessionName"],
            sts_endpoint=values["stsEndpoint"],
            credentials=values["credentials"],
        )
        return cls(streams=streams, access=access, values=values, given=given)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - an option has the type of its row
        return self.values[name]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of records that are made."""
        return self.values["columns"] or DEFAULT_COLUMNS

    def access_of(self, stream: str) -> Access:
        """How a stream is reached: an ARN has its own region."""
        from dataclasses import replace

        found = _ARN.fullmatch(stream)
        return self.access if found is None or self.access.region else replace(self.access, region=found[1])

    def plan_options(self) -> PlanOptions:
        """For the planner."""
        return PlanOptions(
            streams=self.streams,
            initial=self["initialPosition"],
            fail_on_data_loss=self["failOnDataLoss"],
            max_records=self["maxRecordsPerTrigger"],
            max_shard_records=self["maxFetchRecordsPerShard"],
            max_bytes=self["maxBytesPerTrigger"],
            max_slice=self["maxSlice"],
            inline_bytes=self["inlineBytes"],
            min_fetch_period=self["minFetchPeriod"],
            list_interval=self["shardFetchInterval"],
            max_outage=self["maxOutage"],
        )


def _find(name: str) -> Option | None:
    """The row of an option; None for one that is ignored.

    Raises:
        OptionError: it is refused, or unknown.
    """
    short = name[len("kinesis.") :] if name.lower().startswith("kinesis.") else name
    lower = short.lower()
    for refused, way in REFUSED.items():
        if lower == refused.lower():
            raise OptionError(f"option {name.removesuffix(short)}{refused} is refused, {way}")
    if lower in ("consumermode", "consumertype"):
        return _POLLING
    if lower in _BY_NAME:
        return _BY_NAME[lower]
    if any(fnmatchcase(lower, pattern.lower()) for pattern in IGNORED):
        log.info("option %s is ignored: the source has no use for it", name)
        return None
    near = get_close_matches(lower, _BY_NAME, n=1)
    hint = f"; did you mean {_BY_NAME[near[0]].name}?" if near else ""
    raise OptionError(f"there is no option {name}{hint}")


def _polling(value: str) -> str:
    if value.strip().lower() not in ("polling", "getrecords"):
        raise ValueError("is refused: streams are read by polling, and share their 2 MB/s a shard: leave it out")
    return "polling"


_POLLING = Option("consumerMode", _polling, "polling", "only polling")


def show_log() -> None:
    """Let the lines of the source reach the driver's log, where nobody has configured logging."""
    if not has_handlers(log.name):
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(escaping_formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
