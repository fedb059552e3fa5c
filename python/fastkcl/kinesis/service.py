"""Calls of Kinesis for readers; the calling thread signs and sends them.

    Service.call ──▶ botocore's signature ──▶ Http ──▶ answer, and the service's time
                            └── ServiceError: its `Failure`, the action and its object

A request is JSON with a few fields, and the body of GetRecords goes unchanged to the decoder in Rust. The only botocore
objects are those of the signature.

Rules: calls block; any number of threads and forked processes may make them. Only two calls are repeated. If the
service refuses the time of a signature, the call is repeated, and its time is used from then on. If the keys are no
longer valid and others are found, the call is repeated with these.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from functools import lru_cache
from time import time
from typing import Any, TypeVar

from fastkcl._core import DecodeError, GetRecordsAnswer, decode_get_records
from fastkcl.credentials import text_of
from fastkcl.kinesis.access import Access, AccessError, NotNowError
from fastkcl.kinesis.failures import Failure, failure_of_code
from fastkcl.kinesis.http import Answer, Http, ProxyError
from fastkcl.masking import remember, without_sent
from fastkcl.stdio.log import module_logger

__all__ = ["Service", "ServiceError"]

log = module_logger(__name__)

JSON = "application/x-amz-json-1.1"
SKEW = 60.0
"""Seconds that a clock may be wrong before signatures have another time."""
_TIME_CODES = frozenset(
    {
        "AccessDeniedException",
        "InvalidSignatureException",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
_KEY_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"})
MAX_SHOWN = 2_000
"""Characters of a service's message."""
MAX_READ = 65_536
"""Characters of it in which secrets are looked for, before it is cut."""

_T = TypeVar("_T")


class ServiceError(Exception):
    """A call has failed.

    Attributes:
        failure: its kind.
        code: the service's name of the error, or the class of an exception.
    """

    def __init__(self, message: str, failure: Failure, code: str) -> None:
        super().__init__(message)
        self.failure = failure
        self.code = code


class Service:
    """Calls of one service of Kinesis.

    Args:
        access: where it is, and who calls.
        timeout: seconds from a call to the end of its answer.

    Raises:
        AccessError: no region, no such endpoint.
    """

    def __init__(self, access: Access, *, timeout: float = 60.0) -> None:
        self._access = access
        endpoint = access.endpoint()
        self.region = endpoint.region
        try:
            self._http = Http(endpoint.url, proxy=endpoint.proxy, ca_bundle=endpoint.ca_bundle, timeout=timeout)
        except ValueError as error:
            raise AccessError(str(error)) from error
        self._lock = threading.Lock()
        self._credentials: Any = None
        self._key = ""  # the access key that was found last
        self._ahead = 0.0  # seconds, of the service's clock
        self._process = os.getpid()

    def close(self) -> None:
        """Close its idle connections."""
        self._http.close()

    # Calls.

    def call(
        self, operation: str, request: Mapping[str, object], read: Callable[[Answer], _T]
    ) -> tuple[_T, int | None]:
        """Make a call.

        Args:
            operation: of the API, e.g. ``ListShards``.
            request: its arguments, by the names of the API.
            read: of an answer of status 200; its body is to be left when it returns.

        Returns:
            What `read` returns, and the service's time in ms since the epoch.

        Raises:
            ServiceError: no answer, or that of an error.
        """
        body = json.dumps(request).encode()

        def take(answer: Answer) -> tuple[_T | _Refused, int | None]:
            date = _date_of(answer.headers.get("date", ""))
            return (read(answer) if answer.status == 200 else _Refused.of(answer)), date

        for is_last in (False, True):
            try:
                keys, ahead = self._frozen_credentials(), self._ahead
                result, date = self._http.post(self._signed(operation, body, keys, ahead), body, take)
            except (OSError, ValueError) as error:
                raise self._unreachable(operation, error) from error
            if not isinstance(result, _Refused):
                return result, date
            if is_last or not (self._learn_time(result, date, ahead) or self._learn_keys(result, keys.access_key)):
                raise result.error(keys)
        raise AssertionError("not reached")

    def json(self, operation: str, request: Mapping[str, object]) -> tuple[dict[str, Any], int | None]:
        """Make a call whose answer is small."""

        def read(answer: Answer) -> dict[str, Any]:
            value = json.loads(bytes(answer.body))
            if not isinstance(value, dict):
                raise ValueError(f"{operation} answered {type(value).__name__}, and not an object")
            return value

        return self.call(operation, request, read)

    def get_records(
        self, iterator: str, limit: int, *, shard_id: str, address: Mapping[str, str]
    ) -> tuple[GetRecordsAnswer, int | None]:
        """GetRecords, decoded into Arrow columns.

        Args:
            iterator: where they begin.
            limit: how many, 1 to 10,000.
            shard_id: noted in the batch.
            address: StreamARN, where the stream is named so.
        """

        def read(answer: Answer) -> GetRecordsAnswer:
            content_type = answer.headers.get("content-type", JSON)
            try:
                return decode_get_records(answer.body, content_type, shard_id=shard_id)
            except DecodeError as error:
                raise ValueError(f"{shard_id}: an answer of GetRecords cannot be read: {error}") from error

        arn = {key: value for key, value in address.items() if key == "StreamARN"}
        return self.call("GetRecords", {"ShardIterator": iterator, "Limit": limit, **arn}, read)

    # Insides.

    def _signed(self, operation: str, body: bytes, keys: Any, ahead: float) -> Mapping[str, str]:  # noqa: ANN401
        from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
        from botocore.awsrequest import AWSRequest

        headers = {"Content-Type": JSON, "X-Amz-Target": f"Kinesis_20131202.{operation}"}
        request = AWSRequest("POST", self._http.url, data=body, headers=headers)
        remember(keys.token)
        signer = SigV4Auth(keys, "kinesis", self.region)
        if ahead:
            moment = _utc(time() + ahead).strftime(SIGV4_TIMESTAMP)
            signer = _signer_at(moment, signer)
        signer.add_auth(request)
        return dict(request.headers.items())

    def _frozen_credentials(self, *, may_repeat: bool = True) -> Any:  # noqa: ANN401 - botocore has no types
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            with self._lock:
                if self._credentials is None or self._process != os.getpid():
                    self._credentials, self._process = self._access.find_credentials(), os.getpid()
                credentials = self._credentials
            frozen = credentials.get_frozen_credentials()
            self._key = frozen.access_key
            return frozen
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code") or "Unknown")
            if code in _KEY_CODES and may_repeat:
                with self._lock:
                    self._credentials = None  # those that the role is assumed with may have been changed since
                return self._frozen_credentials(may_repeat=False)
            role = self._access.role_arn
            failure = failure_of_code(code, error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            what = "is denied" if failure is Failure.DENIED else "failed"
            said = without_sent(str(error))[:MAX_SHOWN]
            # The cause stays out: what it says may hold the token.
            raise ServiceError(f"sts:AssumeRole on {role} {what} ({said})", failure, code) from None
        except (AccessError, BotoCoreError) as error:
            failure = Failure.UNAVAILABLE if self._is_outage(error) else Failure.DENIED
            own = isinstance(error, AccessError)
            said = str(error) if own else text_of(error)
            raise ServiceError(f"credentials: {said}", failure, type(error).__name__) from (error if own else None)

    def _is_outage(self, error: Exception) -> bool:
        """Whether credentials are missing for a time: nobody answers, or they were there before."""
        from botocore import exceptions as errors

        if isinstance(error, errors.SSLError):
            return False
        if isinstance(error, errors.ConnectionError | errors.HTTPClientError):
            return True
        return bool(self._key) and isinstance(error, errors.CredentialRetrievalError | NotNowError)

    def _unreachable(self, operation: str, error: OSError | ValueError) -> ServiceError:
        name = type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            what = f"{operation}: the certificate of {self._http.host} is not trusted: {error}; see AWS_CA_BUNDLE"
            return ServiceError(what, Failure.OTHER, name)
        if isinstance(error, ProxyError | ValueError):
            return ServiceError(f"{operation}: {error}", Failure.OTHER, name)
        what = f"{operation}: {self._http.host} cannot be reached: {without_sent(str(error))}"
        return ServiceError(what, Failure.UNAVAILABLE, name)

    def _learn_time(self, refused: _Refused, date: int | None, signed_ahead: float) -> bool:
        """Whether a call was refused as the clock here is wrong; calls from now on have the service's time."""
        if refused.code not in _TIME_CODES or date is None:
            return False
        ahead = date / 1000 - time()
        if abs(ahead - signed_ahead) < SKEW:
            return False
        with self._lock:
            is_news = abs(ahead - self._ahead) >= SKEW
            self._ahead = ahead
        if is_news:
            log.warning("the clock of this machine is %.0f s off: calls are signed with the service's time", -ahead)
        return True

    def _learn_keys(self, refused: _Refused, key: str) -> bool:
        """Whether a call was refused for its keys, and others are found."""
        if refused.code not in _KEY_CODES:
            return False
        with self._lock:
            if self._key == key:
                self._credentials = None
        return bool(self._frozen_credentials().access_key != key)


class _Refused:
    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code, self.message = status, code, message

    @classmethod
    def of(cls, answer: Answer) -> _Refused:
        try:
            value = json.loads(bytes(answer.body))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return cls(answer.status, "Unknown", bytes(answer.body[:MAX_READ]).decode(errors="replace"))
        code = str(value.get("__type") or answer.headers.get("x-amzn-errortype") or "Unknown")
        code = code.partition(":")[0].rpartition("#")[2]
        return cls(answer.status, code, str(value.get("message") or value.get("Message") or "")[:MAX_READ])

    def error(self, keys: Any) -> ServiceError:  # noqa: ANN401
        """What is raised; it holds neither the secret nor the token of the keys that the call was signed with."""
        failure = failure_of_code(self.code, self.status)
        secrets = tuple(filter(None, (keys.token, keys.secret_key)))
        code = without_sent(self.code, *secrets)[:MAX_SHOWN]
        message = without_sent(self.message, *secrets)[:MAX_SHOWN]
        return ServiceError(f"{code}: {message} (status {self.status})", failure, code)


def _signer_at(moment: str, signer: Any) -> Any:  # noqa: ANN401
    """A signer whose signatures have this time."""
    kind = type(signer)

    class Signer(kind):  # type: ignore[misc, valid-type]
        def _modify_request_before_signing(self, request: Any) -> None:  # noqa: ANN401
            request.context["timestamp"] = moment
            super()._modify_request_before_signing(request)

    return Signer(signer.credentials, "kinesis", signer._region_name)  # noqa: SLF001


def _utc(seconds: float) -> Any:  # noqa: ANN401
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC)


@lru_cache(maxsize=16)
def _date_of(text: str) -> int | None:
    """A Date header in ms since the epoch; None if it is not a date."""
    try:
        return int(parsedate_to_datetime(text).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None
