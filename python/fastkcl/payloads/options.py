"""What a payload is, as users say it: options of binary and JSON payloads, and the rules that all payloads share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from fastkcl._core import CANONICAL_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CORRUPT",
    "DEFAULT_MAX_PAYLOAD_BYTES",
    "OWN_COLUMNS",
    "PACKED",
    "UNPARSED",
    "BinaryPayload",
    "Compression",
    "JsonPayload",
    "StructType",
    "check_names",
    "largest_payload",
]

Compression: TypeAlias = Literal["none", "gzip", "auto"]

DEFAULT_MAX_PAYLOAD_BYTES: Final = 32 * 1024 * 1024
"""Of one unpacked payload. The service takes records of up to 10 MiB, packed."""

CORRUPT: Final = "_corrupt"
"""Column of payloads that could not be opened, as they came."""
UNPARSED: Final = "_unparsed"
"""Column of JSON objects that the reader has left, unpacked."""
PACKED: Final = "_packed"
"""Column of the same payloads as they came, if they were unpacked."""
OWN_COLUMNS: Final = (*(name for name in CANONICAL_COLUMNS if name != "data"), CORRUPT, UNPARSED, PACKED)
"""Columns that a table of opened payloads has of its own."""


class StructType(Protocol):
    """Spark's StructType, of which this room knows only that it has fields."""

    @property
    def fields(self) -> list[Any]:
        """Its StructFields."""


@dataclass(frozen=True, slots=True)
class BinaryPayload:
    """Payloads as bytes in the column ``data``."""

    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` (by gzip's magic number) to unpack them; then there is a column ``_corrupt``."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""


@dataclass(frozen=True, slots=True)
class JsonPayload:
    """Payloads as JSON objects, with typed columns in the place of ``data``, and ``_corrupt``."""

    schema: str | pa.Schema | StructType
    """The columns: text as ``"id string, at timestamp, tags array<string>"``; a pyarrow schema, for tables that are
    written without Spark; a StructType, or any text in Spark's DDL, for those that are written through Spark."""
    compression: Compression = "none"
    """``"gzip"`` or ``"auto"`` to unpack them."""
    max_payload_bytes: int | None = None
    """Larger ones are corrupt when unpacked; `DEFAULT_MAX_PAYLOAD_BYTES`, or `max_table_bytes` if that is less."""


def largest_payload(max_payload_bytes: int | None, max_table_bytes: int) -> int:
    """The bound of one unpacked payload.

    Raises:
        ValueError: it is out of range.
    """
    if max_payload_bytes is None:
        return min(DEFAULT_MAX_PAYLOAD_BYTES, max_table_bytes)
    if not 1 <= max_payload_bytes <= max_table_bytes:
        raise ValueError(f"max_payload_bytes={max_payload_bytes}: must be 1 to max_table_bytes, {max_table_bytes}")
    return max_payload_bytes


def check_names(names: Iterable[str], reserved: Collection[str], taken: str) -> None:
    """Refuses columns with one name. Spark does not distinguish names that differ in case only, so none may.

    Args:
        names: of the payloads' columns.
        reserved: names that other columns have.
        taken: says so, for the message.

    Raises:
        ValueError: there are no columns, or a name is there twice or taken.
    """
    names = list(names)
    if not names:
        raise ValueError("schema has no columns: name those that the objects have, as in 'id string, at timestamp'")
    folded = {name.casefold() for name in reserved}
    for name in names:
        if name.casefold() in folded:
            raise ValueError(
                f"schema: a second column {name!r}. {taken}. Rename it in the objects, or take it as a part of another"
                " column"
            )
        folded.add(name.casefold())
