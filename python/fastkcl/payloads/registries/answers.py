"""Checks of registries' answers before they are used: size, depth, number of references, and format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from fastkcl.masking import without_sent

__all__ = [
    "MAX_DEPTH",
    "MAX_REFERENCES",
    "MAX_SCHEMA_BYTES",
    "AwayError",
    "MissingError",
    "NoJsonError",
    "SchemaFormat",
    "SchemaText",
    "UnusableError",
    "check_text",
    "loads",
    "whole_number",
]

SchemaFormat: TypeAlias = Literal["avro", "protobuf", "json"]

MAX_SCHEMA_BYTES: Final = 4 << 20
"""Of all texts of one schema. Glue takes 170,000 characters, Confluent's registry some megabytes."""
MAX_DEPTH: Final = 64
"""Of JSON in an Avro schema, and of references that lead to others."""
MAX_REFERENCES: Final = 256


class MissingError(LookupError):
    """The registry does not know the id."""


class UnusableError(ValueError):
    """What the registry has for an id cannot be used: an error of that id alone."""


class NoJsonError(UnusableError):
    """A text is no JSON at all."""


class AwayError(ConnectionError):
    """The registry gives no answer now: it cannot be reached, throttles its callers, or denies them.

    What answers in its place, a proxy or a captive portal, says nothing about an id: then it is away, too.
    """


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry has it.

    Attributes:
        format: of the text.
        text: of the schema itself.
        references: texts of the schemas that it uses, by the names that it has for them.
        version: as the registry counts it; None where it does not.
        id: as `SchemaReader.unknown` writes it; None where it was not asked for by anything else.
    """

    format: SchemaFormat
    text: str
    references: Mapping[str, str] = field(default_factory=dict)
    version: int | None = None
    id: str | None = None


def check_text(format: object, text: object, call: str) -> tuple[SchemaFormat, str]:  # noqa: A002 - the registries' word
    """A format and a text, as a registry names them.

    Args:
        format: as it names it.
        text: of the schema.
        call: that was answered, for messages.

    Raises:
        AwayError: they are no texts, so this is not the answer of a registry.
        UnusableError: no such format, an empty text, or too large a one.
    """
    if not isinstance(format, str) or not isinstance(text, str):
        raise AwayError(f"{call}: not the answer of a registry, as it has no format and text of a schema")
    found: dict[str, SchemaFormat] = {"avro": "avro", "protobuf": "protobuf", "json": "json"}
    known = found.get(format.lower())
    if known is None:
        raise UnusableError(f"its format is {without_sent(format)[:40]!r}, and not AVRO, PROTOBUF or JSON")
    if not text.strip():
        raise UnusableError("the registry gives no text of it")
    if len(text) > MAX_SCHEMA_BYTES:
        raise UnusableError(f"its text has more than {MAX_SCHEMA_BYTES} bytes")
    return known, text


def loads(text: str, what: str) -> Any:  # noqa: ANN401 - JSON
    """JSON of at most `MAX_DEPTH` levels.

    Raises:
        NoJsonError: the text is not JSON.
        UnusableError: it is deeper.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise NoJsonError(f"{what} is no JSON: {error}") from None
    except RecursionError:
        raise UnusableError(f"{what} is deeper than {MAX_DEPTH} levels") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return value
    raise UnusableError(f"{what} is deeper than {MAX_DEPTH} levels")


def whole_number(value: object, most: int) -> int | None:
    """A number of JSON from 0 to `most`; None of all else, true and false too."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= most else None
