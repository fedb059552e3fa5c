"""What ends a plan or a read, besides `DataLossError` and `AnotherStream`."""

from __future__ import annotations

__all__ = ["CallError", "OffsetError"]


class OffsetError(ValueError):
    """An offset that this version cannot have written, or that is too large to be one."""


class CallError(Exception):
    """A call that no repetition mends: a permission, a key or a request is wrong.

    Attributes:
        operation: the API call, e.g. ``GetRecords``.
        stream: its name or ARN.
    """

    def __init__(self, message: str, operation: str, stream: str) -> None:
        super().__init__(message)
        self.operation = operation
        self.stream = stream
