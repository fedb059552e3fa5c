"""DynamoDB, CloudWatch and all other services of moto, in this process.

moto's server is a WSGI application; a request goes through it by werkzeug's test client, without a socket. Its models
are not made for threads: calls have to come one after the other.

moto is imported with the first request for it: that takes longer than the rest of the server's start, and many a
server is asked for Kinesis alone.
"""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Iterable
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from werkzeug.test import Client

__all__ = ["HttpRequest", "HttpResponse", "OtherServices", "changes_state"]

Headers = list[tuple[str, str]]


class HttpRequest(NamedTuple):
    """A request, as it came."""

    method: str
    target: str
    headers: Headers
    body: bytes

    def header(self, name: str) -> str:
        """The first header of that name (in lower case), or nothing."""
        return next((value for key, value in self.headers if key == name), "")


class HttpResponse(NamedTuple):
    """An answer to it."""

    status: int
    headers: Headers
    body: bytes


_MOST_UNPACKED = 64 << 20  # bytes, as of a call that is not packed
_PART = 1 << 20
_DYNAMODB = "DynamoDB_"
_DYNAMODB_READS = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List")


def changes_state(service_and_operation: str) -> bool:
    """Whether a DynamoDB request may have changed something. No other service's state is worth keeping."""
    service, _, operation = service_and_operation.partition(".")
    return service.startswith(_DYNAMODB) and not operation.startswith(_DYNAMODB_READS)


class OtherServices:
    """moto's services."""

    _HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "host"})

    @cached_property
    def _client(self) -> Client:
        from moto.core import responses
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.test import Client

        setattr(responses, "gzip", SimpleNamespace(GzipFile=_Unpacked))  # noqa: B010 - moto (5.2.5) unpacks without a bound
        gc.freeze()  # modules stay, as those of the server's start (`fastkcl.local_aws.server.serve`)
        return Client(DomainDispatcherApplication(create_backend_app))

    def call(self, request: HttpRequest) -> HttpResponse:
        """Hand a request to moto."""
        body = request.body
        if request.header("x-amz-target").startswith(_DYNAMODB) and b'"ComparisonOperator"' in body:
            body = _with_value_lists(body)
        if request.header("x-amz-target") == "AWSGlue.UpdateTable" and b'"VersionId"' in body:
            refusal = self._conflict(request)
            if refusal is not None:
                return refusal
        answer = self._client.open(
            request.target, method=request.method, headers=self._end_to_end(request.headers), data=body
        )
        # moto opens itself to web pages of every origin.
        headers = [each for each in self._end_to_end(answer.headers) if not each[0].startswith("access-control-")]
        if request.method == "HEAD" and (length := answer.headers.get("content-length")):
            headers.append(("content-length", length))  # of the body that GET has
        return HttpResponse(answer.status_code, headers, answer.get_data())

    def _conflict(self, request: HttpRequest) -> HttpResponse | None:
        """The refusal of an update of another version of a table than the newest, which moto (5.2.5) accepts."""
        update = json.loads(request.body)
        wanted = {"DatabaseName": update.get("DatabaseName"), "Name": update.get("TableInput", {}).get("Name")}
        headers = [each for each in request.headers if each[0] not in ("x-amz-target", "content-length")]
        there = self._client.open(
            request.target,
            method=request.method,
            headers=self._end_to_end([*headers, ("x-amz-target", "AWSGlue.GetTable")]),
            data=json.dumps(wanted),
        )
        if there.status_code != 200 or json.loads(there.get_data())["Table"].get("VersionId") == update["VersionId"]:
            return None
        error = {
            "__type": "ConcurrentModificationException",
            "Message": "Update table failed due to concurrent update.",
        }
        return HttpResponse(400, [("content-type", "application/x-amz-json-1.1")], json.dumps(error).encode())

    def _end_to_end(self, headers: Iterable[tuple[str, str]]) -> Headers:
        return [(name.lower(), value) for name, value in headers if name.lower() not in self._HOP_BY_HOP]


class _Unpacked(gzip.GzipFile):
    """A body that a client has packed, as SDKs do for large calls of CloudWatch."""

    _left = _MOST_UNPACKED

    def read(self, size: int | None = -1) -> bytes:
        """As of any file, up to a bound.

        Raises:
            RequestEntityTooLarge: the body is larger when it is unpacked.
        """
        whole = size is None or size < 0
        parts = []
        while part := super().read(_PART if whole else size):
            self._left -= len(part)
            if self._left < 0:
                from werkzeug.exceptions import RequestEntityTooLarge

                raise RequestEntityTooLarge(f"the request has more than {_MOST_UNPACKED} bytes when unpacked")
            parts.append(part)
            if not whole:
                break
        return b"".join(parts)


def _with_value_lists(body: bytes) -> bytes:
    """Old conditions in the form that moto judges rightly.

    ``{"Value": v, "ComparisonOperator": "NE"}`` is a comparison, and moto (5.2.5) takes it for an equality: KCL 1.15
    would lose its lease at the first checkpoint.
    """
    request = json.loads(body)
    for condition in request.get("Expected", {}).values():
        if "Value" in condition and "ComparisonOperator" in condition:
            condition["AttributeValueList"] = [condition.pop("Value")]
    return json.dumps(request).encode()
