"""Where a batch ends, as a checkpoint keeps it: version 1.

    {"v":1, "at":1763812345000, "streams":{"orders":{"created":1763000000,
       "shards":{"000000000000":"4968…", "000000000001":"END", "000000000002":"TRIM", "000000000003":"T1763812000000"},
       "first":{"000000000000":"4967…"}, "lag":{"000000000000":7200000}}}}

=========  ============================================================================================================
v          the version. Another one, or none, is refused
at         the service's time of the plan, in ms. The first offset of a query has none
streams    by name, or by ARN where the stream is given so
created    when the stream was made, in s; missing where that could not be asked
shards     taken up to and with this record; ``TRIM``: nothing yet; ``T<ms>``: from that time on, nothing yet; ``END``:
           closed, and all of it is taken. Ids stand without ``shardId-``; an id of another form stands whole
first      the first record of this batch, in each shard that has records in it
lag        ms before ``at`` up to which the shard is known to be read, where that is above a minute
=========  ============================================================================================================

Rules: two offsets are equal if their texts are, so the order of keys is fixed, and there are no fractions. An unknown
field is refused like an unknown version: a field of a newer version may decide which records a batch has, and a replay
without it would have others. A text above 8 MiB, or with more than 20,000 shards, is refused, and not written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fastkcl.kinesis.read.plan.errors import OffsetError

__all__ = ["END", "MAX_BYTES", "MAX_SHARDS", "TRIM", "VERSION", "Offset", "Position", "StreamOffset"]

VERSION = 1
MAX_BYTES = 8 << 20
MAX_SHARDS = 20_000
"""Of all streams of an offset together."""

_POSITION = re.compile(r"TRIM|END|T\d{1,15}|0|[1-9]\d{0,128}", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,128}", re.ASCII)
_SHARD = re.compile(r"[a-zA-Z0-9_.-]{1,128}", re.ASCII)
_MAX_INTEGER = 10**15
_PREFIX = "shardId-"


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where a shard is taken.

    Attributes:
        text: a sequence number, ``TRIM``, ``T<ms>`` or ``END``.
    """

    text: str

    @classmethod
    def since(cls, milliseconds: int) -> Position:
        """Nothing is taken yet, and older records are left out."""
        return cls(f"T{milliseconds}")

    @property
    def number(self) -> str | None:
        """The sequence number of the last record that was taken."""
        return self.text if self.text[0].isdigit() else None

    @property
    def time(self) -> int | None:
        """From when on the shard is read, in ms since the epoch."""
        return int(self.text[1:]) if self.text[0] == "T" and self.text != "TRIM" else None

    def __str__(self) -> str:
        return self.text


TRIM: Final = Position("TRIM")
END: Final = Position("END")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A stream's part of an offset.

    Attributes:
        created: when the stream was made, in s since the epoch; None if that is not known.
        shards: the position of each shard, by its whole id.
        first: the sequence number of the first record of the batch, by shard.
        lag: ms, by shard.
    """

    created: int | None = None
    shards: Mapping[str, Position] = field(default_factory=dict)
    first: Mapping[str, str] = field(default_factory=dict)
    lag: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As the offset has it."""
        parts: dict[str, object] = {} if self.created is None else {"created": self.created}
        parts["shards"] = {_short(key): self.shards[key].text for key in sorted(self.shards)}
        for name, values in (("first", self.first), ("lag", self.lag)):
            if values:
                parts[name] = {_short(key): values[key] for key in sorted(values)}
        return parts


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of a batch, and with `StreamOffset.first` the batch itself.

    Attributes:
        at: the service's time of the plan, in ms since the epoch; None before the first plan.
        streams: by name or ARN.
    """

    at: int | None = None
    streams: Mapping[str, StreamOffset] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """As a dictionary, with its keys in order.

        Raises:
            OffsetError: it would be too large.
        """
        return self._checked()[0]

    def __str__(self) -> str:
        return self._checked()[1]

    def _checked(self) -> tuple[dict[str, object], str]:
        """The dictionary and its text, within the bounds that readers have."""
        parts: dict[str, object] = {"v": VERSION}
        if self.at is not None:
            parts["at"] = self.at
        parts["streams"] = {name: self.streams[name].to_json() for name in sorted(self.streams)}
        text = json.dumps(parts, separators=(",", ":"))
        shards = sum(len(stream.shards) for stream in self.streams.values())
        if shards > MAX_SHARDS or len(text) > MAX_BYTES:
            raise OffsetError(
                f"an offset has {shards:,} shards and {len(text):,} bytes, at most {MAX_SHARDS:,} and {MAX_BYTES:,} "
                "are possible: read fewer streams in one query"
            )
        return parts, text

    @classmethod
    def parse(cls, text: str) -> Offset:
        """From its text.

        Raises:
            OffsetError: it is not an offset of version 1.
        """
        if len(text) > MAX_BYTES:
            raise OffsetError(f"the offset has {len(text):,} characters, at most {MAX_BYTES:,} are possible")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OffsetError(f"the offset is not JSON ({error}): the checkpoint is of another source") from None
        return cls.from_json(value)

    @classmethod
    def from_json(cls, value: object) -> Offset:
        """From a dictionary, as `json.loads` gives it.

        Raises:
            OffsetError: it is not an offset of version 1.
        """
        version = value.get("v") if isinstance(value, dict) else None
        if not isinstance(value, dict) or version != VERSION or isinstance(version, bool | float):
            raise OffsetError(
                f"the offset has version {version!r}, and this version of fastkcl reads {VERSION}: the checkpoint is "
                "of another source, or of a newer fastkcl"
            )
        _check_fields("the offset", value, {"v", "at", "streams"})
        at = _integer("at", value["at"]) if "at" in value else None
        streams = _mapping("streams", value.get("streams"))
        if sum(len(part.get("shards") or ()) for part in streams.values() if isinstance(part, dict)) > MAX_SHARDS:
            raise OffsetError(f"the offset has more than {MAX_SHARDS:,} shards")
        return cls(at, {name: _stream(name, part) for name, part in streams.items()})


def _stream(name: str, value: object) -> StreamOffset:
    parts = _mapping(f"stream {name}", value)
    _check_fields(f"stream {name}", parts, {"created", "shards", "first", "lag"})
    shards = {key: _position(key, text) for key, text in _by_shard("shards", parts.get("shards")).items()}
    first = {key: _number(key, text) for key, text in _by_shard("first", parts.get("first", {})).items()}
    lag = {key: _integer(f"lag of {key}", value) for key, value in _by_shard("lag", parts.get("lag", {})).items()}
    created = _integer("created", parts["created"]) if "created" in parts else None
    for key, number in first.items():
        end = shards.get(key)
        if end is None or (end != END and (end.number is None or int(end.number) < int(number))):
            raise OffsetError(f"{name}/{key}: the batch begins with record {number} and ends at {end}")
    if not lag.keys() <= shards.keys():
        raise OffsetError(f"{name}: there is a lag of a shard without a position")
    return StreamOffset(created, shards, first, lag)


def _check_fields(where: str, parts: Mapping[str, object], known: set[str]) -> None:
    unknown = sorted(parts.keys() - known)
    if unknown:
        raise OffsetError(f"{where} has the field {unknown[0]!r}, which only a newer fastkcl can have written")


def _mapping(name: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise OffsetError(f"{name} of an offset is {type(value).__name__}, and not an object")
    return value


def _by_shard(name: str, value: object) -> dict[str, object]:
    parts = _mapping(name, value)
    for key in parts:
        if not _SHARD.fullmatch(key):
            raise OffsetError(f"{name} of an offset has {key[:150]!r}, which is not a shard id")
    return {_long(key): part for key, part in parts.items()}


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_INTEGER:
        raise OffsetError(f"{name} of an offset is {str(value)[:150]!r}, and not a count of seconds or milliseconds")
    return value


def _number(key: str, value: object) -> str:
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise OffsetError(f"{key} begins with {str(value)[:150]!r}, which is not a sequence number")
    return value


def _position(key: str, value: object) -> Position:
    if not isinstance(value, str) or not _POSITION.fullmatch(value):
        raise OffsetError(f"{key} is at {str(value)[:150]!r}, which is not a position")
    return Position(value)


def _short(shard_id: str) -> str:
    rest = shard_id.removeprefix(_PREFIX)
    return rest if rest.isdigit() and rest.isascii() else shard_id


def _long(key: str) -> str:
    return _PREFIX + key if key.isdigit() and key.isascii() else key
