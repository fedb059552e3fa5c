"""``fastkcl spark``: streams as a source of Spark, shown."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastkcl.cli.console import Console
from fastkcl.cli.extras import check_local_aws, without_extra

if TYPE_CHECKING:
    from fastkcl.demo.source import SourceReport

__all__ = ["spark"]


@click.group()
def spark() -> None:
    """Streams as a source of Spark: spark.readStream.format("kinesis")."""


@spark.command()
@click.option(
    "--shards", default=2, show_default=True, type=click.IntRange(1, 64), help="Number of shards of the stream."
)
@click.option(
    "--records", default=30_000, show_default=True, type=click.IntRange(3, 1_000_000), help="Number of records to put."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output, and nothing else there."
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the table and the checkpoint in DIR, which must be new or empty. Without this option nothing is kept.",
)
def demo(shards: int, records: int, as_json: bool, keep: Path | None) -> None:
    """See the source work: local AWS, a query into Parquet, a split, a death, and a check of the table.

    It starts local AWS, puts records, and reads them by spark.readStream.format("kinesis"). It splits a shard, kills
    the driver with its JVM, and starts it again from its checkpoint. Then it checks that each record is in the table
    once. This needs pip install 'fastkcl[spark,local]' and Java (17 or newer, or the one of 'fastkcl[jdk]'). It takes
    about a minute, mostly to start Spark. Exits with 1 if a record is missing or doubled.

    \b
    Examples:
      fastkcl spark demo
      fastkcl spark demo --shards 8 --records 200000 --keep /tmp/clicks
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    with without_extra("spark"):
        import_module("pyspark.sql")
        import_module("botocore")
    check_local_aws()
    with without_extra("local"):
        import_module("fastkcl.local_aws.server")  # a separate process has it, whose message would come late
        import_module("boto3")
    from fastkcl.demo.parts import DemoError
    from fastkcl.demo.source import run_source_demo
    from fastkcl.java import JavaNotFoundError
    from fastkcl.local_aws import LocalAwsError
    from fastkcl.spark.server.jdk import use_java

    console = Console(stderr=as_json, highlight=False)
    try:
        use_java()
        report = run_source_demo(
            shards=shards, records=records, keep=keep, on_step=lambda step: console.print(f"… {step}")
        )
    except (DemoError, JavaNotFoundError, LocalAwsError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'demo'}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _show(console, report)
    sys.exit(0 if report.ok else 1)


def _show(console: Console, report: SourceReport) -> None:
    for seconds, what in report.events:
        console.print(f"{seconds:8,.1f} s  {what}")
    for shard, rows in report.shards.items():
        console.print(f"{rows:10,}  rows of {shard}")
    rate = report.sent / report.query_seconds
    console.print(
        f"{report.sent:,} records put in {report.put_seconds:,.1f} s; in the table after {report.query_seconds:,.1f} s "
        f"and {report.batches} batches: {rate:,.0f} records/s, most of it for {report.restarts + 1} starts of Spark"
    )
    if report.ok:
        console.print(f"✓ Each of the {report.sent:,} records is in the table once.", style="bold green")
    else:
        lost, doubled = report.sent - report.distinct, report.rows - report.distinct
        console.print(f"✗ {lost:,} records are missing, and {doubled:,} rows are doubled.", style="bold red")
    if report.table is not None:
        console.print(f"The table is in {report.table}.")
    else:
        console.print("The table is gone; --keep DIR leaves it to look at.")
