"""The errors that end a plan or a read, besides `DataLossError` and `AnotherStream`."""

from __future__ import annotations

from fastkcl.kinesis.failures import Failure

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

    @classmethod
    def of(cls, operation: str, stream: str, where: str, failure: Failure, error: BaseException) -> CallError:
        """For a call that has failed.

        Args:
            operation: the API call.
            stream: its name or ARN.
            where: what the call was made on, for the message: an ARN if it is known.
            failure: its kind.
            error: the answer.
        """
        needs = (
            " needs kms:Decrypt on the stream's key, and" if str(getattr(error, "code", "")).startswith("KMS") else ""
        )
        if failure is Failure.DENIED:
            return cls(f"kinesis:{operation} on {where}{needs} is denied ({error})", operation, stream)
        return cls(f"kinesis:{operation} on {where}{needs} failed: {error}", operation, stream)
