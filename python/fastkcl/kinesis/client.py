"""A stream's client: the common part of a consumer and a producer.

    StreamClient ── call ──▶ aiobotocore ──▶ the service
         │                        └── failure_of(error) ──▶ Failure ──▶ the next step
         └── ReconnectPolicy: how long to wait in an outage, and when to give it up

botocore repeats nothing here. A call that does not reach the service, or that the service fails at, is repeated by
`StreamClient.call` with the pauses of the policy, and at last is a `ConnectionError`. All tasks that share a client
share its outage: one attempt is one round of theirs, however many they are. The caller handles throttling and all
errors that the service returns about the request.

Rules: aiobotocore is imported when a client is opened.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from fastkcl._core import GetRecordsAnswer, decode_get_records
from fastkcl.backoff import Backoff
from fastkcl.kinesis import failures
from fastkcl.kinesis.bounds import check_count, check_seconds
from fastkcl.kinesis.event_loops import cut_off_in_silence
from fastkcl.kinesis.exceptions import (
    StreamDoesNotExist,
    StreamExists,
    StreamShardLimit,
    StreamStatusInvalid,
    ValidationError,
)
from fastkcl.kinesis.failures import BODY, Failure, ReconnectPolicy, check_records, checked, error_code, failure_of
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.sessions import check_session, has_http_session, masked, new_session
from fastkcl.kinesis.shared_look import SharedLook
from fastkcl.kinesis.topology import Shard
from fastkcl.masking import without_sent
from fastkcl.stdio.log import module_logger

if TYPE_CHECKING:
    from fastkcl.kinesis.read.bodies import Gate

__all__ = ["StreamClient"]

log = module_logger(__name__)

CONNECT_TIMEOUT, READ_TIMEOUT = 4, 90  # seconds
MAX_CONNECTIONS = 100
REPORT_PAUSE = 60.0
"""Seconds between two warnings of an outage: all tasks and shards share the service."""
DEFAULT_DESCRIBE_TIMEOUT = 60.0
DESCRIBE_PAUSE = 0.5  # seconds between two looks at a stream that is being made
LARGE_BODY = 2**18
"""Bytes of an answer from which on it is decoded beside the event loop."""
MAX_THROTTLED = 10  # in a row, of a call about the stream as a whole

_T = TypeVar("_T")


class StreamClient:
    """A client of one stream.

    Args:
        stream_name: the stream's name, or its ARN.
        on_outage: is called with the exception of each call that does not reach the service, or that it fails at.
        options: see `StreamOptions`.

    Raises:
        ValidationError: an option out of range; an ARN that is no stream's.
        TypeError: an argument of another type; an option that there is not.
    """

    def __init__(
        self,
        stream_name: str,
        *,
        on_outage: Callable[[BaseException], None] = lambda error: None,
        **options: Unpack[StreamOptions],
    ) -> None:
        unknown = sorted(options.keys() - StreamOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"unexpected option {unknown[0]!r}")
        if not isinstance(stream_name, str):
            raise TypeError(f"stream_name must be a name or an ARN, not {stream_name!r}")
        if not stream_name:
            raise ValidationError("the stream's name is empty")
        if stream_name.startswith("arn:") and not _ARN.fullmatch(stream_name):
            raise ValidationError(f"{stream_name!r} is no ARN of a stream: arn:aws:kinesis:REGION:ACCOUNT:stream/NAME")
        check_session(options.get("session"))
        self._given_session = options.get("session")
        self._endpoint_url = options.get("endpoint_url")
        self._arn = stream_name if stream_name.startswith("arn:") else None
        self._region = options.get("region_name") or (stream_name.split(":")[3] if self._arn else None)
        self._name = stream_name.rpartition("/")[2] if self._arn else stream_name
        self._policy = ReconnectPolicy(
            options.get("retry_limit"),
            options.get("expo_backoff"),
            options.get("expo_backoff_limit", failures.DEFAULT_EXPO_BACKOFF_LIMIT),
        )
        self.skip_describe_stream = options.get("skip_describe_stream", False)
        self._use_list_shards = options.get("use_list_shards", False)
        self._create_stream = options.get("create_stream", False)
        self._create_stream_shards = options.get("create_stream_shards", 1)
        check_count("create_stream_shards", self._create_stream_shards, 1)
        self._describe_timeout = options.get("describe_timeout", DEFAULT_DESCRIBE_TIMEOUT)
        check_seconds("describe_timeout", self._describe_timeout)
        self._on_outage = on_outage
        self._resources = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._retention: float | None = None
        self._stream_look = SharedLook(self._look_at_stream)
        self._max_record_bytes: int | None = None
        self._round = 0  # of attempts
        self._next_report = 0.0
        self._waiting = asyncio.Lock()

    @property
    def stream_name(self) -> str:
        """The stream's name, without the rest of an ARN."""
        return self._name

    @property
    def region_name(self) -> str | None:
        """As it was given, or as the ARN has it."""
        return self._region

    @property
    def address(self) -> dict[str, str]:
        """How requests name the stream."""
        return {"StreamName": self._name} if self._arn is None else {"StreamARN": self._arn}

    @property
    def retention_seconds(self) -> float | None:
        """How long the stream keeps a record, as last seen; None if that is not known."""
        return self._retention

    @property
    def max_record_bytes(self) -> int | None:
        """The largest record that the stream takes, key included, as last seen; None if that is not known."""
        return self._max_record_bytes

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return self._client is not None

    # Life.

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Open it; make the stream, and wait until it can be used, as the options say.

        Raises:
            StreamDoesNotExist: there is no such stream.
            StreamShardLimit: it cannot be made.
            StreamStatusInvalid: it did not become ACTIVE in time.
            ConnectionError: the service cannot be reached.
        """
        async with self._opening:  # the second to ask waits until the stream can be used, too
            if not self.is_open:
                await self._open()

    async def _open(self) -> None:
        from aiobotocore.config import AioConfig

        from fastkcl.kinesis.read.bodies import GatedSession

        session = self._given_session or new_session()
        config = AioConfig(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            retries={"total_max_attempts": 1},
            max_pool_connections=MAX_CONNECTIONS,
            **({} if has_http_session(session) else {"http_session_cls": GatedSession}),
        )
        async with AsyncExitStack() as resources:
            where = {"region_name": self._region, "endpoint_url": self._endpoint_url, "config": config}
            client = masked(await resources.enter_async_context(session.create_client("kinesis", **where)))
            client.meta.events.register("before-parse.kinesis.GetRecords", _take_body)
            client.meta.events.register_last("before-send", _send_in_pieces)  # a program's handlers see bytes
            self._client = client
            try:
                if self._create_stream:
                    await self.create_stream(self._create_stream_shards, exists_ok=True)
                if self._create_stream or not self.skip_describe_stream:
                    await self.wait_active(is_made=self._create_stream)
            except BaseException:
                self._client = None
                raise
            self._resources = resources.pop_all()

    async def close(self) -> None:
        """End its connections. Again, nothing happens."""
        self._client = None
        await self._resources.aclose()

    # Calls.

    async def call(
        self,
        operation: str,
        request: Mapping[str, object],
        *,
        on_outage: Callable[[BaseException], None] | None = None,
    ) -> dict[str, Any]:
        """Call the service, again and again while it is away.

        Args:
            operation: aiobotocore's method, e.g. ``put_records``.
            request: its arguments, `address` included where the stream is to be named.
            on_outage: of this call, in the place of the client's.

        Raises:
            ConnectionError: the service was away for all attempts; the last failure is its cause.
            botocore.exceptions.ClientError: the service's error about the request, throttling included.
        """
        failures = 0
        while True:
            attempt = self._round
            try:
                answer = await self.call_once(operation, request)
            except Exception as error:
                if failure_of(error) is not Failure.UNAVAILABLE:
                    self._policy.succeeded()
                    raise
                (on_outage or self._on_outage)(error)
                failures += 1
                if failures == 1:
                    self._report_outage(operation, error)
                # Others may succeed meanwhile, where the service fails at this call only.
                if failures > self._policy.limit or not await self._wait_in_outage(attempt):
                    raise ConnectionError(
                        f"{operation} of {self._name}: the service cannot be reached, after "
                        f"{self._policy.limit} attempts to reconnect: {without_sent(str(error))}"
                    ) from error
            else:
                self._policy.succeeded()
                return answer

    def try_again(self) -> None:
        """The program asks again after a ConnectionError: there are as many attempts as before."""
        self._policy.succeeded()

    def _report_outage(self, operation: str, error: BaseException) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next_report:
            return
        self._next_report = now + REPORT_PAUSE
        said = "%s of %s: the service cannot be reached, and is tried again up to %d times: %s"
        log.warning(said, operation, self._name, self._policy.limit, without_sent(str(error)))

    async def call_once(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        """Call the service one time.

        Raises:
            RuntimeError: the client is not open.
            ConnectionError: the answer lacks what such an answer has.
            Exception: those that `failure_of` knows.
        """
        if self._client is None:
            raise RuntimeError(f"the client of {self._name} is not open: use it in `async with`, or open() it first")
        with cut_off_in_silence():
            return checked(operation, await getattr(self._client, operation)(**request))

    async def _wait_in_outage(self, attempt: int) -> bool:
        """Wait for the next attempt of all tasks; False if there is none."""
        async with self._waiting:
            if attempt == self._round:  # otherwise another task has waited for it
                pause = self._policy.failed()
                if pause is None:
                    return False
                await asyncio.sleep(pause)
                self._round += 1
            return True

    async def _call_patiently(self, operation: str, request: Mapping[str, object]) -> dict[str, Any]:
        """A call about the stream as a whole, which accounts may make only so often."""
        backoff = Backoff()
        throttled = 0
        while True:
            try:
                return await self.call(operation, request)
            except Exception as error:
                match failure_of(error):
                    case Failure.NOT_FOUND:
                        raise StreamDoesNotExist(f"there is no stream {self._arn or self._name}: {error}") from error
                    case Failure.THROTTLED if throttled < MAX_THROTTLED:
                        throttled += 1
                        if throttled == failures.FEW_THROTTLED + 1:
                            log.warning("%s of %s is throttled, and is made again: %s", operation, self._name, error)
                        await asyncio.sleep(backoff.next())
                    case _:
                        raise

    # The stream.

    async def create_stream(self, shards: int, *, exists_ok: bool = False) -> None:
        """Make the stream; it is not ACTIVE at once.

        Raises:
            StreamExists: it is there already, unless that is all right.
            StreamShardLimit: the account may not have it.
        """
        try:
            await self.call("create_stream", {"StreamName": self._name, "ShardCount": shards})
        except Exception as error:
            match error_code(error):
                case "ResourceInUseException" if exists_ok:
                    return
                case "ResourceInUseException":
                    raise StreamExists(f"{self._name} is there already: {error}") from error
                case "LimitExceededException":
                    raise StreamShardLimit(f"{self._name} with {shards} shards: {error}") from error
            raise

    async def describe(self) -> dict[str, Any]:
        """DescribeStream's StreamDescription, with the shards of all its pages.

        Raises:
            StreamDoesNotExist: there is no such stream.
        """
        description: dict[str, Any] = (await self._call_patiently("describe_stream", self.address))["StreamDescription"]
        page = description
        while page["HasMoreShards"]:
            last = description["Shards"][-1]["ShardId"]
            request = {**self.address, "ExclusiveStartShardId": last}
            page = (await self._call_patiently("describe_stream", request))["StreamDescription"]
            description["Shards"] += page["Shards"]
        self._note_stream(description)
        return {**description, "HasMoreShards": False}

    async def list_shards(self) -> list[Shard]:
        """All shards of the stream, closed ones too, as the options say; and a look at its retention.

        Raises:
            StreamDoesNotExist: there is no such stream.
        """
        if not (self._use_list_shards or self.skip_describe_stream):
            return [Shard.from_answer(shard) for shard in (await self.describe())["Shards"]]
        try:
            shards = await self._list_shards()
        except (StreamDoesNotExist, ConnectionError):
            raise
        except Exception:
            if self.skip_describe_stream:
                raise
            return [Shard.from_answer(shard) for shard in (await self.describe())["Shards"]]
        await self.look_at_stream()
        return shards

    async def _list_shards(self) -> list[Shard]:
        shards: list[Shard] = []
        request = self.address
        while True:
            answer = await self._call_patiently("list_shards", request)
            shards += map(Shard.from_answer, answer["Shards"])
            if not answer.get("NextToken"):
                return shards
            request = {"NextToken": answer["NextToken"]}

    async def wait_active(self, *, is_made: bool = False) -> None:
        """Wait until the stream can be read and written: it is ACTIVE, or is being resharded.

        With `skip_describe_stream` or `use_list_shards` it needs no DescribeStream: a list of shards will do.

        Args:
            is_made: it was made just now, and may not be visible yet.

        Raises:
            StreamDoesNotExist: there is no such stream.
            StreamStatusInvalid: it is being deleted, or describe_timeout is over.
            ConnectionError: the service has not answered for as long.
        """
        status = "unknown"
        try:
            async with asyncio.timeout(self._describe_timeout):
                while True:
                    try:
                        status = await self._status()
                    except StreamDoesNotExist:
                        if not is_made:
                            raise
                        status = "not visible"
                    if status in ("ACTIVE", "UPDATING"):
                        return
                    if status == "DELETING":
                        raise StreamStatusInvalid(f"{self._name} is being deleted")
                    await asyncio.sleep(DESCRIBE_PAUSE)
        except TimeoutError as error:
            over = f"after the {self._describe_timeout:g} s of describe_timeout"
            if status == "unknown":
                raise ConnectionError(f"{self._name}: the service has not answered {over}") from error
            raise StreamStatusInvalid(f"{self._name} is {status} {over}") from error

    async def _status(self) -> str:
        if not (self._use_list_shards or self.skip_describe_stream):
            answer = await self._call_patiently("describe_stream", {**self.address, "Limit": 1})
            return self._note_stream(answer["StreamDescription"])
        try:
            answer = await self._call_patiently("describe_stream_summary", self.address)
        except (StreamDoesNotExist, ConnectionError):
            raise
        except Exception as error:
            log.info("%s: it is looked at by ListShards: %s", self._name, error)
            await self._call_patiently("list_shards", {**self.address, "MaxResults": 1})
            return "ACTIVE"
        return self._note_stream(answer["StreamDescriptionSummary"])

    async def look_at_stream(self, pause: float = 0.0) -> None:
        """Look at the stream's retention (`SharedLook`); where that is not allowed or fails, it stays as it was."""
        await self._stream_look.at(pause)

    async def _look_at_stream(self) -> None:
        try:
            answer = await self.call_once("describe_stream_summary", self.address)
        except Exception as error:
            log.info("%s: its retention is not known: %s", self._name, error)
        else:
            self._note_stream(answer["StreamDescriptionSummary"])

    def _note_stream(self, description: Mapping[str, Any]) -> str:
        self._retention = 3600.0 * (description.get("RetentionPeriodHours") or 0) or None
        kib = description.get("MaxRecordSizeInKiB")
        self._max_record_bytes = kib * 1024 if kib else self._max_record_bytes
        return str(description["StreamStatus"])

    async def get_records(
        self,
        shard_id: str,
        iterator: str,
        limit: int,
        then: Callable[[GetRecordsAnswer], _T],
        *,
        on_outage: Callable[[BaseException], None] | None = None,
        gate: Gate | None = None,
    ) -> _T:
        """Read from a shard; the records are decoded into Arrow columns.

        Args:
            shard_id: noted in the batch.
            iterator: the position to read from, and its shard.
            limit: records, 1 to 10,000.
            then: called with the answer while it is in the processor's cache: in the thread that has decoded it.
            on_outage: see `call`.
            gate: waits until there is room for a body of so many bytes, before it is read. Where the session has its
                own HTTP client, the body is there already.

        Raises:
            DecodeError: the answer cannot be read.
            ConnectionError: Kinesis has no such sequence numbers; or see `call`.
            Exception: see `call`, or the gate's error.
        """
        from fastkcl.kinesis.read.bodies import gated

        request: dict[str, object] = {"ShardIterator": iterator, "Limit": limit}
        if self._arn is not None:
            request["StreamARN"] = self._arn
        with nullcontext() if gate is None else gated(gate):
            answer = await self.call("get_records", request, on_outage=on_outage)
        body, content_type = answer.pop(BODY)
        if gate is not None:
            await gate(len(body))

        def read() -> _T:
            decoded = decode_get_records(body, content_type, shard_id=shard_id)
            check_records(decoded.batch)
            return then(decoded)

        return read() if len(body) < LARGE_BODY else await asyncio.to_thread(read)


_ARN = re.compile(r"arn:[^:]*:kinesis:[^:]*:[^:]*:stream/[^/:]+")


def _take_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object) -> None:
    """Take the body of a GetRecords answer before botocore's parser makes objects of its records."""
    if response_dict["status_code"] < 300:
        content_type = response_dict["headers"].get("Content-Type", "application/x-amz-json-1.1")
        customized_response_dict[BODY] = (response_dict["body"], content_type)
        response_dict["body"] = b'{"Records":[]}'


def _send_in_pieces(request: Any, **_: object) -> None:  # noqa: ANN401
    """Let a large body be sent as a file: as one piece of bytes it would block the event loop."""
    if isinstance(request.body, bytes) and len(request.body) > LARGE_BODY:
        request.body = io.BytesIO(request.body)
