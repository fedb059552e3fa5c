"""Records of another source, each written anew: JSON objects as Avro or Protobuf, in the frames of a registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fastkcl._core import Position
from fastkcl.replay.columns import Columns, RecordSequence
from fastkcl.replay.sources.base import Deliver, Shard, Source, SourceError


@dataclass(frozen=True, slots=True)
class _EncodedRecords:
    records: RecordSequence
    encode: Callable[[bytes], bytes]

    def __len__(self) -> int:
        return len(self.records)

    def columns(self, start: int, stop: int) -> Columns:
        columns = self.records.columns(start, stop)
        data = [self._encoded(index, each) for index, each in enumerate(columns.data, start)]
        return replace(columns, data=data)

    def place(self, index: int) -> Position:
        return self.records.place(index)

    def _encoded(self, index: int, data: bytes | None) -> bytes | None:
        try:
            return None if data is None else self.encode(data)
        except ValueError as error:
            raise SourceError(f"record {index}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Encoded:
    source: Source
    encode: Callable[[bytes], bytes]

    @property
    def description(self) -> str:
        return f"{self.source.description}, with a schema"

    def shards(self) -> Sequence[Shard]:
        shards = self.source.shards()
        for shard in shards:
            if any(isinstance(step, Deliver) and step.line is not None for step in shard.steps or ()):
                raise SourceError(f"{shard.label}: captured lines are played as they are, and cannot be encoded")
        return [replace(shard, records=_EncodedRecords(shard.records, self.encode)) for shard in shards]


def encoded(source: Source, encode: Callable[[bytes], bytes]) -> Source:
    """A source whose records are written anew.

    Args:
        source: of the records.
        encode: makes the payload of one; a ValueError of it is a SourceError that names the record.
    """
    return _Encoded(source, encode)
