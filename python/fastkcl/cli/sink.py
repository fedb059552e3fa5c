"""``fastkcl sink inspect``: is each record of each shard in a table once, and where does the next writer continue?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fastkcl.cli.output import printable
from fastkcl.cli.sink_care import compact, orphans, table_errors, table_options

if TYPE_CHECKING:
    from fastkcl import Position
    from fastkcl.tables import S3Storage
    from fastkcl.tables.inspection import ShardState, TableState

__all__ = ["sink"]

_MOST_LINES = 10  # of one kind and shard; JSON has all


@click.group()
def sink() -> None:
    """Inspect and maintain a table that a worker has written.

    \b
    Examples:
      fastkcl sink inspect /data/events
      fastkcl sink inspect s3://lake/clicks
      fastkcl sink orphans /data/events --delete
      fastkcl sink compact /data/events
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines


sink.add_command(orphans)
sink.add_command(compact)


@sink.command()
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output, with complete lists.")
@table_options
@click.pass_context
def inspect(
    ctx: click.Context, /, url: str, as_json: bool, storage: S3Storage | None, catalog: Mapping[str, str] | None
) -> None:
    """Show, for each stream and shard of the table at URL, whether each record is there once.

    URL is a folder, s3://bucket/table, or with --catalog the name of an Iceberg table, as for fastkcl load. The output
    has commits, records, the first and the last position, and the position that the next writer continues from. It also
    has the faults: gaps (a commit continues from a position that no other commit ends at), missing files, files that no
    commit names, and doubles (rows with a stream, shard, sequence number and sub-sequence number that another row has).
    A commit that is not published yet is not a fault: the next writer publishes it first.

    The table belongs to a ParquetTable, a ParquetSink, a DeltaSink, a DeltaTable or an IcebergTable. For a Delta table
    only the commits in its log are known, for an Iceberg table only those of the remaining snapshots. A TableSink's
    table has no positions and cannot be inspected. The command reads the files' key columns, not their payloads. It
    changes nothing and needs no Spark. The table may be in use.

    \b
    Examples:
      fastkcl sink inspect /data/events
      fastkcl sink inspect s3://lake/clicks --json | jq '.shards[] | select(.ok | not)'
      fastkcl sink inspect db.clicks --catalog type=glue --catalog warehouse=s3://lake/warehouse

    Exits with 0 if the table is sound, 1 if it is not, 2 if URL is not such a table or cannot be read.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    from fastkcl.tables.formats import inspect_table

    with table_errors(url):
        table = inspect_table(url, storage, catalog)
    if as_json:
        click.echo(json.dumps(_as_json(table), indent=2))
    else:
        for line in _lines(table):
            click.echo(printable(line))
    ctx.exit(0 if table.ok else 1)


# For tools.


def _as_json(table: TableState) -> dict[str, Any]:
    return {
        "path": table.path,
        "sink": table.sink,
        "ok": table.ok,
        "shards": [_shard_as_json(shard) for shard in table.shards],
        "unknown_files": list(table.unknown),
        "damage": list(table.damage),
    }


def _shard_as_json(shard: ShardState) -> dict[str, Any]:
    return {
        "stream": shard.stream,
        "shard": shard.shard_id,
        "ok": shard.ok,
        "commits": shard.commits,
        "all_commits": shard.all_commits,
        "records": shard.records,
        "rows": shard.rows,
        "first": _position(shard.first),
        "last": _position(shard.last),
        "continues_from": _position(shard.position),
        "gaps": _spans(shard.gaps),
        "unpublished": _spans(shard.unpublished),
        "missing_files": shard.missing,
        "unknown_files": shard.unknown,
        "doubles": None if shard.doubles is None else shard.doubles.rows,
        "doubles_examples": [] if shard.doubles is None else list(shard.doubles.examples),
        "doubles_not_looked_for": [{"why": why, "files": files} for why, files in shard.unkeyed.items()],
        "damage": shard.damage,
    }


def _position(position: Position | None) -> dict[str, Any] | None:
    if position is None:
        return None
    return {"sequenceNumber": position.sequence_number, "subSequenceNumber": position.sub_sequence_number}


def _spans(commits: Sequence[tuple[Position | None, Position]]) -> list[dict[str, Any]]:
    return [{"after": _position(after), "upto": _position(upto)} for after, upto in commits]


# For people.


def _lines(table: TableState) -> Iterator[str]:
    yield f"{table.path}: a table of {table.sink}, {_count(len(table.shards), 'shard')}"
    for shard in table.shards:
        yield ""
        yield f"{shard.stream}  {shard.shard_id}"
        for name, values in _facts(shard):
            for index, value in enumerate(_few(values)):
                yield f"  {'' if index else name:<16}{value}"
    if table.unknown:
        yield ""
        yield "In folders of no shard with commits, and read as a part of the table:"
        yield from (f"  {name}" for name in _few(table.unknown))
    if table.damage:
        yield ""
        yield "Damage of the table as a whole (see docs/recovery.md):"
        yield from (f"  {damage}" for damage in _few(table.damage))
    bad = sum(not shard.ok for shard in table.shards)
    yield ""
    if table.ok:
        yield "All is well."
    else:
        yield f"The table is not sound: see above ({bad} of {_count(len(table.shards), 'shard')})."


def _facts(shard: ShardState) -> Iterator[tuple[str, Sequence[str]]]:
    from fastkcl.tables.base import place
    from fastkcl.tables.inspection import span

    waiting = f", {len(shard.unpublished)} not published yet" if shard.unpublished else ""
    left = "" if shard.all_commits else " in the log that is left"
    yield "commits", [f"{shard.commits:,}{left}{waiting}"]
    yield "records", [f"{shard.records:,} committed, {_count(shard.rows, 'row')} in the table"]
    yield "first", ["unknown" if shard.first is None else place(shard.first)]
    yield "last", ["unknown" if shard.last is None else place(shard.last)]
    yield "continues after", ["the shard's start" if shard.position is None else place(shard.position)]
    yield "gaps", [f"nothing leads to the commit {span(*gap)}" for gap in shard.gaps] or ["none"]
    yield "missing files", shard.missing or ["none"]
    if shard.unknown:
        yield "of no commit", shard.unknown
    yield "doubles", _doubles(shard)
    if shard.damage:
        yield "damage", shard.damage


def _doubles(shard: ShardState) -> list[str]:
    lines = []
    if shard.doubles is not None:
        examples = ", ".join(shard.doubles.examples)
        lines.append(f"{_count(shard.doubles.rows, 'row')} too many, e.g. of {examples}" if examples else "none")
    lines += [f"not looked for in {_count(files, 'file')}: {why}" for why, files in shard.unkeyed.items()]
    return lines or ["not looked for: no file could be read"]


def _few(values: Sequence[str]) -> Iterator[str]:
    yield from values[:_MOST_LINES]
    if len(values) > _MOST_LINES:
        yield f"... and {len(values) - _MOST_LINES:,} more"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
