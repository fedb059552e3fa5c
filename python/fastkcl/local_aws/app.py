"""The server as an ASGI application: our own Kinesis, every other service from moto, faults in front of both.

                          ┌─ /_faults, /_clock
    HTTP/1.1, h2c ─▶ app ─┤                ┌─ Kinesis_20131202.* ─▶ wire ─▶ Kinesis
                          └─ fault? ───────┤                                        ├─▶ journal
                                           └─ anything else ─▶ OtherServices (moto)─┘

Rules: `Access` refuses requests of web pages before their bodies are read. Requests are answered one after the
other, in the one thread of the event loop; only delays of faults and subscriptions wait beside others. So no model
needs a lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
import time
import traceback
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope

from fastkcl.local_aws.access import Access
from fastkcl.local_aws.errors import ServiceError, error_status
from fastkcl.local_aws.event_stream import CONTENT_TYPE, encode_event, encode_exception
from fastkcl.local_aws.faults import Fault, FaultError, Faults
from fastkcl.local_aws.journal import Journal
from fastkcl.local_aws.kinesis import Kinesis, Subscription
from fastkcl.local_aws.other_services import HttpRequest, HttpResponse, OtherServices, changes_state
from fastkcl.local_aws.streams import KinesisOptions
from fastkcl.local_aws.whims import WhimOptions, Whims
from fastkcl.local_aws.wire import Body, body_format

__all__ = ["TRACE_ALL", "LocalAwsApp"]

TRACE_ALL = "all"
"""Instead of an operation: trace them all."""

_KINESIS = "Kinesis_20131202"

_SUBSCRIPTION = 300.0  # seconds until a consumer has to subscribe again
_HEARTBEAT = 5.0  # seconds without records, after which an event without any comes
_LOOK = 0.05  # seconds between looks for new records
_MOST_OF_A_CALL = 64 << 20  # bytes of a body in JSON or CBOR; AWS takes 10 MiB of records at most
_MOST = 5 << 30  # of any other, as S3 has it
_MOST_PASSED = 320_000_000  # seconds at once: ten years


class _TooLargeError(Exception):
    """A body that no service takes."""


class EventResponse(NamedTuple):
    """An answer that goes on."""

    events: AsyncIterator[bytes]
    status: int = 200
    headers: Sequence[tuple[str, str]] = (("content-type", CONTENT_TYPE),)


class LocalAwsApp:
    """The application with its state.

    Args:
        options: of Kinesis.
        state: file that the state is kept in; None to forget it.
        trace: operations whose bodies go to standard error.
        names: host names by which clients may call it, besides those of loopback.
        whims: what the service does now and then.

    Attributes:
        ending: to be set when the server is about to end: nothing waits any longer.

    Raises:
        JournalError: the state cannot be used.
    """

    def __init__(
        self,
        options: KinesisOptions,
        state: Path | None = None,
        trace: Collection[str] = (),
        names: Collection[str] = (),
        whims: WhimOptions | None = None,
    ) -> None:
        self._ahead = 0.0 if whims is None else whims.clock_seconds
        self._whims = Whims(whims)
        self._kinesis = Kinesis(options, self._whims)
        self._others = OtherServices()
        self._faults = Faults()
        self._access = Access(names)
        self._trace = frozenset(trace)
        self.ending = asyncio.Event()
        self._journal = None if state is None else Journal(state, dataclasses.asdict(options))
        if self._journal is not None:
            self._restore(self._journal)

    # State.

    def _restore(self, journal: Journal) -> None:
        for kind, *arguments in journal.entries():
            if kind == "kinesis":
                now, operation, request = arguments
                self._kinesis.call(operation, request, now)
            else:
                method, target, headers, body = arguments
                self._others.call(HttpRequest(method, target, [(name, value) for name, value in headers], body))

    def call_kinesis(self, operation: str, request: object) -> dict[str, Any]:
        """A Kinesis operation from within; the state is kept.

        Raises:
            ServiceError: it is refused.
        """
        now = self._now()
        answer = self._kinesis.call(operation, request, now)
        if self._journal is not None and operation not in Kinesis.READS:
            self._journal.append(["kinesis", now, operation, request])
        return answer

    def _now(self) -> float:
        """The service's time, in s since the epoch."""
        return time.time() + self._ahead

    # Requests.

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one request, as ASGI has it."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000, "reason": None})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._access.refusal(scope["path"], headers)
        response: HttpResponse | EventResponse
        if refusal is None:
            try:
                request = await _read(scope, receive, _MOST_OF_A_CALL if "x-amz-target" in headers else _MOST)
            except _TooLargeError as error:
                response = _refused(413, "RequestEntityTooLargeException", str(error))
            else:
                if request is None:
                    return
                response = await self.respond(request)
        else:
            response = _refused(403, "AccessDeniedException", refusal)
        answered = {name.lower().encode(): value.encode() for name, value in response.headers}
        answered.setdefault(b"date", formatdate(self._now(), usegmt=True).encode())
        if isinstance(response, HttpResponse):  # as the service has it; otherwise hypercorn sends it in chunks
            answered.setdefault(b"content-length", str(len(response.body)).encode())
        await send({"type": "http.response.start", "status": response.status, "headers": list(answered.items())})
        if isinstance(response, EventResponse):
            await _send_events(response.events, receive, send)
        else:
            await send({"type": "http.response.body", "body": response.body, "more_body": False})

    async def respond(self, request: HttpRequest) -> HttpResponse | EventResponse:
        """Answer a request; any error of ours becomes a 500, with a traceback on standard error."""
        if request.target == "/_faults":
            return self._control(request, self._arm, self._faults.to_json)
        if request.target == "/_clock":
            return self._control(request, self._pass_time, lambda: {"ahead": self._ahead})
        operation = _operation_of(request)
        body = body_format(request.header("content-type"))
        response: HttpResponse | EventResponse
        fault = self._faults.meet(operation, request.body)
        if fault is not None and fault.delay:
            await self._wait(fault.delay)
        if fault is not None and fault.error is not None and fault.every is None:
            response = _error(body, ServiceError(fault.error, "injected"))
        else:
            try:
                response = self._serve(request, operation, body, fault)
            except ServiceError as error:
                response = _error(body, error)
            except Exception:  # whatever is wrong with one request, others are served
                traceback.print_exc()
                response = _error(body, ServiceError("InternalFailure", "an error in local-aws: see its log"))
        if self._trace & {operation, TRACE_ALL}:
            _print_trace(request, operation, response)
        return response

    def _serve(
        self, request: HttpRequest, operation: str, body: Body, fault: Fault | None
    ) -> HttpResponse | EventResponse:
        service, _, _ = request.header("x-amz-target").partition(".")
        if service == _KINESIS:
            self._whims.check_time(dict(request.headers), self._now())
            decoded = body.decode(request.body)
            if fault is not None and fault.every is not None:
                return _ok(body, self._put_some(decoded, fault))
            if operation == "SubscribeToShard":
                return EventResponse(self._events(self._kinesis.subscribe(decoded, self._now()), body))
            return _ok(body, self.call_kinesis(operation, decoded))
        response = self._others.call(request)
        if self._journal is not None and response.status == 200 and changes_state(request.header("x-amz-target")):
            self._journal.append(["other", *request])
        return response

    def _put_some(self, request: Any, fault: Fault) -> dict[str, Any]:  # noqa: ANN401 - as decoded
        """PutRecords, but not for each N-th record."""
        entries = request.get("Records") if isinstance(request, dict) else None
        if fault.every is None or not isinstance(entries, list):
            return self.call_kinesis("PutRecords", request)
        refused = set(range(fault.every - 1, len(entries), fault.every))
        taken = [entry for index, entry in enumerate(entries) if index not in refused]
        answer = self.call_kinesis("PutRecords", {**request, "Records": taken}) if taken else {"Records": []}
        outcomes = iter(answer["Records"])
        refusal = {"ErrorCode": fault.error, "ErrorMessage": "injected"}
        records = [refusal if index in refused else next(outcomes) for index in range(len(entries))]
        return {**answer, "Records": records, "FailedRecordCount": answer.get("FailedRecordCount", 0) + len(refused)}

    async def _events(self, subscription: Subscription, body: Body) -> AsyncIterator[bytes]:
        """The messages of a subscription: when there are records, when there have been none for a while, at its end."""
        yield encode_event("initial-response", body.content_type, body.encode({}))
        end = time.monotonic() + _SUBSCRIPTION
        beat = 0.0
        while time.monotonic() < end and not self.ending.is_set():
            try:
                event = self._kinesis.next_event(subscription, self._now())
            except ServiceError as error:
                yield encode_exception(error.kind, body.content_type, body.encode({"message": error.message}))
                return
            if event["Records"] or "ChildShards" in event or time.monotonic() >= beat:
                yield encode_event("SubscribeToShardEvent", body.content_type, body.encode(event))
                beat = time.monotonic() + _HEARTBEAT
            if "ChildShards" in event:
                return
            await self._wait(_LOOK)

    async def _wait(self, seconds: float) -> None:
        """So long, or until the server ends."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ending.wait(), seconds)

    # Control.

    def _control(
        self, request: HttpRequest, change: Callable[[Any], None], show: Callable[[], dict[str, Any]]
    ) -> HttpResponse:
        """GET shows a part of the server's state, POST changes it."""
        status = 200
        try:
            if request.method == "POST":
                change(json.loads(request.body))
            value = show()
        except ValueError as error:
            status, value = 400, {"error": str(error)}
        except RecursionError:
            status, value = 400, {"error": "it is nested too deeply"}
        return HttpResponse(status, [("content-type", "application/json")], json.dumps(value).encode() + b"\n")

    def _arm(self, given: Any) -> None:  # noqa: ANN401 - as decoded
        """Put a list of faults in the place of those there are."""
        if not isinstance(given, list):
            raise FaultError("a JSON list of faults is expected")
        self._faults.arm([Fault.from_json(each) for each in given])

    def _pass_time(self, given: Any) -> None:  # noqa: ANN401 - as decoded
        """Set the service's clock forward."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _MOST_PASSED:
            raise ValueError(
                f"the clock goes forward by 0 to {_MOST_PASSED:,} seconds, not by {json.dumps(given)[:100]}"
            )
        self._ahead += given


async def _send_events(events: AsyncIterator[bytes], receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Send as they come, until they end or the client goes."""
    gone = asyncio.ensure_future(receive())
    try:
        async for message in events:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": message, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gone.cancel()


def _operation_of(request: HttpRequest) -> str:
    """The operation, by the protocol that the client speaks: JSON and CBOR, query, or smithy-rpc."""
    target = request.header("x-amz-target")
    if target:
        return target.rpartition(".")[2]
    if request.header("content-type").startswith("application/x-www-form-urlencoded"):
        return parse_qs(request.body.decode("utf-8", "replace")).get("Action", [""])[0]
    return request.target.partition("?")[0].rpartition("/operation/")[2]


def _ok(body: Body, value: dict[str, Any]) -> HttpResponse:
    # An answer without members has no body.
    return HttpResponse(200, _headers(body), body.encode(value) if value else b"")


def _error(body: Body, error: ServiceError) -> HttpResponse:
    value = {"__type": error.kind, "message": error.message}
    return HttpResponse(error_status(error.kind), _headers(body), body.encode(value))


def _headers(body: Body) -> list[tuple[str, str]]:
    return [("content-type", body.content_type), ("x-amzn-requestid", str(uuid.uuid4()))]


def _print_trace(request: HttpRequest, operation: str, response: HttpResponse | EventResponse) -> None:
    asked = _readable(request.header("content-type"), request.body)
    if isinstance(response, EventResponse):
        sys.stderr.write(f"{operation} {asked} -> {response.status} (events)\n")
        return
    answered = _readable(dict(response.headers).get("content-type", ""), response.body)
    sys.stderr.write(f"{operation} {asked} -> {response.status} {answered}\n")
    sys.stderr.flush()


def _readable(content_type: str, body: bytes) -> str:
    if "cbor" not in content_type:
        return body.decode("utf-8", "backslashreplace")
    try:
        return json.dumps(body_format(content_type).decode(body), default=repr)
    except ServiceError as error:
        return f"{error.message}: {body!r}"


def _refused(status: int, kind: str, why: str) -> HttpResponse:
    value = json.dumps({"__type": kind, "message": why})
    return HttpResponse(status, [("content-type", "application/json")], value.encode() + b"\n")


async def _read(scope: HTTPScope, receive: ASGIReceiveCallable, most: int) -> HttpRequest | None:
    """The whole request; None if the client has gone before its end.

    Raises:
        _TooLargeError: it has more than `most` bytes.
    """
    pieces = []
    size = 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        size += len(event["body"])
        if size > most:
            raise _TooLargeError(f"the request has more than {most} bytes")
        pieces.append(event["body"])
        if not event["more_body"]:
            break
    query = scope["query_string"].decode("latin-1")
    return HttpRequest(
        scope["method"],
        scope["raw_path"].decode("latin-1") + (f"?{query}" if query else ""),  # which moto decodes
        [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]],
        b"".join(pieces),
    )


async def _lifespan(receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    while True:
        event = await receive()
        if event["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif event["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
