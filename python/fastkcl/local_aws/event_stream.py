"""Messages of an event stream (``application/vnd.amazon.eventstream``), as SubscribeToShard answers.

    total length | length of headers | CRC-32 of both | headers | payload | CRC-32 of all before        numbers: 4 bytes

A header is its name (after one byte for the length of that), a 7 for text, and the value (after two bytes for its
length).
"""

from __future__ import annotations

import struct
from binascii import crc32

__all__ = ["CONTENT_TYPE", "encode_event", "encode_exception"]

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_TEXT = 7


def encode_event(kind: str, content_type: str, payload: bytes) -> bytes:
    """An event of that kind, e.g. ``SubscribeToShardEvent``, with its payload."""
    return _message({":message-type": "event", ":event-type": kind, ":content-type": content_type}, payload)


def encode_exception(kind: str, content_type: str, payload: bytes) -> bytes:
    """The event that ends a stream with an error, e.g. ``ResourceInUseException``."""
    return _message({":message-type": "exception", ":exception-type": kind, ":content-type": content_type}, payload)


def _message(headers: dict[str, str], payload: bytes) -> bytes:
    head = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", crc32(prelude)) + head + payload
    return message + struct.pack(">I", crc32(message))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(">B", len(key)) + key + struct.pack(">BH", _TEXT, len(text)) + text
