"""The inputs of a record processor, and its records.

Each class can be made from the dict of one message, with the names of the wire, as users' tests do. fastkcl.kclpy.kcl
makes those of a daemon's messages. It has no dict for a record: the values are in the columns of a batch, and a
`Record` makes them at each access.
"""

from __future__ import annotations

import binascii

from fastkcl._core import DecodeError, KclpyRecordBase, decode_base64, kclpy_detach, kclpy_records
from fastkcl.kclpy.checkpoint_error import CheckpointError
from fastkcl.processing.processor import refuse_unrun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Any, NoReturn

    from fastkcl._core import RecordBatch
    from fastkcl.kclpy import kcl

__all__ = [
    "CheckpointError",
    "CheckpointInput",
    "InitializeInput",
    "LeaseLostCheckpointer",
    "LeaseLostInput",
    "MessageDispatcher",
    "ProcessRecordsInput",
    "Record",
    "ShardEndedInput",
    "ShutdownInput",
    "ShutdownRequestedInput",
]


class MessageDispatcher:
    """A daemon's request; knows the method of a processor that answers it."""

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call that method.

        Args:
            checkpointer: for the input, where one is allowed.
            record_processor: of version 3.

        Raises:
            TypeError: the method only made a coroutine or a generator, which nobody runs.
            Exception: the method's error.
        """
        raise NotImplementedError

    if not TYPE_CHECKING:  # a method here, as in the original, and a property of the inputs

        def action(self) -> str:
            """The action's name."""
            raise NotImplementedError


class InitializeInput(MessageDispatcher):
    """Which shard this process is for."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._shard_id = json_dict["shardId"]
        self._sequence_number = json_dict["sequenceNumber"]
        self._sub_sequence_number = json_dict["subSequenceNumber"]
        self._action = json_dict["action"]

    @property
    def shard_id(self) -> str:
        """E.g. ``shardId-000000000000``."""
        return self._shard_id  # type: ignore[no-any-return]

    @property
    def sequence_number(self) -> str | None:
        """The last checkpoint's position: decimal digits, TRIM_HORIZON, LATEST or AT_TIMESTAMP; None from KCL 1.7."""
        return self._sequence_number  # type: ignore[no-any-return]

    @property
    def sub_sequence_number(self) -> int | None:
        """The last checkpoint's position inside an aggregate; None from KCL 1.7."""
        return self._sub_sequence_number  # type: ignore[no-any-return]

    @property
    def action(self) -> str:
        """``initialize``."""
        return self._action  # type: ignore[no-any-return]

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call `initialize`."""
        refuse_unrun(record_processor, "initialize", record_processor.initialize(self))


class ProcessRecordsInput(MessageDispatcher):
    """A list of records, in the order of the shard."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._records = json_dict["records"]
        self._millis_behind_latest = json_dict["millisBehindLatest"]
        self._checkpointer: kcl.Checkpointer | None = None
        self._action = json_dict["action"]
        self._batch: RecordBatch | None = None
        self._received: tuple[Record, ...] = ()

    @property
    def records(self) -> list[Record]:
        """The records; may be empty. The list is the caller's."""
        return self._records  # type: ignore[no-any-return]

    @property
    def millis_behind_latest(self) -> int | None:
        """How far the shard is behind its tip, in milliseconds; None if the daemon does not say."""
        return self._millis_behind_latest  # type: ignore[no-any-return]

    @property
    def checkpointer(self) -> kcl.Checkpointer:
        """None until the input is dispatched."""
        return self._checkpointer  # type: ignore[return-value]

    @property
    def action(self) -> str:
        """``processRecords``."""
        return self._action  # type: ignore[no-any-return]

    @property
    def batch(self) -> RecordBatch | None:
        """The same records as Arrow columns, for pyarrow, polars and others without a copy. amazon_kclpy has no such.

        Valid for as long as it is held. None if the input was made from a dict.
        """
        return self._batch

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copy: the records, and not the batch that they were rows of."""
        return vars(self) | {"_batch": None, "_received": ()}

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call `process_records`."""
        self._checkpointer = checkpointer
        refuse_unrun(record_processor, "process_records", record_processor.process_records(self))


class LeaseLostCheckpointer:
    """Stands where a checkpointer is expected and none is possible."""

    def __init__(self) -> None:
        pass

    def checkpoint(self, sequence_number: str | None = None, sub_sequence_number: int | None = None) -> NoReturn:
        """Refuse; nothing is written.

        Raises:
            CheckpointError: always.
        """
        raise CheckpointError("Checkpointing is not allowed when the lease is lost")


class ShutdownInput:
    """Why a processor of version 1 or 2 is shut down."""

    def __init__(self, reason: str, checkpointer: Any) -> None:
        self._action = "shutdown"
        self._reason = reason
        self._checkpointer = checkpointer

    @staticmethod
    def zombie() -> ShutdownInput:
        """The lease is lost."""
        return ShutdownInput("ZOMBIE", LeaseLostCheckpointer())

    @staticmethod
    def terminate(checkpointer: Any) -> ShutdownInput:
        """The shard has ended and has to be checkpointed."""
        return ShutdownInput("TERMINATE", checkpointer)

    @property
    def reason(self) -> str:
        """TERMINATE or ZOMBIE."""
        return self._reason

    @property
    def checkpointer(self) -> Any:
        """Refuses every checkpoint if the reason is ZOMBIE."""
        return self._checkpointer

    @property
    def action(self) -> str:
        """``shutdown``."""
        return self._action


class LeaseLostInput(MessageDispatcher):
    """The lease is another worker's."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._action = json_dict["action"]

    @property
    def action(self) -> str:
        """``leaseLost``; ``shutdown`` from KCL 1."""
        return self._action  # type: ignore[no-any-return]

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call `lease_lost`."""
        refuse_unrun(record_processor, "lease_lost", record_processor.lease_lost(self))


class ShardEndedInput(MessageDispatcher):
    """All records of the shard have been delivered."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._checkpointer: kcl.Checkpointer | None = None
        self._action = json_dict["action"]

    @property
    def action(self) -> str:
        """``shardEnded``; ``shutdown`` from KCL 1."""
        return self._action  # type: ignore[no-any-return]

    @property
    def checkpointer(self) -> kcl.Checkpointer:
        """None until the input is dispatched."""
        return self._checkpointer  # type: ignore[return-value]

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call `shard_ended`."""
        self._checkpointer = checkpointer
        refuse_unrun(record_processor, "shard_ended", record_processor.shard_ended(self))


class ShutdownRequestedInput(MessageDispatcher):
    """The daemon is about to stop."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._checkpointer: kcl.Checkpointer | None = None
        self._action = json_dict["action"]

    @property
    def checkpointer(self) -> kcl.Checkpointer:
        """None until the input is dispatched."""
        return self._checkpointer  # type: ignore[return-value]

    @property
    def action(self) -> str:
        """``shutdownRequested``."""
        return self._action  # type: ignore[no-any-return]

    def dispatch(self, checkpointer: kcl.Checkpointer, record_processor: Any) -> None:
        """Call `shutdown_requested`."""
        self._checkpointer = checkpointer
        refuse_unrun(record_processor, "shutdown_requested", record_processor.shutdown_requested(self))


class CheckpointInput:
    """A daemon's answer to a checkpoint."""

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._sequence_number = json_dict["sequenceNumber"]
        self._sub_sequence_number = json_dict["subSequenceNumber"]
        self._error = json_dict.get("error")

    @property
    def sequence_number(self) -> str | None:
        """As it was asked for."""
        return self._sequence_number  # type: ignore[no-any-return]

    @property
    def sub_sequence_number(self) -> int | None:
        """As it was asked for."""
        return self._sub_sequence_number  # type: ignore[no-any-return]

    @property
    def error(self) -> str | None:
        """Name of the error; None on success."""
        return self._error


# The attributes of a received record by their names on the wire, also in classes that derive from `Record`.
_FIELDS = {
    field: vars(KclpyRecordBase)[name].__get__
    for field, name in {
        "data": "data",
        "partitionKey": "partition_key",
        "sequenceNumber": "sequence_number",
        "approximateArrivalTimestamp": "timestamp_millis",
        "subSequenceNumber": "sub_sequence_number",
    }.items()
}
_payload = vars(KclpyRecordBase)["binary_data"].__get__


class _WithAttributes(KclpyRecordBase):
    """Its instances have a real ``__dict__``, which `_attributes` gives."""


_attributes = vars(_WithAttributes)["__dict__"].__get__


class _PrivateAttribute:
    """An attribute that the original keeps a value in. Setting it makes the record one like the original's."""

    def __set_name__(self, owner: type[Record], name: str) -> None:
        self._name = name

    def __get__(self, record: Record | None, owner: type[Record]) -> Any:
        if record is None:
            return self
        attributes = _attributes(record)
        if self._name in attributes:
            return attributes[self._name]
        if record._is_received():
            return _received_attributes(record)[self._name]
        if self._name == "_approximate_arrival_timestamp":
            return record.approximate_arrival_timestamp
        raise AttributeError(f"{type(record).__name__!r} object has no attribute {self._name!r}")

    def __set__(self, record: Record, value: Any) -> None:
        record._own_attributes()[self._name] = value

    def __delete__(self, record: Record) -> None:
        if record._own_attributes().pop(self._name, self) is self:
            raise AttributeError(self._name)


def _received_attributes(record: Record) -> dict[str, Any]:
    """The original's attributes of a received record."""
    fields = {field: get(record) for field, get in _FIELDS.items()}
    millis = fields["approximateArrivalTimestamp"]
    made = {
        "_sequence_number": fields["sequenceNumber"],
        "_sub_sequence_number": fields["subSequenceNumber"],
        "_timestamp_millis": millis,
    }
    made |= _time_attribute(millis)
    made["_partition_key"] = fields["partitionKey"]
    made["_data"] = fields["data"]
    made["_json_dict"] = fields | {"action": "record"}
    return made


def _time_attribute(millis: int | None) -> dict[str, Any]:
    """The original's name for a record's time, and that time; nothing where it is beyond the range of datetime."""
    try:
        return {"_approximate_arrival_timestamp": _local_time(millis)}
    except (ValueError, OverflowError, OSError):
        return {}


def _local_time(millis: int | None) -> datetime | None:
    from datetime import datetime

    return None if millis is None else datetime.fromtimestamp(millis / 1000.0)


class Record(_WithAttributes):
    """One record. Values are made at each access; keep a value rather than ask for it twice.

    A record may be kept for ever, pickled, copied, and given attributes. While its batch is processed it is a view of
    the batch, later it owns its values; no record keeps its batch in memory. Whoever looks at its ``__dict__`` finds
    there the original's values.

    Args:
        json_dict: data (base64), partitionKey, sequenceNumber, subSequenceNumber and approximateArrivalTimestamp
            (milliseconds since the epoch) as a daemon writes them.

    Raises:
        KeyError: one of the five is missing.
    """

    _sequence_number = _PrivateAttribute()
    _sub_sequence_number = _PrivateAttribute()
    _timestamp_millis = _PrivateAttribute()
    _approximate_arrival_timestamp = _PrivateAttribute()
    _partition_key = _PrivateAttribute()
    _data = _PrivateAttribute()
    _json_dict = _PrivateAttribute()

    def __init__(self, json_dict: Mapping[str, Any]) -> None:
        self._sequence_number = json_dict["sequenceNumber"]
        self._sub_sequence_number = json_dict["subSequenceNumber"]
        millis = json_dict["approximateArrivalTimestamp"]
        self._timestamp_millis = None if millis is None else int(millis)
        self._partition_key = json_dict["partitionKey"]
        self._data = json_dict["data"]
        self._json_dict = json_dict

    if TYPE_CHECKING:
        # Null only where a daemon sends it, which the original does not survive.
        binary_data: bytes
        data: str
        sub_sequence_number: int
        timestamp_millis: int
    else:

        @property
        def __dict__(self) -> dict[str, Any]:
            """The attributes, the original's private ones among them."""
            attributes = self._own_attributes()
            if "_timestamp_millis" in attributes and "_approximate_arrival_timestamp" not in attributes:
                attributes.update(_time_attribute(attributes["_timestamp_millis"]))
            return attributes

    def _own_attributes(self) -> dict[str, Any]:
        """The real attributes; from now on the values are among them."""
        attributes: dict[str, Any] = _attributes(self)
        if self._is_received():
            values = _received_attributes(self)
            self._set_attributes()
            for name, value in values.items():
                attributes.setdefault(name, value)
        return attributes

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """Approximate time of arrival in this machine's time zone, without tzinfo. None if the daemon does not say.

        Raises:
            ValueError, OverflowError, OSError: beyond the range of datetime; `timestamp_millis` always works.
        """
        set_by_user = _attributes(self).get("_approximate_arrival_timestamp")
        return set_by_user or _local_time(self.timestamp_millis)  # type: ignore[return-value]  # None as said

    def get(self, field: str) -> Any:
        """A value by its name on the wire, e.g. ``data`` or ``partitionKey``.

        Raises:
            KeyError: there is no such field.
        """
        return self._get(field)

    def __getitem__(self, field: str) -> Any:
        return self.get(field)

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__getstate__()  # attributes and slots, or the state of a subclass
        if not self._is_received():
            return _new_record, (type(self),), state
        names = ("partitionKey", "sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")
        values = (_payload(self), *(_FIELDS[name](self) for name in names))
        return _restore_record, (type(self), values), state

    @staticmethod
    def _decode(text: str | bytes) -> bytes:
        """Data of a record that was made from a dict.

        Raises:
            binascii.Error: it is not base64.
        """
        try:
            return decode_base64(text.encode() if isinstance(text, str) else text)
        except DecodeError as error:
            raise binascii.Error(str(error)) from error


def _new_record(cls: type[Record]) -> Record:
    return cls.__new__(cls)


def _restore_record(cls: type[Record], values: tuple[Any, ...]) -> Record:
    record = cls.__new__(cls)
    record._set_received(*values)
    return record


class _Received(tuple[Record, ...]):
    """All records of a batch, which is over when this object goes.

    `kcl.KCLProcess` ends the batch before that; a user's own loop, in an overridden method, does not.
    """

    __slots__ = ()

    def __del__(self, detach: Callable[[tuple[Record, ...]], int] = kclpy_detach) -> None:
        detach(self)


_RECORD_INIT = Record.__init__


def input_of_batch(batch: RecordBatch, serializers: Mapping[str, Any]) -> Any:
    """The input for a batch of a daemon.

    Args:
        batch: its records.
        serializers: they make the input and the records. Where that is not `Record` as it is here, it sees dicts.
    """
    records: list[Any] = kclpy_records(batch, Record)
    received = _Received(records)
    if serializers["record"] is not Record or Record.__init__ is not _RECORD_INIT:
        records = [serializers["record"](record._json_dict) for record in records]
    made = serializers["processRecords"](
        {"action": "processRecords", "records": records, "millisBehindLatest": batch.millis_behind_latest}
    )
    if isinstance(made, ProcessRecordsInput):
        made._batch = batch
        made._received = received
    return made
