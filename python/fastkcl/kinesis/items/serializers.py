"""Items to bytes and back: one half of a processor.

The JSON is that of Python's `json.dumps` by default: ASCII, with spaces after colons and commas. It does not depend on
installed libraries, so the same item gives the same bytes everywhere.
"""

from __future__ import annotations

import abc
import json
from typing import Any

from fastkcl.kinesis.exceptions import DeserializeError

__all__ = ["JsonSerializer", "MsgpackSerializer", "Serializer", "StringSerializer"]


class Serializer(abc.ABC):
    """Base class: one item to the bytes of one item, and back."""

    @abc.abstractmethod
    def serialize(self, item: Any) -> bytes:  # noqa: ANN401 - items are of any type
        """The bytes of an item."""

    @abc.abstractmethod
    def deserialize(self, data: bytes) -> Any:  # noqa: ANN401
        """The item.

        Raises:
            DeserializeError: `data` is not an item.
        """


class StringSerializer(Serializer):
    """Text in UTF-8; other items are turned into text."""

    def serialize(self, item: Any) -> bytes:  # noqa: ANN401
        """``str(item)`` in UTF-8."""
        return str(item).encode()

    def deserialize(self, data: bytes) -> str:
        """The text."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise DeserializeError(f"no UTF-8 text: {error}") from error


_to_json = json.JSONEncoder().encode
"""As `json.dumps` without arguments, and without its look at them."""


class JsonSerializer(Serializer):
    """JSON text, as `json.dumps` writes it."""

    def serialize(self, item: Any) -> bytes:  # noqa: ANN401
        """The item as JSON.

        Raises:
            TypeError: JSON has nothing for it.
        """
        return _to_json(item).encode()

    def deserialize(self, data: bytes) -> Any:  # noqa: ANN401
        """The value."""
        try:
            return json.loads(data.decode())
        except (ValueError, RecursionError) as error:
            raise DeserializeError(f"no JSON: {error}") from error


class MsgpackSerializer(Serializer):
    """Msgpack, with text and bytes told apart. Needs the package msgpack, which the extra ``kinesis`` brings."""

    def serialize(self, item: Any) -> bytes:  # noqa: ANN401
        """The item as msgpack.

        Raises:
            TypeError: msgpack has nothing for it.
        """
        import msgpack

        packed: bytes = msgpack.packb(item, use_bin_type=True)
        return packed

    def deserialize(self, data: bytes) -> Any:  # noqa: ANN401
        """The value. Keys of any type, as they are packed."""
        import msgpack

        try:
            return msgpack.unpackb(data, raw=False, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise DeserializeError(f"no msgpack: {error or type(error).__name__}") from error
