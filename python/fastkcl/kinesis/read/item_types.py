"""A consumer as a type checker knows it: its options, and the type of its items.

`Consumer[str]` hands out texts. The type is that of the processor's `deserialize`, or of `output`. A type that only a
run can tell, as with `JsonProcessor`, is `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from fastkcl.kinesis.checkpoints.base import CheckPointer
from fastkcl.kinesis.items.aggregators import OutputItem
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.read.data_loss import OnDataLoss
from fastkcl.kinesis.read.delivery import ConsumerRecord
from fastkcl.kinesis.read.reading import IteratorType

__all__ = ["Acknowledge", "ConsumerOptions", "Item", "ItemProcessor", "OnRecordError", "Output", "ProcessorItem"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Item = TypeVarWithDefault("Item", default=Any)
    """Of a `Consumer`; a plain `Consumer` is one of any."""
else:
    Item = TypeVar("Item")
ProcessorItem = TypeVar("ProcessorItem")
_Read = TypeVar("_Read", covariant=True)

OnRecordError = Literal["raise", "skip"] | Callable[[ConsumerRecord, Exception], object]
Output = Literal["items", "records", "batches"]
Acknowledge = Literal["next", "explicit"]


class ItemProcessor(Protocol[_Read]):
    """A processor by the type of its items: an aggregator with a serializer."""

    def deserialize(self, data: bytes, /) -> _Read:
        """One item."""

    def parse(self, data: bytes, /) -> list[Any]:
        """The items of a record."""

    def add_item(self, item: Any, /, partition_key: str | None = None) -> list[OutputItem]:  # noqa: ANN401
        """Take an item, and give the records that are complete by it."""


class ConsumerOptions(StreamOptions, total=False):
    """The options of a `Consumer` that do not change the type of what it hands out; `Consumer` describes them."""

    max_queue_size: int
    max_queue_bytes: int
    max_shard_consumers: int | None
    record_limit: int
    sleep_time_no_records: float
    iterator_type: IteratorType
    timestamp: datetime | None
    shard_fetch_rate: float
    checkpointer: CheckPointer | None
    idle_timeout: float | None
    checkpoint_interval: float | None
    on_record_error: OnRecordError
    ack_timeout: float
    deaggregate: bool | None
    hash_range_check: bool
    max_batch_bytes: int
    on_data_loss: OnDataLoss
