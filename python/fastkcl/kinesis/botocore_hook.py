"""The decoder for GetRecords answers in programs that use botocore themselves: boto3, aiobotocore.

botocore's parser turns every record of an answer into objects before a program sees one. With the hook, records are
decoded into Arrow columns, and objects are made of them at the first access:

    body  ▏{"Records": ▏[{…}, {…}, …]▏, "NextShardIterator": …}▏
                        └─ decode_get_records ─▶ response["RecordBatch"]
                                                      └─ on first access ─▶ response["Records"], a list of dicts
          ▏{"Records": ▏[]           ▏, "NextShardIterator": …}▏ ── botocore's own parser ─▶ everything else

Rules: GetRecords of Kinesis only, answers of success only. A program sees the result of botocore's parser, and
`RecordBatch` beside it. Parsers to which a program has given its own timestamp or blob parser stay as they
are. The hook applies to all clients of the process, also to existing ones, in every thread. If an answer cannot be
read, it raises `DecodeError`; botocore's parser would return an answer without records.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from fastkcl import _core

__all__ = ["BotocoreHook", "GetRecordsResponse", "install_botocore"]

_RECORDS, _RECORD_BATCH = "Records", "RecordBatch"
_RECORD_MEMBERS = frozenset({"Data", "PartitionKey", "SequenceNumber"})
_EMPTY_LISTS = {"application/x-amz-json-1.1": b"[]", "application/cbor": b"\x80"}

_lock = threading.Lock()
_hooks = 0
_patched: list[tuple[type, Callable[..., Any], Callable[..., Any]]] = []
"""Class, its own `parse`, ours."""


class _Unmade:
    """Stands for the records until they are made."""

    def __init__(self, batch: _core.RecordBatch) -> None:
        self.lock = threading.Lock()
        self.batch = batch


class GetRecordsResponse(dict[str, Any]):
    """An answer whose `Records` are made when they are first looked at. Otherwise a dictionary like any other.

    Items: those of botocore's own answer, and `RecordBatch`, a `fastkcl.RecordBatch`.
    """

    __slots__ = ()

    def _made(self) -> Self:
        unmade: object = dict.get(self, _RECORDS)
        if isinstance(unmade, _Unmade):
            batch = unmade.batch
            with unmade.lock:
                if dict.get(self, _RECORDS) is unmade:
                    self[_RECORDS] = _core.record_dicts(batch, _moments())
        return self

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401, D105
        return dict.__getitem__(self._made() if key == _RECORDS else self, key)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401, D102
        return dict.get(self._made() if key == _RECORDS else self, key, default)

    def __iter__(self) -> Iterator[str]:  # noqa: D105 - so that dict(response) and {**response} come by
        return super().__iter__()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # noqa: D102
        return dict.items(self._made())

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # noqa: D102
        return dict.values(self._made())

    def pop(self, key: str, *default: Any) -> Any:  # noqa: ANN401, D102
        return dict.pop(self._made(), key, *default)

    def popitem(self) -> tuple[str, Any]:  # noqa: D102
        return dict.popitem(self._made())

    def setdefault(self, key: str, default: Any = None) -> Any:  # noqa: ANN401, D102
        return dict.setdefault(self._made(), key, default)

    def copy(self) -> dict[str, Any]:  # noqa: D102
        return dict.copy(self._made())

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        import copy

        # A batch is immutable, and has no copies.
        return {key: value if key == _RECORD_BATCH else copy.deepcopy(value, memo) for key, value in self.items()}

    def __or__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401
        return dict.__or__(self.copy(), other)

    def __ror__(self, other: Any) -> dict[str, Any]:  # type: ignore[override]  # noqa: ANN401
        return dict.__or__(other, self.copy())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._made(), other._made() if isinstance(other, GetRecordsResponse) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce_ex__(self, protocol: object) -> tuple[type, tuple[dict[str, Any]]]:
        """Pickled as botocore's own answer: a batch does not travel."""
        return dict, ({key: value for key, value in self.items() if key != _RECORD_BATCH},)

    def __repr__(self) -> str:
        return dict.__repr__(self._made())


def _moments() -> Callable[[float], datetime]:
    """Seconds since the epoch as botocore's parser gives them: in the local zone, as dateutil knows it.

    That takes most of the time of botocore's parser. Zones change at quarters of an hour, so each of these is asked for
    once.
    """
    from botocore.utils import parse_timestamp

    quarters: dict[float, datetime] = {}

    def moment(seconds: float) -> datetime:
        begin = seconds // 900 * 900
        quarter = quarters.get(begin)
        if quarter is None:
            quarter = quarters[begin] = parse_timestamp(begin)
        return (quarter + timedelta(seconds=seconds - begin)).replace(fold=quarter.fold)

    return moment


class BotocoreHook:
    """An installed hook. As a context manager, it is installed until the block ends."""

    def __init__(self) -> None:
        self._installed = True
        _install()

    def uninstall(self) -> None:
        """Take this hook away; botocore's own parser works again when no other one is left. Again, nothing happens."""
        with _lock:
            installed, self._installed = self._installed, False
        if installed:
            _uninstall()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.uninstall()


def install_botocore() -> BotocoreHook:
    """Have GetRecords answers decoded by fastkcl in all botocore and aiobotocore clients of this process.

    `response["RecordBatch"]` is the batch then, and `response["Records"]` the list that it always was, made when it is
    first looked at.

    Returns:
        An object that removes the hook again, and a context manager that does so: ``with install_botocore(): ...``.

    Raises:
        ImportError: botocore is not installed.
    """
    return BotocoreHook()


def _install() -> None:
    global _hooks
    from botocore.parsers import ResponseParser

    classes: list[type] = [ResponseParser]
    if importlib.util.find_spec("aiobotocore") is not None:
        from aiobotocore.parsers import AioResponseParser

        classes.append(AioResponseParser)
    with _lock:
        _hooks += 1
        if _patched:
            return
        for parser in classes:
            original = vars(parser)["parse"]
            parse = _asynchronous(original) if parser is not ResponseParser else _synchronous(original)
            parser.parse = parse  # type: ignore[attr-defined]
            _patched.append((parser, original, parse))


def _uninstall() -> None:
    global _hooks
    with _lock:
        _hooks -= 1
        if _hooks > 0:
            return
        for parser, original, parse in _patched:
            # Where somebody else has put theirs above it, ours stays below and does nothing.
            if vars(parser)["parse"] is parse:
                parser.parse = original  # type: ignore[attr-defined]
        _patched.clear()


def _synchronous(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    @functools.wraps(original)
    def parse(self: Any, response: dict[str, Any], shape: Any) -> dict[str, Any]:  # noqa: ANN401
        content_type = _content_type(self, response, shape)
        if content_type is None:
            return original(self, response, shape)
        rest, batch = _take_records(response, content_type)
        return _with_records(original(self, rest, shape), batch)

    return parse


def _asynchronous(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def parse(self: Any, response: dict[str, Any], shape: Any) -> dict[str, Any]:  # noqa: ANN401
        content_type = _content_type(self, response, shape)
        if content_type is None:
            answer: dict[str, Any] = await original(self, response, shape)
            return answer
        rest, batch = _take_records(response, content_type)
        return _with_records(await original(self, rest, shape), batch)

    return parse


def _content_type(parser: Any, response: Mapping[str, Any], shape: Any) -> str | None:  # noqa: ANN401
    """How the records are written; None for others."""
    from botocore.parsers import DEFAULT_TIMESTAMP_PARSER, JSONParser, ResponseParser, RpcV2CBORParser

    if not _hooks or response["status_code"] >= 300:
        return None
    if response.get("context", {}).get("operation_name") != "GetRecords" or not _is_kinesis(shape):
        return None
    if (
        parser._timestamp_parser is not DEFAULT_TIMESTAMP_PARSER
        or getattr(parser._blob_parser, "__func__", None) is not ResponseParser._default_blob_parser
    ):
        return None
    if isinstance(parser, JSONParser):
        return "application/x-amz-json-1.1"
    return "application/cbor" if isinstance(parser, RpcV2CBORParser) else None


def _is_kinesis(shape: Any) -> bool:  # noqa: ANN401
    """Whether it is the answer of Kinesis: DynamoDB Streams has an operation of the same name."""
    records = getattr(shape, "members", {}).get(_RECORDS)
    return records is not None and records.member.members.keys() >= _RECORD_MEMBERS


def _take_records(response: dict[str, Any], content_type: str) -> tuple[dict[str, Any], _core.RecordBatch]:
    """The response without its records, and these."""
    body = response["body"]
    answer = _core.decode_get_records(body, content_type)
    start, end = answer.records_span
    return {**response, "body": body[:start] + _EMPTY_LISTS[content_type] + body[end:]}, answer.batch


def _with_records(parsed: dict[str, Any], batch: _core.RecordBatch) -> GetRecordsResponse:
    return GetRecordsResponse({**parsed, _RECORDS: _Unmade(batch), _RECORD_BATCH: batch})
