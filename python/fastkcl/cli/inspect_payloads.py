"""Payloads of captured records, opened: for the table of ``fastkcl inspect``, and for its files."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from fastkcl import ConfigurationError, _core
from fastkcl.cli.extras import without_extra
from fastkcl.cli.output import printable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OpenedBatches"]

_TABLE_BYTES = 64 << 20  # opened, unless the batch came larger
_LARGEST_TABLE = 1 << 30  # as `BatchOpener` has it; the largest payload is bounded by it
_RECORD = b'{"action":"processRecords","records":[{"data":"e30=","partitionKey":"","sequenceNumber":"1"}]}'


class OpenedBatches:
    """Opens batches by the options of the command.

    Args:
        payload: of `fastkcl.payloads.options`.

    Raises:
        UsageError: a schema that is none, or an option.
    """

    def __init__(self, payload: Any) -> None:  # noqa: ANN401 - of `payload_to_read`
        with without_extra("arrow"):
            import pyarrow  # noqa: F401 - only to see whether the extra is there
        from fastkcl.payloads.table import opener_of

        try:
            opener = opener_of(payload, max_bytes=_TABLE_BYTES, max_table_bytes=_LARGEST_TABLE)
        except (ConfigurationError, ConnectionError, ValueError) as error:
            raise click.UsageError(printable(str(error))) from None
        if opener is None:
            raise click.UsageError("binary payloads without compression are as they are: there is nothing to open")
        self._opener = opener

    def shown(self, batch: _core.RecordBatch, most: int) -> list[str]:
        """The payload of each record, as JSON for people.

        Args:
            batch: of the records.
            most: characters of a payload; of a longer one there is one more.
        """
        own = {"data", "_corrupt", *_core.CANONICAL_COLUMNS}
        texts = []
        for table in self._open(batch):
            columns = [name for name in table.column_names if name not in own]
            corrupt = table["_corrupt"].to_pylist()
            rows = table.select(columns).to_pylist()
            texts += [
                _text(row)[: most + 1] if kept is None else f"corrupt: {len(kept):,} B  {kept[:24].hex(' ')}"
                for row, kept in zip(rows, corrupt, strict=True)
            ]
        return texts

    def tables(self, batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[pa.Table]:
        """Tables of the batches' records, an empty one first; the shard's id is the first column."""
        import pyarrow as pa

        message = _core.decode_line(_RECORD)
        assert isinstance(message, _core.ProcessRecords)

        def tables_of(shard_id: str | None, batch: _core.RecordBatch) -> Iterator[pa.Table]:
            for opened in self._open(batch):
                shards = pa.array([shard_id] * opened.num_rows, pa.string())
                yield opened.add_column(0, pa.field("shardId", pa.string()), shards)

        yield next(tables_of(None, message.batch)).slice(0, 0)
        for shard_id, batch in batches:
            yield from tables_of(shard_id, batch)

    def json_lines(self, batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[bytes]:
        """A JSON object for each record."""
        for table in self.tables(batches):
            for row in table.to_pylist():
                yield _text(row).encode() + b"\n"

    def _open(self, batch: _core.RecordBatch) -> Iterator[pa.Table]:
        """Tables of all the batch's records: opened, payloads may be many times as large."""
        while len(batch):
            try:
                table = self._opener.open([batch]).table
            except (ConnectionError, ValueError) as error:
                raise click.ClickException(printable(str(error))) from None
            yield table
            batch = batch.slice(table.num_rows)


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:  # noqa: ANN401 - what JSON has no word for
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
