"""What can go wrong between a program and a stream.

Rules: what the caller did wrong is a `ValidationError`; what cannot be put, or read, says which item and why.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["DeserializeError", "ExceededPutLimit", "ValidationError"]


class ValidationError(ValueError):
    """An argument that cannot be meant; the message says which, and what would do."""


class ExceededPutLimit(ValueError):  # noqa: N818 - the name that programs catch
    """An item that no record has room for, its framing included. Nothing of it was taken."""


class DeserializeError(ValueError):
    """A record's data that its processor cannot read; none of its items is handed out.

    Attributes:
        kind: "deserialize", what is in an item, or "framing", where one ends.
    """

    def __init__(self, message: str, kind: Literal["deserialize", "framing"] = "deserialize") -> None:
        super().__init__(message)
        self.kind: Literal["deserialize", "framing"] = kind
