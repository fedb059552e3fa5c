"""The types of a message: JSON, TTL, text or bytes, and the flag for results that are not complete.

    type   content                              written
    json   any JSON value                       as `json.dumps` writes it: ", ", ": ", ASCII
    ttl    text (Turtle), unchecked             as UTF-8
    text   text                                 as UTF-8
    bytes  bytes                                as they are

A JSON object may have ``"_incomplete": true``: a stage upstream could not do all of its work. The flag is not a part of
the content: it is taken out when the message is read, and put back as the last key when one that is marked incomplete
is written. A flag that is false is not written.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Final, TypeAlias

__all__ = ["MESSAGE_TYPES", "BytesMessage", "JSONMessage", "Message", "TTLMessage", "TextMessage", "message_class"]

INCOMPLETE: Final = "_incomplete"


class Message(ABC):
    """A message's content, and whether it is incomplete.

    Args:
        content: of the type that the class says.
        incomplete: mark it.
    """

    type: ClassVar[str]
    extension: ClassVar[str]

    def __init__(self, content: Any, *, incomplete: bool = False) -> None:  # noqa: ANN401 - any JSON value
        self._content = content
        self._incomplete = incomplete

    @classmethod
    @abstractmethod
    def read(cls, data: bytes) -> Message:
        """The message that these bytes are.

        Raises:
            ValueError: they are none of this type.
        """

    def content(self) -> Any:  # noqa: ANN401 - any JSON value
        """The content, without the flag."""
        return self._content

    def incomplete(self, status: bool | None = None) -> bool:
        """Whether the message is marked incomplete; with a status, mark it from now on.

        Returns:
            Its value before.
        """
        before = self._incomplete
        if status is not None:
            self._incomplete = status
        return before

    @abstractmethod
    def write(self) -> bytes:
        """The bytes of the message, without an end.

        Raises:
            TypeError: the content is of another type.
            ValueError: it cannot be written.
        """

    def __repr__(self) -> str:
        mark = ", incomplete=True" if self._incomplete else ""
        return f"{type(self).__name__}({self._content!r}{mark})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Message)
        return (self._content, self._incomplete) == (other._content, other._incomplete)

    __hash__ = None  # type: ignore[assignment]  # the content may change


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class JSONMessage(Message):
    """Any JSON value."""

    type = "json"
    extension = ".json"

    @classmethod
    def read(cls, data: bytes) -> JSONMessage:
        """Parse; the flag goes out of the content."""
        try:
            content = json.loads(data.decode(), parse_constant=_refuse_constant)
        except RecursionError:
            raise ValueError("JSON is nested too deeply") from None
        incomplete = isinstance(content, dict) and content.pop(INCOMPLETE, False) is True
        return cls(content, incomplete=incomplete)

    def write(self) -> bytes:
        """Serialise as `json.dumps` does by default, without control characters; infinities and NaN are refused."""
        content = self._content
        if isinstance(content, dict):
            content = {key: value for key, value in content.items() if key != INCOMPLETE}
            if self._incomplete:
                content[INCOMPLETE] = True
        elif self._incomplete:
            raise ValueError(f"only a JSON object can be marked incomplete, not {type(content).__name__}")
        return json.dumps(content, allow_nan=False).encode("ascii")


class TextMessage(Message):
    """Text in UTF-8."""

    type = "text"
    extension = ".txt"

    @classmethod
    def read(cls, data: bytes) -> TextMessage:
        """Decode strictly."""
        return cls(data.decode())

    def write(self) -> bytes:
        """Encode."""
        if not isinstance(self._content, str):
            raise TypeError(f"a {self.type} message is a str, not {type(self._content).__name__}")
        return self._content.encode()


class TTLMessage(TextMessage):
    """Turtle: text that is not looked at, but never empty."""

    type = "ttl"
    extension = ".ttl"

    @classmethod
    def read(cls, data: bytes) -> TTLMessage:
        """Decode strictly."""
        if not data:
            raise ValueError("an empty message")
        return cls(data.decode())


class BytesMessage(Message):
    """Bytes as they are."""

    type = "bytes"
    extension = ".bin"

    @classmethod
    def read(cls, data: bytes) -> BytesMessage:
        """Take them."""
        return cls(data)

    def write(self) -> bytes:
        """Give them."""
        if not isinstance(self._content, bytes):
            raise TypeError(f"a bytes message is bytes, not {type(self._content).__name__}")
        return self._content


MESSAGE_TYPES: Final[dict[str, type[Message]]] = {
    cls.type: cls for cls in (JSONMessage, TTLMessage, TextMessage, BytesMessage)
}
"""Classes by name."""

MessageType: TypeAlias = str | type[Message]


def message_class(message_type: MessageType) -> type[Message]:
    """The class of that name, or the class itself.

    Raises:
        ValueError: no such type.
    """
    if isinstance(message_type, str):
        if message_type not in MESSAGE_TYPES:
            raise ValueError(f"no message type {message_type!r}: choose one of {', '.join(MESSAGE_TYPES)}")
        return MESSAGE_TYPES[message_type]
    return message_type
