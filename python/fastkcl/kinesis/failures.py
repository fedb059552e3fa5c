"""Failures of calls to a stream's service: their kinds, and the pauses of an outage.

Rules: botocore is imported when the first failure is classified. `ReconnectPolicy` has no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from fastkcl.kinesis.bounds import check_count, check_seconds

if TYPE_CHECKING:
    from fastkcl._core import RecordBatch

__all__ = [
    "BODY",
    "DEFAULT_EXPO_BACKOFF_LIMIT",
    "FEW_THROTTLED",
    "Failure",
    "NotKinesisError",
    "ReconnectPolicy",
    "check_records",
    "checked",
    "error_code",
    "failure_of",
    "failure_of_code",
    "not_of_kinesis",
    "pages_of",
    "what_to_allow",
]

BODY = "fastkcl.body"
"""Where an answer of botocore has the body that is not its parser's, and its content type."""
DEFAULT_RETRY_LIMIT = 5
FEW_THROTTLED = 2
"""Answers in a row that said too much or too often, of which the log has no line."""
MOST_PAGES = 1_000
"""Of ListShards, with 1,000 shards each, and of DynamoDB, with 1 MB each or 100 tables: none of AWS's has more."""
_DIGITS = 129  # of a sequence number, at the most
FIXED_PAUSE = 5.0  # seconds, of reconnecting without expo_backoff
DEFAULT_EXPO_BACKOFF_LIMIT = 120.0


_MEMBERS: Final = {
    "describe_stream": "StreamDescription",
    "describe_stream_summary": "StreamDescriptionSummary",
    "get_shard_iterator": "ShardIterator",
    "list_shards": "Shards",
    "put_records": "Records",
}


def pages_of(client: Any, operation: str, **request: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of botocore
    """The pages of an answer, up to `MOST_PAGES`.

    Raises:
        NotKinesisError: there are more.
        botocore.exceptions.ClientError: as it is.
    """
    for number, page in enumerate(client.get_paginator(operation).paginate(**request)):
        if number == MOST_PAGES:
            raise NotKinesisError(
                f"the answer to {operation} has more than {MOST_PAGES:,} pages: a proxy, or something else that is not"
                " AWS, has answered; look at --endpoint-url, AWS_ENDPOINT_URL and HTTPS_PROXY"
            )
        yield page


def checked(operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """An answer that has what each one of the operation has; botocore does not look.

    Raises:
        ConnectionError: it lacks that.
    """
    member = _MEMBERS.get(operation)
    if member is not None and member not in answer:
        raise ConnectionError(f"an answer without {member}: the endpoint is not Kinesis, or a proxy has answered")
    return answer


class NotKinesisError(ConnectionError):
    """Something else than Kinesis has answered: to ask again does not help."""


def check_records(batch: RecordBatch) -> None:
    """See that the first and the last record of an answer have numbers by which they have an order.

    Raises:
        NotKinesisError: they have not.
    """
    try:
        numbers = [at.sequence_number for at in (batch.first_position, batch.last_position) if at is not None]
    except ValueError as error:
        raise NotKinesisError(f"{error}: the endpoint is not Kinesis, or a proxy has answered") from None
    for number in numbers:
        if len(number) > _DIGITS:
            raise not_of_kinesis(number)


def not_of_kinesis(sequence_number: str) -> NotKinesisError:
    """The error of a sequence number that has no order."""
    return NotKinesisError(
        f"an answer with the sequence number {ascii(sequence_number[:40])}: the endpoint is not Kinesis,"
        " or a proxy has answered"
    )


class Failure(Enum):
    """The kind of failure that an exception of a call is."""

    THROTTLED = "throttled"
    """Too often or too much; later it may work."""
    EXPIRED_ITERATOR = "expired_iterator"
    NOT_FOUND = "not_found"
    """No such stream or shard."""
    UNAVAILABLE = "unavailable"
    """No connection, no answer in time, or a failure of the service's own."""
    DENIED = "denied"
    """A permission or credential that somebody has to mend."""
    OTHER = "other"


_CODES = {
    "ProvisionedThroughputExceededException": Failure.THROTTLED,
    "LimitExceededException": Failure.THROTTLED,
    "ThrottlingException": Failure.THROTTLED,
    "Throttling": Failure.THROTTLED,
    "RequestLimitExceeded": Failure.THROTTLED,
    "KMSThrottlingException": Failure.THROTTLED,
    "ExpiredIteratorException": Failure.EXPIRED_ITERATOR,
    "ResourceNotFoundException": Failure.NOT_FOUND,
    "InternalFailure": Failure.UNAVAILABLE,
    "InternalFailureException": Failure.UNAVAILABLE,
    "InternalServerError": Failure.UNAVAILABLE,
    "ServiceUnavailable": Failure.UNAVAILABLE,
    "ServiceUnavailableException": Failure.UNAVAILABLE,
    "AccessDenied": Failure.DENIED,
    "AccessDeniedException": Failure.DENIED,
    "ExpiredToken": Failure.DENIED,
    "ExpiredTokenException": Failure.DENIED,
    "IncompleteSignature": Failure.DENIED,
    "IncompleteSignatureException": Failure.DENIED,
    "InvalidClientTokenId": Failure.DENIED,
    "InvalidSignatureException": Failure.DENIED,
    "KMSAccessDeniedException": Failure.DENIED,
    "MissingAuthenticationToken": Failure.DENIED,
    "MissingAuthenticationTokenException": Failure.DENIED,
    "OptInRequired": Failure.DENIED,
    "SignatureDoesNotMatch": Failure.DENIED,
    "UnrecognizedClientException": Failure.DENIED,
}


def error_code(error: BaseException) -> str:
    """The service's name of an error, or the name of the exception's class."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code") or "Unknown")
    return type(error).__name__


def failure_of_code(code: str, status: int) -> Failure:
    """The kind of failure that the service's name of an error, and the status of its answer, stand for."""
    by_status = {408: Failure.UNAVAILABLE, 429: Failure.THROTTLED}
    return _CODES.get(code) or by_status.get(status) or (Failure.UNAVAILABLE if status >= 500 else Failure.OTHER)


def failure_of(error: BaseException) -> Failure:
    """The kind of failure that an exception of a call is."""
    import aiohttp
    from botocore import exceptions as errors
    from botocore.exceptions import ClientError, HTTPClientError
    from botocore.exceptions import ConnectionError as UnreachableError

    if isinstance(error, NotKinesisError):
        return Failure.OTHER
    if isinstance(error, ClientError):
        return failure_of_code(error_code(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    denied = (
        errors.NoCredentialsError
        | errors.PartialCredentialsError
        | errors.CredentialRetrievalError
        | errors.TokenRetrievalError
        | errors.UnauthorizedSSOTokenError
    )
    if isinstance(error, denied):
        return Failure.DENIED
    connection = isinstance(error, HTTPClientError | UnreachableError | aiohttp.ClientError | OSError)
    return Failure.UNAVAILABLE if connection else Failure.OTHER


def what_to_allow(error: BaseException) -> str:
    """What mends a call that is not allowed, for the end of a message; empty for other errors."""
    from botocore.exceptions import ClientError

    if not (isinstance(error, ClientError) and error_code(error) in ("AccessDenied", "AccessDeniedException")):
        return ""
    return f": allow {error.operation_name} in the policy of these credentials"


class ReconnectPolicy:
    """How long to wait before each attempt in an outage.

    Args:
        retry_limit: attempts; 5 by default.
        expo_backoff: seconds: the n-th attempt waits n² times this long; None for 5 s each.
        expo_backoff_limit: the longest wait, in seconds.

    Raises:
        ValidationError: an argument out of range.
    """

    def __init__(
        self,
        retry_limit: int | None = None,
        expo_backoff: float | None = None,
        expo_backoff_limit: float = DEFAULT_EXPO_BACKOFF_LIMIT,
    ) -> None:
        if retry_limit is not None:
            check_count("retry_limit", retry_limit, 0)
        if expo_backoff is not None:
            check_seconds("expo_backoff", expo_backoff)
        check_seconds("expo_backoff_limit", expo_backoff_limit)
        self._limit = DEFAULT_RETRY_LIMIT if retry_limit is None else retry_limit
        self._expo_backoff = expo_backoff
        self._longest = expo_backoff_limit
        self._attempts = 0

    @property
    def limit(self) -> int:
        """How many there may be in a row."""
        return self._limit

    def failed(self) -> float | None:
        """Seconds to wait before the next attempt; None if there is none."""
        if self._attempts >= self._limit:
            return None
        self._attempts += 1
        if self._expo_backoff is None:
            return FIXED_PAUSE
        return min(self._attempts**2 * self._expo_backoff, self._longest)

    def succeeded(self) -> None:
        """The outage is over."""
        self._attempts = 0
