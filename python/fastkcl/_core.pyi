"""The Rust extension: bytes and file descriptors in, frozen objects and Arrow capsules out.

Private; the public names are re-exported by `fastkcl`. Every class here is frozen and safe to use
from several threads unless its docstring says otherwise.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar, final

from typing_extensions import Buffer, disjoint_base  # typing only; the runtime module imports nothing

__all__ = [
    "CANONICAL_COLUMNS",
    "DEFAULT_MAX_FRAME_BYTES",
    "DEFAULT_MAX_LINE_BYTES",
    "DEFAULT_MAX_MESSAGE_BYTES",
    "DIALECTS",
    "Aggregate",
    "Capabilities",
    "Checkpoint",
    "ChildShard",
    "Deaggregated",
    "DecodeError",
    "Decoder",
    "EndLineFramer",
    "FromStitchMessage",
    "GetRecordsAnswer",
    "Initialize",
    "KclpyRecordBase",
    "LeaseLost",
    "MarkerDecoder",
    "MarkerEvent",
    "MarkerReader",
    "MessageBatch",
    "OpenedPayloads",
    "PayloadReader",
    "Position",
    "ProcessRecords",
    "Reader",
    "Record",
    "RecordBatch",
    "SchemaReader",
    "ShardEnded",
    "Shutdown",
    "ShutdownRequested",
    "StitchDecoder",
    "ToStitchMessage",
    "__version__",
    "avro_fingerprint",
    "compile_proto",
    "deaggregate",
    "decode_base64",
    "decode_get_records",
    "decode_line",
    "encode_base64",
    "encode_checkpoint",
    "encode_process_records",
    "encode_status",
    "isa",
    "kclpy_detach",
    "kclpy_records",
    "message_batch",
    "payloads_from",
    "pool_stats",
    "record_dicts",
    "record_metadata",
    "split_aggregate",
    "split_netstrings",
    "stitch_batch",
    "supported_isas",
    "write_all",
    "write_ipc_file",
]

_KclpyRecord = TypeVar("_KclpyRecord", bound="KclpyRecordBase")

Compression: TypeAlias = Literal["none", "gzip", "auto"]
DaemonDialect: TypeAlias = Literal["legacy", "transitional", "modern"]
Dialect: TypeAlias = Literal["legacy", "modern"]
MarkerEventKind: TypeAlias = Literal["message", "collected", "end_of_process", "at_boundary", "truncated"]
ShutdownReason: TypeAlias = Literal["TERMINATE", "ZOMBIE"]

__version__: Final[str]
CANONICAL_COLUMNS: Final[dict[str, str]]
"""The columns that every `RecordBatch` has, in their order: name, and Arrow type as pyarrow writes it."""
DEFAULT_MAX_FRAME_BYTES: Final[int]
"""16 MiB, the default bound of one frame of ProcessV1."""
DEFAULT_MAX_LINE_BYTES: Final[int]
"""256 MiB, the default bound of one line."""
DEFAULT_MAX_MESSAGE_BYTES: Final[int]
"""64 MiB, the default bound of one message between markers."""
DIALECTS: Final[dict[str, Capabilities]]
"""Features of each dialect, by its name: legacy (KCL up to 1.7.1), transitional (1.7.2 to 1.15), modern (2 and 3)."""

# Records

class DecodeError(ValueError):
    """A line or frame that is not a valid message, or an invalid answer. No part of it has been handed out.

    `str()` is one line: ``<kind>: <what> (record i, byte n)``. Kinds and precedence: the KCL
    multi-language protocol, docs/protocol-errors.md.
    """

    kind: str
    """line_too_long, message_too_long, utf8, json, cbor, depth, not_an_object, missing_field, wrong_type, out_of_range,
    lone_surrogate, base64, unknown_action, unknown_reason, frame_too_long or truncated_frame."""
    field: str | None
    """Wire name of the field, e.g. ``partitionKey``."""
    record: int | None
    """Index among the records, from 0."""
    offset: int | None
    """Bytes from the start of the line or answer."""
    reason: str | None
    """For base64: invalid_character, bad_padding or truncated."""
    context: bytes
    """At most 200 bytes of the input around the place."""

@final
class Position:
    """A place in a shard: (sequence number, sub-sequence number). Compares as integers, then sub numbers.

    A missing sub-sequence number (legacy dialect) compares as 0. Hashable. Unpacks like a tuple:
    ``sequence_number, sub_sequence_number = position``. ``str`` gives ``"number/sub"``, or the number alone without a
    sub-sequence number, and `parse` takes it.

    A lease table has four words in the place of a number. They have their order, too::

        AT_TIMESTAMP < TRIM_HORIZON < LATEST < 0 < 1 < 1/1 < 2 < ... < any sequence number < SHARD_END

    Raises:
        ValueError: `sequence_number` is not decimal digits.
    """

    __match_args__: ClassVar[tuple[str, str]] = ("sequence_number", "sub_sequence_number")
    AT_TIMESTAMP: ClassVar[Position]
    """Nothing is read yet, and reading begins at a time."""
    TRIM_HORIZON: ClassVar[Position]
    """Nothing is read yet, and reading begins at the oldest record."""
    LATEST: ClassVar[Position]
    """Nothing is read yet, and reading begins at the newest record."""
    SHARD_END: ClassVar[Position]
    """All is read: the shard is finished."""

    def __new__(cls, sequence_number: str, sub_sequence_number: int | None = None) -> Position: ...
    @staticmethod
    def parse(text: str) -> Position:
        """From ``"number"``, ``"number/sub"`` or a sentinel's name.

        Raises:
            ValueError: it is none of them.
        """
    @property
    def sequence_number(self) -> str:
        """Decimal digits; of a sentinel its name."""
    @property
    def sub_sequence_number(self) -> int | None:
        """Place inside an aggregate; None where there is none, and of a sentinel."""
    @property
    def is_sentinel(self) -> bool:
        """Whether it is not a record's: AT_TIMESTAMP, TRIM_HORIZON, LATEST or SHARD_END."""
    def __iter__(self) -> Iterator[str | int | None]: ...
    def __lt__(self, other: Position, /) -> bool: ...
    def __le__(self, other: Position, /) -> bool: ...
    def __gt__(self, other: Position, /) -> bool: ...
    def __ge__(self, other: Position, /) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Record:
    """One record: a view into its batch, which it keeps alive. Values are made at each access."""

    @property
    def data(self) -> bytes | None:
        """The payload, decoded. None only when the daemon sent null."""
    @property
    def partition_key(self) -> str: ...
    @property
    def sequence_number(self) -> str: ...
    @property
    def sub_sequence_number(self) -> int | None: ...
    @property
    def approximate_arrival_timestamp(self) -> datetime | None:
        """UTC, aware; None when the daemon sent null.

        Raises:
            OverflowError: beyond the range of datetime; `timestamp_millis` always works.
        """
    @property
    def timestamp_millis(self) -> int | None:
        """Milliseconds since the epoch."""
    @property
    def encryption_type(self) -> str | None:
        """NONE or KMS, as the service says; None where nobody did."""
    @property
    def explicit_hash_key(self) -> str | None:
        """Of a user record of an aggregate that has one: decimal digits."""
    @property
    def aggregated(self) -> bool | None:
        """Whether it comes out of an aggregate; None in a batch that `deaggregate` did not make."""

@final
class RecordBatch:
    """The records of one processRecords line, or of one GetRecords answer, as Arrow columns. Immutable.

    Columns (all nullable in the schema, as Spark compares schemas literally): data binary,
    partitionKey string, sequenceNumber string, subSequenceNumber int64,
    approximateArrivalTimestamp timestamp[us, UTC]. A GetRecords answer has encryptionType string, too, and
    `deaggregate` adds explicitHashKey string and aggregated bool; `canonical` leaves them out.

    Any Arrow library imports it without a copy through the Arrow PyCapsule interface, e.g.
    ``pyarrow.record_batch(batch)``. Its buffers stay valid while anyone holds them.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of the column buffers in use, offsets and validity included."""
    @property
    def capacity_bytes(self) -> int:
        """Bytes that holding this batch keeps allocated (at least `nbytes`)."""
    @property
    def shard_id(self) -> str | None:
        """Shard of the initialize message that this decoder has seen, or that was named; None without one."""
    @property
    def millis_behind_latest(self) -> int | None: ...
    @property
    def first_position(self) -> Position | None:
        """None for an empty batch. Raises ValueError when the sequence number is not decimal."""
    @property
    def last_position(self) -> Position | None:
        """None for an empty batch. Raises ValueError when the sequence number is not decimal."""
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Record: ...
    def __iter__(self) -> Iterator[Record]: ...
    def slice(self, offset: int, length: int | None = None) -> RecordBatch:
        """Rows [offset, offset + length) without a copy.

        Raises:
            IndexError: the range is outside the batch.
        """
    def canonical(self) -> RecordBatch:
        """The same records in the five columns that every batch has, without a copy, for Spark's sinks."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def payloads_from(batch: RecordBatch, first: int, most_bytes: int) -> list[bytes]:
    """The payloads of the rows from `first` on, the last one first, so that who takes them pops them.

    Args:
        batch: of the rows.
        first: the row to begin with; at the end of the batch there are none.
        most_bytes: of all together, unless the first one alone has more. A payload that is null is empty.
    """

def record_metadata(
    batch: RecordBatch, row: int
) -> tuple[str, str | None, str, int | None, datetime | None, str | None]:
    """The values that `Record` has of a row beside its payload, in one call.

    Returns:
        The partition key, the explicit hash key, the sequence number, the sub-sequence number, the arrival time and the
        encryption type.

    Raises:
        IndexError: there is no such row.
        OverflowError: the arrival time is beyond the range of datetime.
    """

def write_ipc_file(path: str, batches: Sequence[RecordBatch], metadata: Mapping[str, str]) -> None:
    """Write an Arrow IPC file with schema metadata, synced to disk with its folder, under `path` exclusively.

    It is written to a temporary name beside it first, so `path` is whole or absent.

    Raises:
        FileExistsError, OSError: it could not be written.
    """

# The protocol of KCL

@final
class Capabilities:
    """The features of a dialect."""

    @property
    def sub_sequence_numbers(self) -> bool:
        """Sub-sequence numbers, in initialize, records and checkpoints; and millisBehindLatest."""
    @property
    def shutdown_requested(self) -> bool:
        """The message shutdownRequested, before a worker stops."""
    @property
    def named_ends(self) -> bool:
        """The messages leaseLost and shardEnded; without them shutdown, with a reason, which allows a checkpoint."""

@final
class Initialize:
    """The first message: which shard, and where reading starts."""

    action: ClassVar[Literal["initialize"]]
    __match_args__: ClassVar[tuple[str, str, str, str]] = (
        "shard_id",
        "sequence_number",
        "sub_sequence_number",
        "dialect",
    )

    def __new__(
        cls,
        *,
        shard_id: str,
        sequence_number: str | None = None,
        sub_sequence_number: int | None = None,
        dialect: Dialect = "modern",
    ) -> Initialize: ...
    @property
    def shard_id(self) -> str: ...
    @property
    def sequence_number(self) -> str | None:
        """Decimal digits, TRIM_HORIZON, LATEST or AT_TIMESTAMP; None in the legacy dialect."""
    @property
    def sub_sequence_number(self) -> int | None: ...
    @property
    def dialect(self) -> Dialect:
        """By the keys of the message; forcing another is the connection's business."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ProcessRecords:
    """A batch of records. Only made by the decoder. Equal when all columns are; not hashable."""

    action: ClassVar[Literal["processRecords"]]
    __match_args__: ClassVar[tuple[str, str]] = ("batch", "millis_behind_latest")

    @property
    def batch(self) -> RecordBatch: ...
    @property
    def millis_behind_latest(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    __hash__: ClassVar[None]  # type: ignore[assignment]

@final
class LeaseLost:
    """Another worker has the shard now: no checkpoint is possible any more."""

    action: ClassVar[Literal["leaseLost"]]
    __match_args__: ClassVar[tuple[()]] = ()

    def __new__(cls) -> LeaseLost: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ShardEnded:
    """All records of the shard have been delivered: checkpoint, or its child shards never start."""

    action: ClassVar[Literal["shardEnded"]]
    __match_args__: ClassVar[tuple[()]] = ()

    def __new__(cls) -> ShardEnded: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ShutdownRequested:
    """The worker is about to stop: the last chance for a checkpoint."""

    action: ClassVar[Literal["shutdownRequested"]]
    __match_args__: ClassVar[tuple[()]] = ()

    def __new__(cls) -> ShutdownRequested: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Shutdown:
    """The end message of KCL 1.x: TERMINATE means shard ended, ZOMBIE lease lost."""

    action: ClassVar[Literal["shutdown"]]
    __match_args__: ClassVar[tuple[str]] = ("reason",)

    def __new__(cls, *, reason: ShutdownReason) -> Shutdown: ...
    @property
    def reason(self) -> ShutdownReason: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Checkpoint:
    """The daemon's reply to a checkpoint request."""

    action: ClassVar[Literal["checkpoint"]]
    __match_args__: ClassVar[tuple[str, str, str]] = ("sequence_number", "sub_sequence_number", "error")

    def __new__(
        cls, *, sequence_number: str | None = None, sub_sequence_number: int | None = None, error: str | None = None
    ) -> Checkpoint: ...
    @property
    def sequence_number(self) -> str | None: ...
    @property
    def sub_sequence_number(self) -> int | None: ...
    @property
    def error(self) -> str | None:
        """Simple Java class name, None on success."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

Message: TypeAlias = Initialize | ProcessRecords | LeaseLost | ShardEnded | ShutdownRequested | Shutdown | Checkpoint
# Every message class has its wire name in `action` and keyword constructors (for tests and for who plays a daemon).

def decode_line(line: Buffer, *, max_line_bytes: int = ...) -> Message | None:
    """Decode one complete line.

    Args:
        line: bytes, bytearray, memoryview (contiguous) of one line, with or without its line feed.
        max_line_bytes: bound, at most 2**31 - 1.

    Returns:
        The message, or None for a blank line.

    Raises:
        DecodeError: the line is not a valid message.
        ValueError: `max_line_bytes` out of range.
    """

@final
class Decoder:
    """Incremental decoder: feed bytes cut anywhere, iterate over the complete messages.

    Not for several threads at once (RuntimeError if two use it at the same time).
    After a DecodeError the rest of that line is skipped and decoding goes on with the next line.
    """

    def __new__(cls, *, max_line_bytes: int = ...) -> Decoder: ...
    def feed(self, data: Buffer) -> None: ...
    def __iter__(self) -> Decoder: ...
    def __next__(self) -> Message:
        """The next complete message; StopIteration when more bytes are needed (feed, then go on)."""
    def finish(self) -> Message | None:
        """End of input: a complete message without its line feed is returned, None if nothing is open.

        Raises:
            DecodeError: the input ended inside a message (kind json), or the message is invalid.
            RuntimeError: messages wait; iterate over them first. They are still there.
        """

@final
class Reader:
    """Reads messages from a file descriptor; reads and decodes with the GIL released.

    The descriptor is not closed. Not for several threads at once.

    Args:
        fd: readable descriptor: pipe, socket or file. A pipe's size is raised to 256 KiB where allowed.
        wakeup_fd: descriptor to watch besides (see signal.set_wakeup_fd); drained when readable, then
            Python signal handlers run. Without it signals are handled when read(2) is interrupted.
        max_line_bytes: bound of one line.
        begun: input that was read from `fd` before, e.g. into a buffer; it comes first.
        idle_after: seconds of silence between two lines after which the memory of buffers is given back; 2.5.

    Raises:
        ValueError: a number out of range.
    """

    def __new__(
        cls,
        fd: int,
        *,
        wakeup_fd: int | None = None,
        max_line_bytes: int = ...,
        begun: Buffer | None = None,
        idle_after: float = ...,
    ) -> Reader: ...
    def read(self) -> Message | None:
        """Wait for the next message; None at end of input.

        Signal handlers run while waiting; their exceptions come out, and nothing of the input is lost by it.

        Raises:
            DecodeError: an invalid line; also input that ended inside a message.
            OSError: read failed.
            TimeoutError: the deadline has passed.
        """
    def set_deadline(self, seconds: float | None) -> None:
        """From now, until when `read` may wait; None for no limit.

        May be called from a signal handler during `read`. Data that has arrived by then is still handed out.

        Raises:
            ValueError: `seconds` is not a number.
        """
    @property
    def bytes_read(self) -> int: ...

def encode_status(response_for: str) -> bytes:
    """A status line, with a line feed before and after; compact ASCII JSON."""

def encode_checkpoint(sequence_number: str | None, sub_sequence_number: int | None, dialect: Dialect) -> bytes:
    """A checkpoint request in the dialect given, with a line feed before and after.

    Raises:
        ValueError: a sub-sequence number without a sequence number; one above 0 in the legacy dialect
            (it has no word for it); an unknown dialect.
    """

def encode_process_records(
    data: Sequence[Buffer | None],
    partition_keys: Sequence[str],
    sequence_numbers: Sequence[str],
    sub_sequence_numbers: Sequence[int | None] | None,
    timestamps_millis: Sequence[int | None] | None,
    *,
    millis_behind_latest: int | None = None,
    dialect: DaemonDialect = "modern",
) -> bytes:
    """A processRecords line byte for byte as a daemon of that dialect writes it, LF at the end.

    Legacy lines have no subSequenceNumber, action or millisBehindLatest. None for a whole column writes null
    (modern) in each record.

    Raises:
        ValueError: columns of unequal length; an unknown dialect.
    """

# Messages between markers

@final
class MessageBatch:
    """Messages in a row as Arrow columns, of a protocol without positions. Immutable.

    Any Arrow library imports it without a copy, e.g. ``pyarrow.record_batch(batch)``. Columns: data (binary) and
    number (int64) for DKB; `stitch_batch` names ProcessV1's.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of the column buffers in use, offsets and validity included."""
    @property
    def capacity_bytes(self) -> int:
        """Bytes that holding this batch keeps allocated (at least nbytes)."""
    def __len__(self) -> int: ...
    def slice(self, offset: int, length: int | None = None) -> MessageBatch:
        """Rows [offset, offset + length) without a copy.

        Raises:
            IndexError: the range is outside the batch.
        """
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

def message_batch(messages: Sequence[Buffer], *, first_number: int = 0) -> MessageBatch:
    """Messages that are at hand as Arrow columns, numbered from `first_number` on.

    Raises:
        ValueError: they have more than 2 GiB together, or one's number more than 64 bits.
    """

@final
class MarkerEvent:
    """An event of a DKB stream: a message or a marker."""

    @property
    def kind(self) -> MarkerEventKind:
        """EOP is end_of_process; at_boundary is EOB or BNC; truncated is the rest at the end of input."""
    @property
    def data(self) -> bytes | None:
        """The bytes of a message, or of the rest; None for everything else."""
    @property
    def terminated(self) -> bool:
        """False for a message that EOP has ended instead of EOM, and for the rest."""
    @property
    def count(self) -> int:
        """Messages that this event stands for."""

@final
class MarkerDecoder:
    """Incremental decoder of a DKB stream: feed bytes cut anywhere, iterate over their events.

    Not for several threads at once. After a DecodeError (a message is too long) there is nothing more.

    Args:
        end_of_message: EOM, after each message; like every marker 1 to 16 bytes, and no prefix of another.
        end_of_process: EOP, looked for everywhere; may equal EOM.
        at_boundary: looked for where a message could begin: EOB for a worker, BNC for a supervisor.
        max_message_bytes: bound of one message.

    Raises:
        ValueError: markers that cannot be distinguished, or a bound out of range.
    """

    def __new__(
        cls,
        *,
        end_of_message: Buffer,
        end_of_process: Buffer | None = None,
        at_boundary: Buffer | None = None,
        max_message_bytes: int = ...,
    ) -> MarkerDecoder: ...
    def feed(self, data: Buffer) -> None: ...
    def finish(self) -> None:
        """No more input comes: iterating once more gives the rest."""
    def collect(self, most: int) -> None:
        """Let the next `most` messages go to the columns, with one event for all of them. 0: one by one again."""
    def take_batch(self) -> MessageBatch:
        """The messages in the columns; they begin anew, and their numbers go on."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> MarkerEvent: ...

@final
class MarkerReader:
    """Reads a DKB stream from a file descriptor; reads and frames with the GIL released.

    The descriptor is not closed. Not for several threads at once.

    Args:
        fd: readable descriptor: pipe, socket or file. A pipe's size is raised to 256 KiB where allowed.
        end_of_message: as the other markers and the bound, see `MarkerDecoder`.
        wakeup_fd: descriptor to watch besides, see `Reader`.
        idle_after: seconds of silence after which the memory of buffers is given back; 2.5.

    Raises:
        ValueError: markers that cannot be distinguished, or a bound out of range.
    """

    def __new__(
        cls,
        fd: int,
        *,
        end_of_message: Buffer,
        end_of_process: Buffer | None = None,
        at_boundary: Buffer | None = None,
        wakeup_fd: int | None = None,
        max_message_bytes: int = ...,
        idle_after: float = ...,
    ) -> MarkerReader: ...
    def read(self) -> MarkerEvent | None:
        """Wait for the next message or marker; None at end of input.

        Raises:
            DecodeError: a message is longer than max_message_bytes.
            OSError: read failed.
            TimeoutError: the deadline has passed.
        """
    def read_run(self, most: int) -> MarkerEvent | None:
        """Wait until `most` messages, or a marker, have come; None at end of input. The messages go to the columns.

        A message that does not fit into the columns any more (2 GiB) comes alone: take the batch before it.

        Raises:
            DecodeError: a message is longer than max_message_bytes.
            OSError: read failed.
            TimeoutError: the deadline has passed.
            ValueError: `most` is 0.
        """
    @property
    def collected(self) -> int:
        """Messages in the columns."""
    def take_batch(self) -> MessageBatch:
        """The messages in the columns; they begin anew, and their numbers go on."""
    def set_deadline(self, seconds: float | None) -> None:
        """As `Reader.set_deadline`."""

# ProcessV1

@final
class ToStitchMessage:
    """A ProcessV1 message from a core to a stitch. Equal when all members are."""

    __match_args__: ClassVar[tuple[str, str, str, str, str]] = (
        "id",
        "channel_name",
        "data",
        "from_stitch_instance_id",
        "node_id",
    )

    def __new__(
        cls,
        *,
        id: int = 0,
        channel_name: str | None = None,
        data: str | None = None,
        from_stitch_instance_id: str | None = None,
        node_id: str | None = None,
    ) -> ToStitchMessage: ...
    @property
    def id(self) -> int:
        """Of a heartbeat its number, of an exit the exit code, of data the message's id; 0 of data to a group."""
    @property
    def channel_name(self) -> str | None:
        """_heartbeat, _exit, _error, or any name of data; None of data to a group."""
    @property
    def data(self) -> str | None: ...
    @property
    def from_stitch_instance_id(self) -> str | None:
        """Who sent it."""
    @property
    def node_id(self) -> str | None:
        """The sender's node."""
    def to_frame(self) -> bytes:
        """The frame: ASCII JSON on one line, and the line ``end``."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class FromStitchMessage:
    """A ProcessV1 message from a stitch to its core. Equal when all members are."""

    __match_args__: ClassVar[tuple[str, ...]] = (
        "command",
        "id",
        "data",
        "data_channel",
        "logs",
        "to_group_name",
        "to_stitch_instance_id",
    )

    def __new__(
        cls,
        *,
        command: str | None = None,
        id: int = 0,
        data: str | None = None,
        data_channel: str | None = None,
        logs: Sequence[str] | None = None,
        to_group_name: str | None = None,
        to_stitch_instance_id: str | None = None,
    ) -> FromStitchMessage: ...
    @property
    def command(self) -> str | None:
        """sync, ack, fail, logs or data; a core drops everything else without a word."""
    @property
    def id(self) -> int:
        """Of the message that it answers."""
    @property
    def data(self) -> str | None: ...
    @property
    def data_channel(self) -> str | None:
        """The channel that data is sent in."""
    @property
    def logs(self) -> tuple[str, ...] | None:
        """Lines for the core's log."""
    @property
    def to_group_name(self) -> str | None:
        """To all stitches of a group."""
    @property
    def to_stitch_instance_id(self) -> str | None:
        """To one stitch."""
    def to_frame(self) -> bytes:
        """The frame: ASCII JSON on one line, and the line ``end``. Members that are None are left out."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class StitchDecoder:
    """Incremental decoder of ProcessV1 frames: feed bytes cut anywhere, iterate over the complete messages.

    Not for several threads at once. A DecodeError is of one frame; iterating goes on with the next. Blank frames and
    null are no messages.

    Raises:
        ValueError: no such direction, or `max_frame_bytes` out of range.
    """

    def __new__(
        cls, *, direction: Literal["to_stitch", "from_stitch"] = "to_stitch", max_frame_bytes: int = ...
    ) -> StitchDecoder: ...
    def feed(self, data: Buffer) -> None: ...
    def __iter__(self) -> StitchDecoder: ...
    def __next__(self) -> ToStitchMessage | FromStitchMessage:
        """The next message; StopIteration when more bytes are needed.

        Raises:
            DecodeError: a frame that is not a message.
        """
    def finish(self) -> ToStitchMessage | FromStitchMessage | None:
        """End of input: a message whose frame has no line ``end`` is returned, None if nothing is open.

        Raises:
            DecodeError: the input ended inside a frame (kind truncated_frame).
            RuntimeError: messages wait; iterate over them first. They are still there.
        """

@final
class EndLineFramer:
    """The framer of ProcessV1 alone: feed bytes cut anywhere, iterate over (text, terminated) of the complete frames.

    The text's lines are joined with a line feed. Not for several threads at once.
    """

    def __new__(cls, *, max_frame_bytes: int = ...) -> EndLineFramer: ...
    def feed(self, data: Buffer) -> None: ...
    def __iter__(self) -> EndLineFramer: ...
    def __next__(self) -> tuple[bytes, bool]:
        """The next frame; StopIteration when more bytes are needed.

        Raises:
            DecodeError: a frame that is too long (kind frame_too_long).
        """
    def finish(self) -> tuple[bytes, bool] | None:
        """End of input: the open frame; None if no frame is open, or it is blank.

        Raises:
            DecodeError: it is too long (kind frame_too_long).
            RuntimeError: frames wait; iterate over them first. They are still there.
        """

def stitch_batch(messages: Sequence[ToStitchMessage], *, data: Literal["base64", "text"] = "base64") -> MessageBatch:
    """A run of messages as Arrow columns: id, channel, sender, node, data (binary of base64, or string of text).

    Raises:
        DecodeError: data that is not base64 (kind base64); `record` is the index of its message.
        ValueError: `data` is neither "base64" nor "text".
    """

# Kinesis

@final
class ChildShard:
    """A shard that follows the one that was read to its end. Only made by the decoder."""

    __match_args__: ClassVar[tuple[str, str, str]] = ("shard_id", "parent_shards", "hash_range")

    @property
    def shard_id(self) -> str: ...
    @property
    def parent_shards(self) -> tuple[str, ...]:
        """One id after a split, two after a merge."""
    @property
    def hash_range(self) -> tuple[int, int]:
        """The lowest and the highest hash key that it owns, 0 to 2**128 - 1."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class GetRecordsAnswer:
    """An answer of GetRecords. Immutable."""

    @property
    def batch(self) -> RecordBatch:
        """The records: the canonical columns, and encryptionType. subSequenceNumber is null.

        Its `millis_behind_latest` is the answer's, its `shard_id` the given one.
        """
    @property
    def next_shard_iterator(self) -> str | None:
        """Where to go on; None at the end of a closed shard."""
    @property
    def millis_behind_latest(self) -> int | None:
        """How far the answer is behind the shard's tip; None when the service did not say."""
    @property
    def child_shards(self) -> tuple[ChildShard, ...]:
        """The shards that follow, at the end of a closed shard; else none."""
    @property
    def records_span(self) -> tuple[int, int]:
        """The position of the value of Records in the body: its first byte, and the one after it."""

def decode_get_records(
    body: Buffer, content_type: str = "application/x-amz-json-1.1", *, shard_id: str | None = None
) -> GetRecordsAnswer:
    """Decode the body of a GetRecords answer; the GIL is released.

    Of a record, ApproximateArrivalTimestamp and EncryptionType may be missing or null, and Data null. Everything beside
    the records may be missing or null.

    Args:
        body: of an answer of status 200.
        content_type: its header: application/x-amz-json-1.1 (base64 data, seconds with a fraction),
            application/x-amz-cbor-1.1 (the Java SDKs': byte strings, milliseconds) or application/cbor (Smithy RPC v2:
            byte strings, seconds).
        shard_id: noted in the batch.

    Raises:
        DecodeError: the body is no such answer.
        ValueError: no answer is written in this content type.
    """

def record_dicts(batch: RecordBatch, time: Callable[[float], object]) -> list[dict[str, Any]]:
    """The records of a GetRecords answer as dictionaries, as botocore has them; values that are null are not there.

    Args:
        batch: of an answer.
        time: makes the time object of a number of seconds since the epoch.
    """

@final
class Deaggregated:
    """User records, and the fate of the aggregates that they were in. Immutable."""

    @property
    def batch(self) -> RecordBatch:
        """The user records and the plain records, in order: the batch's columns, then explicitHashKey and aggregated.

        User records carry the sequence number, arrival time and encryption type of their aggregate, their own keys, and
        subSequenceNumber 0, 1, 2…; plain records have subSequenceNumber 0.
        """
    @property
    def aggregates(self) -> int:
        """Aggregates that were split; one without user records is one of them."""
    @property
    def dropped_aggregates(self) -> int:
        """Aggregates that were dropped, as one of their user records does not belong to the shard."""
    @property
    def dropped_records(self) -> int:
        """User records in the aggregates that were dropped."""
    @property
    def fallbacks(self) -> dict[str, int]:
        """Records that begin as aggregates and are plain ones, by reason: those that occurred.

        digest, protobuf, missing_field, utf8, index, explicit_hash_key, or key_length: a key of more than 256
        characters.
        """

def deaggregate(
    batch: RecordBatch, hash_range: tuple[int, int] | None = None, *, max_batch_bytes: int = ...
) -> Deaggregated:
    """Take the KPL aggregates of a batch apart; the GIL is released. A batch that was taken apart stays as it is.

    A record that is not a sound aggregate stays as it came. An aggregate with a user record outside of `hash_range` is
    dropped, all of it: the shard that owns it has received it, too.

    Args:
        batch: of a GetRecords answer. (A daemon has done this before its batches arrive.)
        hash_range: the lowest and the highest hash key that the shard owns; None for all.
        max_batch_bytes: of the batch with the user records, 1 to 2**31 - 1; 256 MiB without it. Six bytes of an
            aggregate can name a key of 256 characters again, so few bytes can become many.

    Raises:
        OverflowError: it would have more than `max_batch_bytes`, and was not made; take slices, or allow more.
        ValueError: `max_batch_bytes` is out of range, or `hash_range` ends before it begins.
    """

def split_aggregate(data: Buffer) -> list[bytes]:
    """The data of the user records in one record's data: its own, if it is no sound KPL aggregate."""

@final
class Aggregate:
    """A KPL aggregate that is being filled, byte for byte as aws-kinesis-agg makes it.

    It has no bound: `size_with` returns the size that it would have. Not for several threads at once.
    """

    def __new__(cls) -> Aggregate: ...
    def __len__(self) -> int:
        """User records in it."""
    @property
    def size(self) -> int:
        """The size of its record against the limits of the service, in bytes: data and partition key."""
    def size_with(self, partition_key: str, data_size: int, explicit_hash_key: str | None = None) -> int:
        """The size with one more user record, of `data_size` bytes."""
    def add(self, partition_key: str, data: Buffer, explicit_hash_key: str | None = None) -> None:
        """Add a user record, whatever the size becomes.

        Raises:
            ValueError: the partition key has not 1 to 256 characters, or the explicit hash key is not a decimal number
                from 0 to 2**128 - 1. Nothing is added.
        """
    @property
    def partition_key(self) -> str | None:
        """Of the record: that of the first user record. None while there is none."""
    @property
    def explicit_hash_key(self) -> str | None:
        """Of the record: that of the first user record, if it has one."""
    def encode(self) -> bytes:
        """The data of the record."""

def split_netstrings(data: Buffer) -> list[bytes]:
    """The items of netstrings: ``<decimal length>:<bytes>,`` one after the other. No data, no items.

    Raises:
        ValueError: anything else, leading zeros included; the message names item and byte.
    """

# Payloads

@final
class PayloadReader:
    """Opens the payloads of record batches: unpacks gzip, parses JSON objects into typed columns. Immutable.

    A payload that cannot be unpacked, or is not a JSON object, is put unchanged into the column _corrupt. If a value of
    a JSON object does not fit its column (an integer out of range, not a string…), the unpacked payload is put into the
    column _unparsed, and the original one into _packed if it was unpacked. If Spark's from_json would lose a part of
    such a payload without an error, the original one is always kept, in _corrupt instead of _packed. The other columns
    are null then.

    Args:
        json: payloads are JSON objects.
        schema: the columns that they have, as an Arrow IPC message (pyarrow.Schema.serialize()); with a type that is
            not parsed here every object is left, and without one as well, whatever is lost of it.
        compression: "none", "gzip" (a payload that is not gzip is corrupt) or "auto" (a payload that begins with
            gzip's magic number is unpacked).
        max_payload_bytes: a payload that is larger when unpacked is corrupt.

    Raises:
        ValueError: no such compression, a bound out of range, or a schema that is not an Arrow schema.
    """

    def __new__(
        cls, *, json: bool, schema: bytes | None = None, compression: Compression = "none", max_payload_bytes: int
    ) -> PayloadReader: ...
    @property
    def typed(self) -> bool:
        """Whether JSON is parsed here; otherwise a type of the schema is not, and every object is left unparsed."""
    def open(self, batch: RecordBatch, offset: int, max_bytes: int) -> OpenedPayloads:
        """Open the payloads from row offset on: as many as make no more than max_bytes, and at least one.

        Raises:
            IndexError: offset is outside of the batch.
            ValueError: max_bytes out of range.
        """

@final
class SchemaReader:
    """Opens payloads that have a schema: Avro, Protobuf, or JSON after a registry's header. Safe in several threads.

    The columns are those of the reader's schema, which is fixed. A record's header names the schema of its writer; the
    reader has to be given each of them, by `add` or `reject`, before `open` takes a batch with such records. With
    framing "none" there is no header, and records are written in the reader's schema. A reader of "single-object"
    knows its own schema.

    A payload that cannot be opened is in the column _corrupt as it came, and costs no other record: no such header, an
    id that was rejected, bytes that are no value of the schema or more than one, a value that its column cannot hold.
    Its other columns are null, but the canonical ones.

    Args:
        format: of the payloads.
        framing: "none"; "glue" (03, compression 00 or 05, UUID, big-endian), "confluent" (00, id in 4 bytes,
            big-endian); of Avro also "single-object" (C3 01, CRC-64-AVRO, little-endian). Before Protobuf follow
            message indexes.
        schema: the reader's: Avro as JSON text; Protobuf as FileDescriptorSet; of JSON the columns as an Arrow IPC
            message (pyarrow.Schema.serialize()).
        message: full name of the Protobuf message; None if the set's last file has one message at its top.
        casts: by the path of a field without a Spark type ("order.items.price"; items of lists and values of maps are
            named "element" and "value"), "string" makes it one, and "drop" leaves it out.
        compression: outside of the framing, as of `PayloadReader`. What Glue's header says is always done.
        max_payload_bytes: a payload that is larger when unpacked is corrupt.
        keep_payload: whether the column data stays, the payloads as they came.

    Raises:
        ValueError: an argument without a meaning; a schema that is none; types without a Spark type: each with its
            path, and the choices.
    """

    def __new__(
        cls,
        *,
        format: Literal["avro", "protobuf", "json"],
        framing: Literal["none", "glue", "confluent", "single-object"],
        schema: bytes,
        message: str | None = None,
        casts: Mapping[str, Literal["string", "drop"]] | None = None,
        compression: Compression = "none",
        max_payload_bytes: int,
        keep_payload: bool = False,
    ) -> SchemaReader: ...
    def unknown(self, batch: RecordBatch) -> list[str]:
        """Ids in the headers of a batch that were neither added nor rejected, each once, in the records' order.

        As text: of Glue a UUID (lower case, with hyphens), of Confluent a decimal number, of single objects the
        fingerprint as 16 hexadecimal digits (the number, as `avro_fingerprint` writes it). Payloads without the header
        have no id.
        """
    def add(self, id: str, definition: bytes) -> list[str]:
        """Takes the schema of an id: records of it can be opened from now on. An id keeps the schema that it has.

        Args:
            id: as `unknown` writes it.
            definition: Avro as JSON text, its references resolved (each named type is defined where it is used first);
                Protobuf as a FileDescriptorSet whose last file is the registered one; of JSON anything.

        Returns:
            The paths of the writer's fields that the reader's schema does not have, and which are dropped.

        Raises:
            ValueError: no such id can be; a definition that is none, or that cannot be resolved against the reader's
                schema. Nothing is added; `reject` it.
        """
    def reject(self, id: str, reason: str) -> None:
        """Records of this id are corrupt from now on, until `add` takes it.

        Raises:
            ValueError: no such id can be, or it was added.
        """
    @property
    def rejected(self) -> dict[str, str]:
        """The reasons by id."""
    def open(self, batch: RecordBatch, offset: int, max_bytes: int) -> OpenedPayloads:
        """Open the payloads from row offset on: as many as make no more than max_bytes, and at least one.

        Raises:
            IndexError: offset is outside of the batch.
            ValueError: max_bytes out of range; a record of an id that was neither added nor rejected.
        """
    def __arrow_c_schema__(self) -> object:
        """The columns that it makes, as a struct.

        The schema's; data, if it stays; partitionKey, sequenceNumber, subSequenceNumber, approximateArrivalTimestamp;
        _corrupt; of JSON also _unparsed and _packed, as of `PayloadReader`. Columns that only the batch of a GetRecords
        answer has come after the canonical ones, if the batch has them.
        """

def compile_proto(files: Mapping[str, str], main: str) -> bytes:
    """A FileDescriptorSet of .proto texts by their names: `main` is its last file, after those that it imports.

    Google's well-known types need no text. Nothing is read from a disk.

    Raises:
        ValueError: a text that does not compile, or imports what is not there; the message has file, line and column.
    """

def avro_fingerprint(schema: str) -> str:
    """The CRC-64-AVRO of a schema's Parsing Canonical Form, as 16 lower-case hexadecimal digits.

    Raises:
        ValueError: it is not an Avro schema.
    """

@final
class OpenedPayloads:
    """Records whose payloads are opened, as Arrow columns. Immutable.

    Columns: data, or the schema's; partitionKey, sequenceNumber, subSequenceNumber, approximateArrivalTimestamp;
    _corrupt, _unparsed, _packed, the last two not of a `SchemaReader` for Avro or Protobuf.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
    @property
    def unparsed(self) -> int:
        """Number of records with something in _unparsed."""
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

# amazon_kclpy

@disjoint_base
class KclpyRecordBase:
    """The values of amazon_kclpy's record; `fastkcl.kclpy.messages.Record` is made of it.

    Takes any arguments, for the sake of classes that derive from it.
    """

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    @property
    def binary_data(self) -> bytes | None:
        """The payload: new bytes at each access. None when the daemon sent null.

        Raises:
            binascii.Error: a record that was made from a dict, and its data is not base64.
        """
    @property
    def data(self) -> str | None:
        """The payload as base64 text. None when the daemon sent null."""
    @property
    def partition_key(self) -> str: ...
    @property
    def sequence_number(self) -> str:
        """Decimal digits. User records of one aggregate share it."""
    @property
    def sub_sequence_number(self) -> int | None:
        """Place inside an aggregate, 0 for plain records. None where the daemon sent none."""
    @property
    def timestamp_millis(self) -> int | None:
        """Approximate time of arrival, in milliseconds since the epoch. None when the daemon sent null."""
    def _get(self, field: str) -> str | int | None:
        """A value by its name on the wire, e.g. ``data`` or ``partitionKey``.

        Raises:
            KeyError: there is no such field.
        """
    def _is_received(self) -> bool:
        """Whether the values came from a daemon; otherwise they are attributes."""
    def _set_attributes(self) -> None:
        """From now on the values are attributes, which the caller sets."""
    def _set_received(
        self,
        data: bytes | None,
        partition_key: str,
        sequence_number: str,
        sub_sequence_number: int | None,
        timestamp_millis: int | None,
    ) -> None:
        """Gives a new record the values of another one that was received, for copy and pickle."""

def kclpy_records(batch: RecordBatch, cls: type[_KclpyRecord]) -> list[_KclpyRecord]:
    """A new list with an instance of `cls` for each record of a batch. ``__init__`` is not called.

    Each keeps the batch until it is detached.

    Raises:
        TypeError: `cls` is not a class that derives from `KclpyRecordBase`.
    """

def kclpy_detach(records: tuple[KclpyRecordBase, ...]) -> int:
    """Ends a batch: each of its records that anybody but the tuple holds gets its own values.

    Args:
        records: all records of the batch, as `kclpy_records` made them, held by nobody else who does not count.

    Returns:
        How many are held.
    """

# Bytes, descriptors and this process

def encode_base64(data: Buffer) -> bytes: ...
def decode_base64(text: Buffer) -> bytes:
    """Decode as a JSON string's content after unescaping, by the rules of the protocol (Jackson's).

    Raises:
        DecodeError: kind base64, with reason and offset from the start of `text`.
    """

def write_all(fd: int, data: Buffer, *, write_size: int = ..., pause: float = 0.0) -> None:
    """Write all of `data` in pieces of `write_size` bytes, GIL released; `pause` seconds before each.

    Raises:
        OSError: write failed, BrokenPipeError included. Signal handlers run between pieces.
        ValueError: `write_size` below 1, or a `pause` that is negative or not finite.
    """

def isa() -> str:
    """The instruction set chosen for this process: avx512, avx2, neon or portable (FASTKCL_FORCE_ISA forces one)."""

def supported_isas() -> list[str]:
    """The ones that this build has and this CPU can run, best first."""

def pool_stats() -> dict[str, int]:
    """Column buffers at rest in the pools of this process: {"buffers": …, "bytes": …}; for tests and monitoring."""
