"""Puts items into records and takes them out again: the half of a processor that defines the layout of a record.

==================  ===================================  =====================================
aggregator          one record                           parsing gives
==================  ===================================  =====================================
SimpleAggregator    one item as it is                    that item
NewlineAggregator   each item and a line feed            one for each line that is not empty
ListAggregator      a JSON list of the items             **one** list
NetstringAggregator ``<decimal length>:<bytes>,`` each   each item
KPLAggregator       a KPL aggregate                      each user record; plain records pass
==================  ===================================  =====================================

Rules: a record has at most `max_bytes`, counted as they are written. A record of several items stays strictly below
`max_bytes`: the item that would reach it begins another record. So does an item with another partition key. The order
is kept, and each item is in exactly one record. An item that fits into no record is refused before anything changes.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fastkcl import _core
from fastkcl.kinesis.bounds import check_count
from fastkcl.kinesis.exceptions import DeserializeError, ExceededPutLimit, ValidationError

__all__ = [
    "BaseAggregator",
    "KPLAggregator",
    "ListAggregator",
    "NetstringAggregator",
    "NewlineAggregator",
    "OutputItem",
    "SimpleAggregator",
]

UNIT_KIB = 25
"""A PUT payload unit, in which the service counts: records are bounded by whole ones."""
MAX_UNITS = 40
DEFAULT_MAX_SIZE = 1024  # KiB
LARGEST_BYTES = 10 * 2**20 - 256
"""Of a record without its key, where the stream takes 10 MiB."""


class OutputItem(NamedTuple):
    """A record to put.

    Attributes:
        size: bytes of `data`.
        n: items in it.
        data: to put.
        partition_key: of all of its items; None for any.
    """

    size: int
    n: int
    data: bytes
    partition_key: str | None


if TYPE_CHECKING:  # the serializer that a processor has as well, after the aggregator in the order of its bases
    from fastkcl.kinesis.items.serializers import Serializer as _Base
else:
    _Base = abc.ABC


class BaseAggregator(_Base):
    """The base of all aggregators, and so of all processors: a processor is an aggregator with a serializer.

    Args:
        max_size: of a record, in KiB, rounded down to a multiple of 25 from 25 to 1000. None for the most.
        max_bytes: of a record, in the place of `max_size`: for streams whose MaxRecordSize is larger, up to 10 MiB less
            256 bytes for the key.

    Attributes:
        max_bytes: of a record.

    Raises:
        ValidationError: `max_size` or `max_bytes` is out of range.
    """

    deaggregates: ClassVar[bool] = False
    """Whether records may be KPL aggregates: then `deserialize` is for user records, `parse` for whole records."""

    def __init__(self, max_size: float | None = None, *, max_bytes: int | None = None) -> None:
        if max_bytes is not None:
            if max_size is not None:
                raise ValidationError("max_size and max_bytes exclude each other")
            check_count("max_bytes", max_bytes, 1, LARGEST_BYTES)
            self.max_bytes = max_bytes
            return
        units = int((DEFAULT_MAX_SIZE if max_size is None else max_size) // UNIT_KIB)
        if not 1 <= units <= MAX_UNITS:
            raise ValidationError(
                f"max_size is from {UNIT_KIB} KiB to below {(MAX_UNITS + 1) * UNIT_KIB} KiB, not {max_size}"
            )
        self.max_bytes = units * UNIT_KIB * 1024

    @abc.abstractmethod
    def add_item(self, item: Any, partition_key: str | None = None) -> list[OutputItem]:  # noqa: ANN401
        """Take an item, and give the records that are complete by it.

        Raises:
            ExceededPutLimit: no record has room for it.
            ValidationError: it cannot be in such a record.
        """

    def get_items(self) -> list[OutputItem]:
        """Return the open record."""
        return []

    def has_items(self) -> bool:
        """Whether anything is open."""
        return False

    def parse(self, data: bytes) -> list[Any]:
        """The items of a record.

        Raises:
            DeserializeError: the record cannot be read.
        """
        return [self.deserialize(data)]

    def _check_fits(self, size: int) -> None:
        if size > self.max_bytes:
            raise ExceededPutLimit(f"an item of {size} bytes, framing included: a record holds {self.max_bytes}")


class SimpleAggregator(BaseAggregator):
    """Each item is a record."""

    def add_item(self, item: Any, partition_key: str | None = None) -> list[OutputItem]:  # noqa: ANN401
        """The item's own record."""
        data = self.serialize(item)
        self._check_fits(len(data))
        return [OutputItem(len(data), 1, data, partition_key)]


class _FramingAggregator(BaseAggregator):
    """Items one after the other, each with its framing, between the opening and the closing of the record."""

    _OPENING: ClassVar[bytes] = b""
    _SEPARATOR: ClassVar[bytes] = b""
    _CLOSING: ClassVar[bytes] = b""

    def __init__(self, max_size: float | None = None, *, max_bytes: int | None = None) -> None:
        super().__init__(max_size, max_bytes=max_bytes)
        self._alone = len(self._OPENING) + len(self._CLOSING)  # bytes around the first item
        self._more = len(self._SEPARATOR)  # and before each other
        self._frames: list[bytes] = []
        self._size = 0
        self._partition_key: str | None = None

    @abc.abstractmethod
    def _frame(self, data: bytes) -> bytes:
        """An item as a record has it."""

    def add_item(self, item: Any, partition_key: str | None = None) -> list[OutputItem]:  # noqa: ANN401
        """The record before it, if that is complete now."""
        frame = self._frame(self.serialize(item))
        alone = self._alone + len(frame)
        if alone > self.max_bytes:
            self._check_fits(alone)
        closed: list[OutputItem] = []
        size = self._size + self._more + len(frame)
        if self._frames and (partition_key != self._partition_key or size >= self.max_bytes):
            closed = self.get_items()
        self._size = size if self._frames else alone
        self._frames.append(frame)
        self._partition_key = partition_key
        return closed

    def get_items(self) -> list[OutputItem]:
        """The open record, if there is one."""
        if not self._frames:
            return []
        data = self._OPENING + self._SEPARATOR.join(self._frames) + self._CLOSING
        record = OutputItem(self._size, len(self._frames), data, self._partition_key)
        self._frames, self._size = [], 0
        return [record]

    def has_items(self) -> bool:
        """Whether a record is open."""
        return bool(self._frames)


class NewlineAggregator(_FramingAggregator):
    """Items that are lines: their bytes are neither empty nor have a line feed in them."""

    _SEPARATOR = _CLOSING = b"\n"

    def _frame(self, data: bytes) -> bytes:
        if not data or b"\n" in data:
            raise ValidationError("an item of a line must not be empty, nor have a line feed in it")
        return data

    def parse(self, data: bytes) -> list[Any]:
        """One item for each line that is not empty."""
        return [self.deserialize(line) for line in data.split(b"\n") if line]


class ListAggregator(_FramingAggregator):
    """Items that are elements of one JSON list, for serializers that write JSON."""

    _OPENING = b"["
    _SEPARATOR = b", "
    _CLOSING = b"]"

    def _frame(self, data: bytes) -> bytes:
        return data


class NetstringAggregator(_FramingAggregator):
    """Items of any bytes, with their lengths."""

    def _frame(self, data: bytes) -> bytes:
        return b"%d:%b," % (len(data), data)

    def parse(self, data: bytes) -> list[Any]:
        """Each item; none of no data."""
        try:
            items = _core.split_netstrings(data)
        except ValueError as error:
            raise DeserializeError(str(error), "framing") from None
        return [self.deserialize(item) for item in items]


class KPLAggregator(BaseAggregator):
    """Items that are user records of KPL aggregates.

    Readers drop an aggregate from a shard that does not own the keys of its user records. So all user records have one
    key, which is the record's own as well: the shard that gets the record owns it.

    Args:
        max_size: of a record with its partition key, in KiB, as elsewhere.
        max_bytes: of such a record, as elsewhere.
        partition_key: of all records; it decides on the shard that they go to.

    Raises:
        ValidationError: `max_size` is out of range.
    """

    deaggregates = True

    def __init__(
        self, max_size: float | None = None, *, max_bytes: int | None = None, partition_key: str = "a"
    ) -> None:
        super().__init__(max_size, max_bytes=max_bytes)
        self._partition_key = partition_key
        self._open = _core.Aggregate()

    def add_item(self, item: Any, partition_key: str | None = None) -> list[OutputItem]:  # noqa: ANN401
        """The aggregate before it, if that is complete now.

        Raises:
            ExceededPutLimit: no record has room for it.
            ValueError: a partition key is given.
        """
        if partition_key is not None:
            raise ValueError("Custom partition keys are not supported with KPL aggregates: use a SimpleAggregator")
        data = self.serialize(item)
        self._check_fits(_core.Aggregate().size_with(self._partition_key, len(data)))
        closed: list[OutputItem] = []
        if self.has_items() and self._open.size_with(self._partition_key, len(data)) >= self.max_bytes:
            closed = self.get_items()
        self._open.add(self._partition_key, data)
        return closed

    def get_items(self) -> list[OutputItem]:
        """The open aggregate, if there is one."""
        if not self.has_items():
            return []
        data = self._open.encode()
        record = OutputItem(len(data), len(self._open), data, self._partition_key)
        self._open = _core.Aggregate()
        return [record]

    def has_items(self) -> bool:
        """Whether an aggregate is open."""
        return len(self._open) > 0

    def parse(self, data: bytes) -> list[Any]:
        """Each user record; a plain record is one item."""
        return [self.deserialize(item) for item in _core.split_aggregate(data)]
