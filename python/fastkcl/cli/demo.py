"""``fastkcl demo``: shows and checks the whole way from a daemon's lines to a Spark table."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from threading import Lock

import click
from rich import box
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fastkcl.cli.console import Console
from fastkcl.cli.extras import check_local_aws, without_extra
from fastkcl.daemon.jars import JarsError
from fastkcl.demo.lake import can_run
from fastkcl.demo.parts import DemoError
from fastkcl.demo.replayed import run_demo
from fastkcl.demo.report import DemoReport, DemoShard, Event, Lake, ShardWork
from fastkcl.java import JavaNotFoundError
from fastkcl.replay import Progress as ReplayProgress
from fastkcl.replay import ReplayError
from fastkcl.spark import SparkUnavailableError

__all__ = ["demo"]

_INTRODUCTION = """\
A Kinesis stream of click events, on this machine and without AWS:

[b]replayer[/b]  plays the Java daemon: a child per shard, JSON lines over pipes
[b]children[/b]  decode them straight into Arrow columns, for Spark
[b]Spark[/b]     writes the payloads' fields to Parquet; then a child checkpoints
[b]trouble[/b]   a child is killed, a shard is split, Spark is killed as well
[b]check[/b]     Spark reads it back: is every record there, once, unchanged?
[b]S3[/b]        {lake}"""
_LAKE = "the same records again, by children that write the table themselves"
_NO_LAKE = "left out, as it needs pip install 'fastkcl[local,s3]'"

_DAEMON_INTRODUCTION = """\
A Kinesis stream of click events, on this machine, and the real daemon:

[b]local AWS[/b]  has the stream and the lease table
[b]daemon[/b]     Java, KCL 3, started by `fastkcl daemon`: a child per shard
[b]children[/b]   decode its JSON lines into Arrow columns, for Spark
[b]Spark[/b]      writes the payloads' fields to Parquet; a child checkpoints
[b]trouble[/b]    a shard is split
[b]check[/b]      Spark reads it back: is every record there, once?"""


@click.command()
@click.option(
    "--shards", default=4, show_default=True, type=click.IntRange(1, 64), help="Number of shards; each has a child."
)
@click.option(
    "--records",
    default=25_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="Number of records in each shard.",
)
@click.option(
    "--daemon", "real", is_flag=True, help="Use a real Java daemon (KCL 3) and local AWS instead of the replayer."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output, and nothing else there."
)
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the table in DIR, which must be new or empty. Without this option nothing is kept.",
)
def demo(shards: int, records: int, real: bool, as_json: bool, keep: Path | None) -> None:
    """See it work: generated shards, child processes, Spark, Parquet, and a check of the table.

    A child is killed, a shard is split, and Spark is killed and started again. This needs pyspark and Java (17 or
    newer, or the one of pip install 'fastkcl[jdk]'). It takes about a minute, mostly to start the JVMs. Exits with 1
    if a record is missing, doubled or changed.

    With --daemon, the records are put into a stream of local AWS, the Java daemon of KCL 3 reads them, and only a shard
    is split. This also needs pip install 'fastkcl[local]' and the daemon's jars, which are found or fetched as for
    `fastkcl daemon`.

    \b
    Examples:
      fastkcl demo
      fastkcl demo --daemon --shards 2
      fastkcl demo --shards 8 --records 100000 --keep /tmp/clicks
      fastkcl demo --json | jq .steps
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    console = Console(stderr=as_json, highlight=False)
    run = _run_real if real else _run_replayed
    if not as_json:
        text = _DAEMON_INTRODUCTION if real else _INTRODUCTION.format(lake=escape(_LAKE if can_run() else _NO_LAKE))
        console.print(Panel(text, title="fastkcl demo", title_align="left", expand=False, padding=(1, 2)))
    try:
        with _Display(console) as display:
            report = run(shards, records, keep, display)
    except (SparkUnavailableError, ReplayError, DemoError, JarsError, JavaNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or 'demo'}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _show(console, report)
    for line in report.output:
        click.echo(line, err=True)
    sys.exit(0 if report.ok else 1)


def _run_replayed(shards: int, records: int, keep: Path | None, display: _Display) -> DemoReport:
    return run_demo(shards=shards, records=records, keep=keep, on_step=display.step, on_progress=display.progress)


def _run_real(shards: int, records: int, keep: Path | None, display: _Display) -> DemoReport:
    check_local_aws()
    with without_extra("local"):
        import_module("fastkcl.local_aws.server")  # a separate process has it, whose message would come late
        from fastkcl.demo.daemon import run_daemon_demo
        from fastkcl.local_aws import LocalAwsError
    try:
        return run_daemon_demo(
            shards=shards, records=records, keep=keep, on_step=display.step, on_progress=display.count
        )
    except LocalAwsError as error:
        raise DemoError(str(error)) from error


class _Display:
    """The step at hand with its time, and a bar while the children work; quiet without a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._shards: dict[int, ReplayProgress] = {}
        self._lock = Lock()

    def __enter__(self) -> _Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, description: str) -> None:
        """Begin a step; called from any thread."""
        with self._lock:
            if not self._console.is_terminal:
                self._console.print(f"… {description}")
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._task = self._progress.add_task(description, total=None, count="")

    def progress(self, shard: ReplayProgress) -> None:
        """Move the bar; called from the shards' threads."""
        with self._lock:
            self._shards[shard.index] = shard
            done = sum(each.records for each in self._shards.values())
            total = sum(each.records_total for each in self._shards.values())
        self.count(done, total)

    def count(self, done: int, total: int) -> None:
        """Move the bar; called from any thread."""
        with self._lock:
            assert self._task is not None
            self._progress.update(self._task, completed=done, total=total, count=f"{done:,} records")


def _show(console: Console, report: DemoReport) -> None:
    console.print(_shard_table(report.shards))
    console.print(_event_table(report.events))
    if report.countries:
        console.print(_country_table(report))
    if report.lake is not None:
        console.print(_lake_table(report.lake))
    console.print(_work_table(report.work))
    console.print(_step_table(report))
    for problem in report.problems:
        console.print(Text(f"problem: {problem}", style="red"))
    console.print(_verdict(report))


def _table(title: str) -> Table:
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )


def _shard_table(shards: list[DemoShard]) -> Table:
    table = _table("Records sent, and records in the table")
    table.add_column("shard", no_wrap=True)
    for name in ("sent", "again", "stored", "lost", "doubled"):
        table.add_column(name, justify="right")
    table.add_column("content")
    for shard in shards:
        table.add_row(
            shard.shard_id,
            f"{shard.sent:,}",
            f"{shard.again:,}",
            f"{shard.stored:,}",
            _bad_number(shard.lost),
            _bad_number(shard.doubled),
            Text("identical", style="green") if shard.same_content else Text("differs", style="red"),
        )
    return table


def _bad_number(number: int) -> Text:
    return Text(f"{number:,}", style="red" if number else "green")


def _event_table(events: list[Event]) -> Table:
    table = _table("Faults on the way")
    table.add_column("after", justify="right")
    table.add_column("")
    for event in events:
        table.add_row(f"{event.seconds:,.1f} s", event.what)
    return table


def _work_table(work: list[ShardWork]) -> Table:
    table = _table("Work of the children, by their metrics, the time without Spark included")
    table.add_column("shard", no_wrap=True)
    for name in ("children", "writes", "MB", "dropped", "writing s", "waiting s"):
        table.add_column(name, justify="right")
    for shard in work:
        table.add_row(
            shard.shard_id,
            str(shard.processes),
            str(shard.writes),
            f"{shard.written_bytes / 1e6:,.1f}",
            f"{shard.dropped:,}",
            f"{shard.write_seconds:,.1f}",
            f"{shard.processing_seconds:,.1f}",
        )
    return table


def _country_table(report: DemoReport) -> Table:
    table = _table("Payloads as Spark sees them")
    table.add_column("country")
    for name in ("events", "purchases", "revenue"):
        table.add_column(name, justify="right")
    for row in report.countries:
        table.add_row(row.country, f"{row.events:,}", f"{row.purchases:,}", f"{row.revenue:,.2f}")
    return table


def _lake_table(lake: Lake) -> Table:
    table = _table(f"The table that children wrote to {lake.url} themselves, as others read it")
    table.add_column("reader")
    for name in ("sent", "rows", "lost", "doubled", "revenue"):
        table.add_column(name, justify="right")
    for each in lake.readers:
        table.add_row(
            each.name,
            f"{lake.sent:,}",
            f"{each.rows:,}",
            _bad_number(lake.sent - each.distinct),
            _bad_number(each.rows - each.distinct),
            f"{each.revenue:,.2f}",
        )
    return table


def _step_table(report: DemoReport) -> Table:
    table = _table("Steps")
    table.add_column("step", no_wrap=True)
    for name in ("MB", "seconds", "MB/s"):
        table.add_column(name, justify="right")
    for step in report.steps:
        rate = step.megabytes_per_second
        table.add_row(
            step.name,
            "" if step.bytes is None else f"{step.bytes / 1e6:,.1f}",
            f"{step.seconds:,.2f}",
            "" if rate is None else f"{rate:,.{0 if rate >= 10 else 1}f}",  # noqa: PLR2004 - two digits
        )
    table.add_section()
    table.add_row("in all", "", f"{report.total_seconds:,.2f}", "")
    return table


def _verdict(report: DemoReport) -> Text:
    sent = sum(shard.sent for shard in report.shards)
    if report.ok:
        text = Text(
            f"✓ All {sent:,} records of {len(report.shards)} shard(s) arrived, each once and unchanged.", "bold green"
        )
    else:
        lost = sum(shard.lost for shard in report.shards)
        doubled = sum(shard.doubled for shard in report.shards)
        changed = sum(not shard.same_content for shard in report.shards)
        text = Text(
            f"✗ Of {sent:,} records {lost:,} are missing and {doubled:,} doubled; the content of {changed} of"
            f" {len(report.shards)} shard(s) differs, and {len(report.problems)} problems were found.",
            "bold red",
        )
    text.append(f"\n  Spark ran on {report.java}.", "not bold dim")
    if report.table is not None:
        text.append(f"\n  The table is in {report.table}.", "not bold")
    return text
