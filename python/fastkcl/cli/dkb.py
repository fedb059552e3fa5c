"""``fastkcl dkb run``: a pipeline of DKB stages from its file, with progress for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import click
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fastkcl.cli.console import Console
from fastkcl.cli.output import printable, standard_output_of_bytes
from fastkcl.dkb.pipeline import Pipeline, PipelineError, StageReport, read_pipeline

__all__ = ["dkb"]

_LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "CRITICAL")
_REFRESH_SECONDS = 0.5
_PLAIN_SECONDS = 10.0  # between two lines where nobody watches


class _UsageError(click.ClickException):
    exit_code = 2


class _Progress(AbstractContextManager["_Progress"]):
    """Shows the progress of the stages: a table on a terminal, otherwise a line from time to time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pipeline: Pipeline | None = None
        self._over = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def watch(self, pipeline: Pipeline) -> None:
        """Show this one, from now on."""
        self._pipeline = pipeline
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        if not self._console.is_terminal:
            while not self._over.wait(_PLAIN_SECONDS):
                self._console.print("; ".join(map(_summary, self._reports())), highlight=False, markup=False)
            return
        with Live(console=self._console, transient=True, auto_refresh=False) as live:
            while not self._over.wait(_REFRESH_SECONDS):
                live.update(self._table(), refresh=True)

    def _reports(self) -> Sequence[StageReport]:
        assert self._pipeline is not None
        return self._pipeline.reports()

    def _table(self) -> Table:
        seconds = max(time.monotonic() - self._begun, 0.001)
        table = Table(title=f"{seconds:.0f} s")
        for name in ("stage", "messages", "results", "results/s", "restarts", "skipped", "state"):
            table.add_column(name, justify="left" if name in ("stage", "state") else "right")
        for report in self._reports():
            table.add_row(
                Text(report.name),
                f"{report.messages:,}",
                f"{report.results:,}",
                f"{report.results / seconds:,.0f}",
                f"{report.restarts:,}",
                f"{report.skipped:,}",
                report.state,
            )
        return table


def _summary(report: StageReport) -> str:
    parts = [f"{report.messages:,} messages in {report.requests:,} requests"] if report.requests else []
    parts.append(f"{report.results:,} results")
    for count, name in ((report.restarts, "restarts"), (report.skipped, "skipped"), (report.partial, "dropped")):
        if count:
            parts.append(f"{count:,} {name}")
    return f"{report.name}: {report.state}, {', '.join(parts)}"


@click.group()
def dkb() -> None:
    """Pipelines of stages that speak the DKB stream protocol."""


@dkb.command()
@click.argument("file", metavar="PIPELINE.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--log",
    "level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    default="INFO",
    show_default=True,
    help="Lowest level shown of the stages' standard error; lines without a level are TRACE.",
)
def run(file: Path, level: str) -> None:
    """Run the stages of a pipeline, each in its own process.

    The file names the stages, their input, and the reaction to a death; see docs/dkb.md. Exits with 0 if everything was
    processed, 1 if a stage failed or messages were skipped, 2 if the file is wrong.
    """
    console = Console(stderr=True, soft_wrap=True)
    least = _LEVELS.index(level.upper())

    def show(stage: str, level: str, line: bytes) -> None:
        if _LEVELS.index(level) >= least:
            text = printable(line.decode(errors="backslashreplace"))
            console.print(f"{stage} {level} {text}", highlight=False, markup=False)

    try:
        pipeline, close = read_pipeline(file, on_log=show, stdout=standard_output_of_bytes())
    except PipelineError as error:
        raise _UsageError(str(error)) from None
    try:
        with _Progress(console) as progress:
            progress.watch(pipeline)
            reports = pipeline.run()
    except PipelineError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.ClickException("interrupted; all stages were ended") from None
    finally:
        close()
        for report in pipeline.reports():
            console.print(_summary(report), highlight=False, markup=False)
    if any(report.skipped for report in reports):
        raise click.exceptions.Exit(1)
