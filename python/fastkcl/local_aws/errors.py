"""Refusals of the service, as the exceptions that its clients will see."""

from __future__ import annotations

__all__ = ["ServiceError"]


class ServiceError(Exception):
    """A request that is answered with an error.

    Attributes:
        kind: the service's name of the error, e.g. ``ResourceNotFoundException``.
        message: for people.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status that goes with it."""
        return error_status(self.kind)


_SERVER_FAULTS = {
    "InternalFailure": 500,
    "InternalFailureException": 500,
    "InternalServerError": 500,
    "ServiceUnavailable": 503,
    "ServiceUnavailableException": 503,
}


def error_status(kind: str) -> int:
    """The HTTP status of an error: 400, or 500 and more where it is the service's own fault."""
    return _SERVER_FAULTS.get(kind, 400)
