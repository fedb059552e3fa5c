"""How ``fastkcl load`` looks: a table of the shards on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol

from rich import box
from rich.live import Live
from rich.table import Table

from fastkcl.cli.output import printable, without_users

if TYPE_CHECKING:
    from fastkcl.cli.console import Console
    from fastkcl.cli.load_state import Look, ShardLook

__all__ = ["Display", "LineDisplay", "TableDisplay", "count", "logged_to", "progress_line"]

LINE_SECONDS: Final = 10.0
_REFRESHES_PER_SECOND: Final = 2
_MOST_SHARDS: Final = 32  # more rows than a terminal has


class Display(Protocol):
    """Shows a run while it is entered."""

    def write(self, text: str) -> None:
        """A line of the log."""

    def stop(self) -> None:
        """Show nothing more; once more, nothing happens."""


class TableDisplay:
    """A table of the shards, with the log's lines above it.

    Args:
        console: of the terminal.
        look: how it is now.
    """

    def __init__(self, console: Console, look: Callable[[], Look]) -> None:
        self._console = console
        self._look = look
        self._live = Live(
            console=console, get_renderable=self._table, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
        )
        self._live.start()

    def write(self, text: str) -> None:
        """A line of the log."""
        _print(self._console, text)

    def stop(self) -> None:
        """Take the table away."""
        self._live.stop()

    def _table(self) -> Table:
        look = self._look()
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("shard", no_wrap=True)
        for name in ("behind", "rows", "rows/s", "MB/s", "held", "commits", "last commit"):
            table.add_column(name, justify="right", no_wrap=True)
        for shard in look.shards[:_MOST_SHARDS]:
            table.add_row(*_cells(shard.shard_id, shard))
        left = len(look.shards) - _MOST_SHARDS
        if not look.shards:
            table.add_row("no shard yet", *[""] * 7)
        elif left > 0:
            table.add_row(f"and {left} more", *[""] * 7)
        if len(look.shards) != 1:
            table.add_section()
            table.add_row(*_cells("in all", look))
        return table


def _cells(name: str, seen: ShardLook | Look) -> list[str]:
    return [
        name,
        _seconds(seen.behind),
        f"{seen.rows:,}",
        f"{seen.rows_a_second:,.0f}",
        f"{seen.bytes_a_second / 1e6:,.2f}",
        f"{seen.held:,}",
        f"{seen.commits:,}",
        "none" if seen.commit_age is None else f"{seen.commit_age:,.0f} s ago",
    ]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:,.1f} s"


class LineDisplay:
    """A line now and then.

    Args:
        console: of standard error.
        look: how it is now.
        every: seconds.
    """

    def __init__(self, console: Console, look: Callable[[], Look], every: float = LINE_SECONDS) -> None:
        self._console = console
        self._look = look
        self._every = every
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="fastkcl-progress", daemon=True)
        self._look()  # rates begin here
        self._thread.start()

    def write(self, text: str) -> None:
        """A line of the log."""
        _print(self._console, text)

    def stop(self) -> None:
        """Write no more."""
        self._stopped.set()

    def _work(self) -> None:
        while not self._stopped.wait(self._every):
            self.write(f"{time.strftime('%H:%M:%S')} {progress_line(self._look())}")


def _print(console: Console, text: str) -> None:
    with suppress(OSError):  # nobody reads it any more, no reason to end the run
        console.print(text, markup=False, emoji=False)


def progress_line(look: Look) -> str:
    """A look in one line."""
    behind = "" if look.behind is None else f", {look.behind:,.1f} s behind"
    age = "" if look.commit_age is None else f", the last one {look.commit_age:,.0f} s ago"
    return (
        f"{count(len(look.shards), 'shard')}{behind}; {count(look.rows, 'row')} ({look.bytes / 1e6:,.1f} MB) in"
        f" {count(look.commits, 'commit')}{age}; {look.rows_a_second:,.0f} rows/s, {look.bytes_a_second / 1e6:,.2f}"
        f" MB/s; {look.held:,} held"
    )


def count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


@contextmanager
def logged_to(write: Callable[[str], None], *, verbose: bool) -> Iterator[None]:
    """Have the log's lines written, without tracebacks, which are for the errors that nobody knows.

    Args:
        write: a line.
        verbose: from INFO on, not from WARNING on.
    """
    logger = logging.getLogger("fastkcl")
    before = logger.level, logger.propagate, tuple(logger.handlers)
    handler = _Lines(write)
    for other in before[2]:  # each line once: `fastkcl.stdio.log` has its own handler since the first line
        logger.removeHandler(other)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        for other in before[2]:
            logger.addHandler(other)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _Lines(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        said = without_users(printable(record.getMessage()))
        self._write(f"{time.strftime('%H:%M:%S')} {record.levelname}: {said}")
