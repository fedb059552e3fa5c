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
        from fastkcl.payloads.batches import BatchOpener

        try:
            self._opener = BatchOpener(payload)
        except (ConfigurationError, ConnectionError, ValueError) as error:
            raise click.UsageError(printable(str(error))) from None

    def shown(self, batch: _core.RecordBatch) -> list[str]:
        """The payload of each record, as JSON for people."""
        if not len(batch):
            return []
        table = self._open(batch)
        own = {"data", "_corrupt", *_core.CANONICAL_COLUMNS}
        columns = [name for name in table.column_names if name not in own]
        corrupt = table["_corrupt"].to_pylist()
        rows = table.select(columns).to_pylist()
        return [
            _text(row) if kept is None else f"corrupt: {len(kept):,} B  {kept[:24].hex(' ')}"
            for row, kept in zip(rows, corrupt, strict=True)
        ]

    def tables(self, batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[pa.Table]:
        """A table for each batch with records, an empty one first; the shard's id is its first column."""
        import pyarrow as pa

        message = _core.decode_line(_RECORD)
        assert isinstance(message, _core.ProcessRecords)

        def table(shard_id: str | None, batch: _core.RecordBatch) -> pa.Table:
            opened = self._open(batch)
            shards = pa.array([shard_id] * opened.num_rows, pa.string())
            return opened.add_column(0, pa.field("shardId", pa.string()), shards)

        yield table(None, message.batch).slice(0, 0)
        for shard_id, batch in batches:
            if len(batch):
                yield table(shard_id, batch)

    def json_lines(self, batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[bytes]:
        """A JSON object for each record."""
        for table in self.tables(batches):
            for row in table.to_pylist():
                yield _text(row).encode() + b"\n"

    def _open(self, batch: _core.RecordBatch) -> pa.Table:
        try:
            return self._opener.open(batch)
        except ConnectionError as error:
            raise click.ClickException(printable(str(error))) from None


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:  # noqa: ANN401 - what JSON has no word for
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
