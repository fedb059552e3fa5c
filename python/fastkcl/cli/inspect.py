"""``fastkcl inspect``: captured lines for reading, or their records for other tools.

Lines that a daemon wrote are decoded by the same codec as in a child, so it shows the records that a child gets. A file
of a child's lines (``.out.jsonl``) can be shown too, as the daemon reads them. The formats for tools hold the records
only, in the canonical schema and with the shard's id first; JSON lines and Parquet can be replayed with
``fastkcl replay --input``.

Rules: an error names the line. The table shows the error in its row and goes on; a row is shown as soon as its line
is read. A file for tools is written whole or not at all; a FIFO or a device is written in place. Nothing that a line
holds reaches a terminal as a control character.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import click

from fastkcl import _core
from fastkcl.cli.inspect_payloads import OpenedBatches
from fastkcl.cli.output import json_text, output_error, printable, standard_output_of_bytes
from fastkcl.cli.payloads import payload_to_read, read_options
from fastkcl.replay.child_lines import read_child_line
from fastkcl.replay.sources import READ_ERRORS, bounded_lines, open_lines

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.align import AlignMethod
    from rich.text import Text

    from fastkcl.cli.console import Console

__all__ = ["inspect"]

_PREVIEW = 48  # characters of a payload in the table
_OPENED = 200  # characters of an opened one
_LONGEST_CELL = 1000  # characters: rich takes a second for a million
_PLAIN_WIDTH = 200  # columns of the table where standard output is not a terminal
_ROWS_OF_A_BATCH = 5
_TABLE_BYTES = 64 << 20  # of a part of a file for tools
_TABLE_BATCHES = 1000
_LONGEST_CHILD_LINE = 1 << 20  # of which Python's objects are made, a hundred bytes of two

Format = Literal["table", "jsonl", "parquet", "arrow"]


class _Shown(NamedTuple):
    """The fields of a batch that the table shows."""

    rows: int
    opened: OpenedBatches | None


class _BadLineError(click.ClickException):
    """A line that cannot be decoded; standard error gets ``FILE:LINE: kind: what``."""

    exit_code = 1


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl", "parquet", "arrow"]),
    default="table",
    show_default=True,
    help="table for people; the others hold the records only (arrow: an IPC file).",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="File to write; - is standard output, the default (not for parquet and arrow on a terminal).",
)
@click.option(
    "--records",
    "rows",
    type=click.IntRange(0),
    default=_ROWS_OF_A_BATCH,
    show_default=True,
    help="Most records of each batch that the table shows.",
)
@read_options
@click.pass_context
def inspect(
    ctx: click.Context,
    /,
    file: str,
    form: Format,
    output: Path | None,
    rows: int,
    payload: str | None,
    **options: Any,  # noqa: ANN401 - the options of read_options
) -> None:
    """Show the captured lines of FILE (- for standard input) or convert their records.

    FILE has the lines of a daemon to a child, one JSON message in each; .gz is unpacked. The table format can also
    show the lines of a child (.out.jsonl).

    \b
    Examples:
      fastkcl inspect tests/data/kcl-multilang/split.shard0.in.jsonl
      fastkcl inspect capture.in.jsonl.gz --format parquet --output records.parquet
      fastkcl inspect capture.in.jsonl --payload avro --schema click.avsc --framing glue --registry glue
      fastkcl inspect - --format jsonl < capture.in.jsonl | head -1

    Exits with 1 if a line cannot be read, 2 if FILE or the output cannot be used, 141 if the output's reader has ended.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    if output == Path("-"):
        output = None
    name = "standard input" if file == "-" else file
    to_open = payload_to_read(payload, options)
    opened = None if to_open is None else OpenedBatches(to_open)
    with contextlib.closing(_open(file)) as lines:
        if form == "table":
            errors = _table(lines, name, _Shown(rows, opened), output)
            ctx.exit(1 if errors else 0)
        batches = _batches(lines, name)
        if form == "jsonl":
            made = _json_lines(batches) if opened is None else opened.json_lines(batches)
            _write(output, lambda sink: sink.writelines(made))
        else:
            if output is None and sys.stdout.isatty():
                raise click.UsageError(f"--format {form} is not for a terminal; give --output FILE")
            tables = _arrow_tables(batches) if opened is None else opened.tables(batches)
            schema = next(tables).schema
            _write(output, lambda sink: _write_tables(schema, tables, form, sink))


def _open(file: str) -> BufferedIOBase:
    if file != "-":
        try:
            return open_lines(Path(file), lambda: _wait(f"{file}: nobody writes to this pipe"))
        except OSError as error:
            raise output_error(file, error) from None
    if sys.stdin is None:
        raise click.UsageError("standard input is closed")
    return sys.stdin.buffer  # type: ignore[return-value]


def _wait(why: str) -> None:
    click.echo(f"{why} yet: waiting", err=True)


def _lines(lines: BufferedIOBase, name: str) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, cut at LF only, as a child cuts them."""
    try:
        yield from enumerate(bounded_lines(lines), 1)
    except READ_ERRORS as error:
        raise _BadLineError(f"{name}: {error}") from None


# For people.


class _Column(NamedTuple):
    """Characters on a narrow terminal, characters on a wide one, and the alignment of a cell."""

    name: str
    least: int
    most: int
    style: str = ""
    justify: AlignMethod = "left"
    cut: bool = False
    """Cut long text instead of folding it."""


_COLUMNS = (
    _Column("line", 5, 6, style="dim", justify="right"),
    _Column("message", 14, 18, style="cyan"),
    _Column("place", 15, 58),  # of 56 digits and a sub-sequence number
    _Column("partition key", 8, 24, cut=True),
    _Column("arrival", 13, 24),
    _Column("content", 15, 60),
)
_GAP = "  "


class _Rows:
    """Prints rows one by one, in columns that are as wide as the console allows, whatever will stand in them."""

    def __init__(self, console: Console) -> None:
        room = console.width - len(_GAP) * (len(_COLUMNS) - 1)
        least, most = (sum(widths) for widths in zip(*((each.least, each.most) for each in _COLUMNS), strict=True))
        share = min(1.0, max(0.0, (room - least) / (most - least)))
        self._widths = [each.least + int((each.most - each.least) * share) for each in _COLUMNS]
        self._console = console
        self._print([each.name for each in _COLUMNS], ["bold"] * len(_COLUMNS))
        console.rule(characters="-", style="dim")

    def add(self, *cells: str, error: bool = False) -> None:
        """Print one row; cells that are missing at its end are empty."""
        self._print(cells, ["red" if error else each.style for each in _COLUMNS])

    def _print(self, cells: Iterable[str], styles: Iterable[str]) -> None:
        from rich.text import Text

        folded = [
            self._folded(column, width, Text(printable(_shortened(cell, _LONGEST_CELL)), style))
            for column, width, cell, style in zip(_COLUMNS, self._widths, cells, styles, strict=False)
        ]
        blanks = [Text(" " * width) for width in self._widths]
        for parts in zip_longest(*folded):
            line = Text(_GAP).join(part or blank for part, blank in zip(parts, blanks, strict=False))
            line.rstrip()
            self._console.print_line(line)

    def _folded(self, column: _Column, width: int, cell: Text) -> Iterable[Text]:
        """The lines of a cell."""
        if len(cell) <= width and cell.plain.isascii():  # most are, and rich's way is slow
            cell.align(column.justify, width)
            return [cell]
        return cell.wrap(
            self._console,
            width,
            justify=column.justify,
            overflow="ellipsis" if column.cut else "fold",
            no_wrap=column.cut,
        )


def _table(lines: BufferedIOBase, name: str, shown: _Shown, output: Path | None) -> int:
    """Write the table; returns the number of lines that could not be read."""
    from fastkcl.cli.console import Console

    if output is None:
        width = None if sys.stdout.isatty() else _PLAIN_WIDTH
        return _show(lines, name, shown, Console(highlight=False, width=width))
    errors = 0

    def fill(sink: IO[bytes]) -> None:
        nonlocal errors
        text = io.TextIOWrapper(sink, "utf-8", "backslashreplace")
        errors = _show(lines, name, shown, Console(file=text, highlight=False, width=_PLAIN_WIDTH))
        text.detach()

    _write(output, fill)
    return errors


def _show(lines: BufferedIOBase, name: str, shown: _Shown, console: Console) -> int:
    from rich.text import Text

    console.print(Text(printable(name), "italic"), soft_wrap=True)
    console.print()
    table = _Rows(console)
    errors = sum(_add_line(table, number, line, shown) for number, line in _lines(lines, name))
    if errors:
        console.print(f"\nLines that cannot be read: {errors} (see the errors above).", style="red")
    return errors


def _add_line(table: _Rows, number: int, line: bytes, shown: _Shown) -> bool:
    """Add the rows of one line; returns whether it is an error."""
    try:
        message = _core.decode_line(line)
    except _core.DecodeError as error:
        said = _child_message(line)
        if said is not None:
            table.add(str(number), *said)
            return False
        table.add(str(number), "error", "", "", "", str(error), error=True)
        return True
    if message is None:
        return False
    if isinstance(message, _core.ProcessRecords):
        _add_batch(table, number, len(line), message, shown)
        return False
    name, place, content = _describe(message, line)
    table.add(str(number), name, place, "", "", content)
    return False


def _child_message(line: bytes) -> tuple[str, str, str, str, str] | None:
    """A status, which only a child writes."""
    if len(line) > _LONGEST_CHILD_LINE:
        return None
    read = read_child_line(line)
    if read.verdict != "accept" or read.message is None or read.message["action"] != "status":
        return None
    return "status (child)", "", "", "", f"for {read.message['responseFor']}"


def _describe(message: _core.Message, line: bytes) -> tuple[str, str, str]:
    """Name, place and content of a message without records."""
    match message:
        case _core.Initialize():
            start = _place(message.sequence_number, message.sub_sequence_number)
            return message.action, start, f"{message.shard_id} ({message.dialect})"
        case _core.Checkpoint():
            place = _place(message.sequence_number, message.sub_sequence_number) or "(end of the delivered records)"
            if b'"error"' not in line:  # a daemon's reply always has the key, a request has no use for it
                return "checkpoint (child)", place, "asked for"
            return message.action, place, message.error or "ok"
        case _core.Shutdown():
            return message.action, "", message.reason
        case _:
            return message.action, "", ""


def _place(sequence_number: str | None, sub_sequence_number: int | None) -> str:
    if sequence_number is None:
        return ""
    return sequence_number if sub_sequence_number is None else f"{sequence_number}/{sub_sequence_number}"


def _add_batch(table: _Rows, number: int, line_bytes: int, message: _core.ProcessRecords, shown: _Shown) -> None:
    batch, rows = message.batch, shown.rows
    behind = "" if message.millis_behind_latest is None else f", {message.millis_behind_latest} ms behind"
    content = f"{len(batch):,} records, {line_bytes:,} B of line{behind}"
    table.add(str(number), message.action, "", "", "", content)
    opened = None if shown.opened is None else shown.opened.shown(batch.slice(0, min(rows, len(batch))), _OPENED)
    for index, record in enumerate(batch):
        if index == rows:
            table.add("", "", f"... {len(batch) - rows:,} more (--records N shows more)" if rows else "")
            break
        table.add(
            "",
            f"  record {index}",
            _place(record.sequence_number, record.sub_sequence_number),
            record.partition_key,
            _arrival(record.timestamp_millis),
            _payload(record.data) if opened is None else _shortened(printable(opened[index]), _OPENED),
        )


def _arrival(millis: int | None) -> str:
    if millis is None:
        return "null"
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, OSError, ValueError):  # beyond the years that datetime knows
        return f"{millis} ms"


def _payload(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = printable(data.decode()[: _PREVIEW + 1])
    except UnicodeDecodeError:
        text = data[:_PREVIEW].hex(" ")
    return f"{len(data):,} B  {_shortened(text, _PREVIEW)}"


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# For tools.


def _batches(lines: BufferedIOBase, name: str) -> Iterator[tuple[str | None, _core.RecordBatch]]:
    """Record batches with the id of the shard whose initialize came before."""
    shard_id: str | None = None
    for number, line in _lines(lines, name):
        try:
            message = _core.decode_line(line)
        except _core.DecodeError as error:
            raise _BadLineError(printable(f"{name}:{number}: {error}")) from None
        if isinstance(message, _core.Initialize):
            shard_id = message.shard_id
        elif isinstance(message, _core.ProcessRecords):
            yield shard_id, message.batch


def _json_lines(batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[bytes]:
    for shard_id, batch in batches:
        for record in batch:
            row: dict[str, Any] = {
                "shardId": shard_id,
                "data": None if record.data is None else _core.encode_base64(record.data).decode(),
                "partitionKey": record.partition_key,
                "sequenceNumber": record.sequence_number,
                "subSequenceNumber": record.sub_sequence_number,
                "approximateArrivalTimestamp": record.timestamp_millis,
            }
            yield json_text(row).encode() + b"\n"


def _arrow_tables(batches: Iterable[tuple[str | None, _core.RecordBatch]]) -> Iterator[pa.Table]:
    """Tables of some size, an empty one first."""
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        raise click.UsageError("this format needs pyarrow: pip install 'fastkcl[arrow]'") from None

    def table(found: list[tuple[str | None, _core.RecordBatch]]) -> pa.Table:
        records = pa.Table.from_batches([pa.record_batch(batch) for _, batch in found], schema=schema)
        shards = [shard_id for shard_id, batch in found for _ in range(len(batch))]
        return records.add_column(0, pa.field("shardId", pa.string()), pa.array(shards, pa.string()))

    empty = _core.decode_line(b'{"action":"processRecords","records":[]}')
    assert isinstance(empty, _core.ProcessRecords)
    schema = pa.record_batch(empty.batch).schema
    yield table([])
    held: list[tuple[str | None, _core.RecordBatch]] = []
    for shard_id, batch in batches:
        held.append((shard_id, batch))
        if sum(each.nbytes for _, each in held) >= _TABLE_BYTES or len(held) == _TABLE_BATCHES:
            yield table(held)
            held = []
    if held:
        yield table(held)


def _write_tables(schema: pa.Schema, tables: Iterable[pa.Table], form: Format, sink: Any) -> None:  # noqa: ANN401 - any binary file
    if form == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(sink, schema) as writer:
            for table in tables:
                writer.write_table(table)
        return
    import pyarrow as pa

    with pa.ipc.new_file(sink, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _write(output: Path | None, fill: Callable[[Any], object]) -> None:
    """Fill standard output, a FIFO, a device, or a file that appears only when it is complete.

    Args:
        output: None for standard output.
        fill: called with any binary file.
    """
    if output is None:
        sink = standard_output_of_bytes()
        fill(sink)
        sink.flush()
        return
    try:
        try:
            mode = output.stat().st_mode
        except FileNotFoundError:
            mode = stat.S_IFREG | 0o666 & ~_umask()
        if stat.S_ISREG(mode):
            _replace(output.resolve(), fill, stat.S_IMODE(mode))  # the target of a symbolic link, not the link
        else:
            with _open_fifo(output) if stat.S_ISFIFO(mode) else output.open("wb") as sink:
                fill(sink)
    except OSError as error:
        raise output_error(str(output), error) from None


def _open_fifo(output: Path) -> BinaryIO:
    """Open a FIFO for writing, which waits for a reader; say so if it has none."""
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        _wait(f"{output}: nobody reads this FIFO")
        return output.open("wb")
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


def _replace(output: Path, fill: Callable[[Any], object], mode: int) -> None:
    descriptor, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            fill(sink)
        part.chmod(mode)
        part.replace(output)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
