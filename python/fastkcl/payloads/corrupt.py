"""Why a payload is corrupt, for the log: without its bytes, which are nobody's but the table's.

Rules: of the payload only the header is looked at; its body was judged in Rust.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final, NamedTuple

from fastkcl.payloads.options import Framing

__all__ = ["id_of_header", "reason_of"]

_GZIP: Final = b"\x1f\x8b"


class _Header(NamedTuple):
    beginnings: tuple[bytes, ...]
    length: int


_HEADERS: Final[Mapping[Framing, _Header]] = {
    "glue": _Header((b"\x03\x00", b"\x03\x05"), 18),
    "confluent": _Header((b"\x00",), 5),
    "single-object": _Header((b"\xc3\x01",), 10),
}


def _has_header(framing: Framing, payload: bytes) -> bool:
    header = _HEADERS[framing]
    return len(payload) >= header.length and payload.startswith(header.beginnings)


def id_of_header(framing: Framing, payload: bytes) -> str | None:
    """The schema's id in a header, as `SchemaReader.unknown` writes it; None if there is no such header."""
    if framing == "none" or not _has_header(framing, payload):
        return None
    if framing == "glue":
        return str(uuid.UUID(bytes=payload[2:18]))
    if framing == "confluent":
        return str(int.from_bytes(payload[1:5]))
    return f"{int.from_bytes(payload[2:10], 'little'):016x}"


def reason_of(framing: Framing, payload: bytes, *, unpacks: bool) -> str:
    """Why a payload is corrupt whose schema is known.

    Args:
        framing: of the reader.
        payload: as it came.
        unpacks: whether the reader unpacks gzip.
    """
    if unpacks and payload.startswith(_GZIP):
        return "it is gzip that cannot be unpacked, or has another header or body than expected"
    if framing == "none":
        return "framing='none': it is not one value of the schema; does its producer write a registry's header?"
    if not _has_header(framing, payload):
        beginnings = " or ".join(each.hex(" ") for each in _HEADERS[framing].beginnings)
        return f"framing={framing!r}: its first bytes are no such header, which begins with {beginnings}"
    return f"what follows its header is not exactly one value of schema {id_of_header(framing, payload)}"
