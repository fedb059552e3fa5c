"""``fastkcl bench``: the cost of a batch of your own records, compared with other ways to decode it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastkcl import _core
from fastkcl.cli.extras import without_extra
from fastkcl.cli.output import printable
from fastkcl.portable import is_linux
from fastkcl.replay import SourceError
from fastkcl.replay.profiles import PROFILES

if TYPE_CHECKING:
    from fastkcl.bench.batch import Batch
    from fastkcl.bench.run import Figures, Report, Suite

__all__ = ["bench"]


class _InputError(click.ClickException):
    exit_code = 2


@click.command()
@click.option(
    "--file",
    "payloads",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Each line of this file (.gz too) is a payload.",
)
@click.option(
    "--input",
    "records",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Records of a JSON lines or Parquet file, as `fastkcl replay` reads them.",
)
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Generated payloads.  [default: clickstream]")
@click.option(
    "--rounds", default=11, show_default=True, type=click.IntRange(1, 1000), help="Measurements of each peer."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
def bench(
    payloads: Path | None,
    records: Path | None,
    profile: str | None,
    rounds: int,
    as_json: bool,
    folder: Path | None,
) -> None:
    """Measure fastkcl on your own payloads, beside the alternatives.

    One batch is decoded into a pyarrow.RecordBatch, in this process and by child processes on real pipes. It is as
    large as a daemon's (10,000 records or 10 MiB; fewer payloads are repeated). The alternatives are Python's json and
    base64, amazon_kclpy (or its decoding steps, if it is not installed), and, if installed, msgspec, orjson,
    pysimdjson, pybase64, polars and DuckDB; on the pipe also a child that only reads. The results are compared first;
    the measurements take turns.

    With FOLDER, each file in it is a payload.

    \b
    Examples:
      fastkcl bench
      fastkcl bench --file events.jsonl
      fastkcl bench --input records.parquet --json

    It needs Linux.

    Exits with 0 if everything was measured, 1 if fastkcl's result differs from Python's, 2 if it could not start.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    given = [name for name, value in _sources(payloads, records, profile, folder).items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"give only one source of payloads: {given[0]} or {given[1]}")
    if not is_linux():
        raise _InputError(
            "fastkcl bench needs Linux, which pins processes to cores and has their figures in /proc: run it there"
        )
    with without_extra("arrow"):
        import pyarrow  # noqa: F401 - only to see whether the extra is there
    from fastkcl.bench.run import BenchError, measure

    try:
        batch = _batch(payloads, records, profile, folder)
    except SourceError as error:
        raise _InputError(printable(str(error))) from None
    try:
        with _progress() as on_progress:
            report = measure(batch, rounds=rounds, on_progress=on_progress)
    except BenchError as error:
        raise click.ClickException(printable(str(error))) from None
    if as_json:
        click.echo(json.dumps(_as_json(report), indent=2))
    else:
        _show(report)


def _sources(
    payloads: Path | None, records: Path | None, profile: str | None, folder: Path | None
) -> dict[str, Path | str | None]:
    return {"--file": payloads, "--input": records, "--profile": profile, "FOLDER": folder}


def _batch(payloads: Path | None, records: Path | None, profile: str | None, folder: Path | None) -> Batch:
    from fastkcl.bench import batch

    if payloads is not None:
        return batch.of_lines(payloads)
    if records is not None:
        return batch.of_records(records)
    return batch.of_profile(profile or "clickstream") if folder is None else batch.of_folder(folder)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda name, done, of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from fastkcl.cli.console import Console

    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, Any] = {}

    def on_progress(name: str, done: int, of: int) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=of)
        bar.update(tasks[name], completed=done)

    with bar:
        yield on_progress


# Output for people and tools.


def _machine() -> dict[str, str]:
    from fastkcl.bench import peers

    found = {
        "fastkcl": _core.__version__,
        "backend": _core.isa(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for name in ("pyarrow", *peers.LIBRARIES):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _as_json(report: Report) -> dict[str, Any]:
    batch = report.batch
    return {
        "machine": _machine(),
        "batch": {
            "from": batch.describe,
            "records": batch.records,
            "distinct_records": batch.distinct,
            "payload_bytes": batch.payload_bytes,
            "line_bytes": len(batch.line),
        },
        "suites": [
            {
                "name": suite.name,
                "peers": {name: _figures(figures, suite, batch) for name, figures in suite.figures.items()},
                "not_measured": suite.unequal,
            }
            for suite in report.suites
        ],
    }


def _figures(figures: Figures, suite: Suite, batch: Batch) -> dict[str, float | int | None]:
    ours = next(iter(suite.figures.values()))
    size = len(batch.line)
    return {
        "seconds": figures.seconds,
        "seconds_p10": figures.low,
        "seconds_p90": figures.high,
        "mb_per_second": size / figures.seconds / 1e6,
        "fastkcl_is_faster_by": figures.seconds / ours.seconds,
        "ns_per_record": figures.seconds / batch.records * 1e9,
        "cpu_seconds_per_gb": None if figures.cpu_seconds is None else figures.cpu_seconds / size * 1e9,
        "idle_resident_bytes": figures.idle_resident_bytes,
    }


def _show(report: Report) -> None:
    from rich import box
    from rich.table import Table

    from fastkcl.cli.console import Console

    batch = report.batch
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(", ".join(f"{name} {version}" for name, version in _machine().items()), markup=False)
    repeated = "" if batch.records == batch.distinct else f" ({batch.distinct:,}, repeated)"
    console.print(
        f"{printable(batch.describe)}: {batch.records:,} records{repeated}, {batch.payload_bytes / 1e6:,.2f} MB, as a "
        f"line of {len(batch.line) / 1e6:,.2f} MB",
        markup=False,
    )
    for suite in report.suites:
        pipe = any(figures.cpu_seconds is not None for figures in suite.figures.values())
        heads = ["", "MB/s of line", "p10–p90", "fastkcl is faster by", "ns a record"]
        heads += ["CPU s/GB", "idle child, MB"] if pipe else []
        table = Table(*heads, box=box.SIMPLE_HEAD)
        for column in table.columns[1:]:
            column.justify = "right"
        for name, figures in suite.figures.items():
            row = _figures(figures, suite, batch)
            slow, fast = len(batch.line) / figures.high / 1e6, len(batch.line) / figures.low / 1e6
            cells = [
                f"{row['mb_per_second']:,.0f}",
                f"{slow:,.0f}–{fast:,.0f}",
                f"{row['fastkcl_is_faster_by']:.2f}",
                f"{row['ns_per_record']:,.0f}",
            ]
            if pipe:
                cells += [f"{row['cpu_seconds_per_gb']:.2f}", f"{(row['idle_resident_bytes'] or 0) / 1e6:.1f}"]
            table.add_row(name, *cells)
        console.print(suite.name)
        console.print(table)
        for name, wrong in suite.unequal.items():
            console.print(f"{name} was not measured: {printable(wrong)}", markup=False)
    console.print(
        "Medians; peers took turns. MB/s are bytes of the daemon's line (base64, keys, JSON). The bare reader decodes"
        " nothing: it is the floor.",
        markup=False,
    )
