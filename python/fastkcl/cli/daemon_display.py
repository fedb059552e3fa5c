"""Shows a running daemon to a person: its log in short, and a table of the shards below it."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fastkcl.cli.rates import Rate
from fastkcl.daemon.log_lines import Event, Kind, Shard, ShardState
from fastkcl.stdio.given_files import read_given

if TYPE_CHECKING:
    from fastkcl.cli.console import Console
    from fastkcl.daemon.supervision import Supervisor

__all__ = ["Display", "event_line"]

_STYLES: Final = {
    ShardState.READING: "green",
    ShardState.WORKING: "green",
    ShardState.FAILED: "red",
    ShardState.LOST: "dim",
    ShardState.ENDED: "dim",
}
_REFRESHES_PER_SECOND: Final = 2
_BEHIND: Final = "fastkcl_behind_latest_seconds{"
_SHARD: Final = re.compile(r'[{,]shard="([^"]+)"')
_MOST_BYTES: Final = 1 << 20  # of a child's metrics, some KB
_MOST_OF_ALL: Final = 16 << 20  # of a look at the folder, into which others may write
_TIME_DIGITS: Final = len("HH:MM:SS.m")
_KIND_WIDTH: Final = max(len(kind.value) for kind in Kind)


def event_line(event: Event) -> str:
    """An event as a line of the folded log."""
    at = (event.time or time.strftime("%H:%M:%S.0"))[:_TIME_DIGITS]
    shard = f"{event.shard}  " if event.shard else ""
    return f"{at} {event.kind.value:<{_KIND_WIDTH}}  {shard}{event.text}"


class Display:
    """The table, while it is entered; lines that the console prints appear above it.

    Args:
        console: of the terminal.
        supervisor: whose daemon's shards are shown.
        metrics: folder where children of fastkcl write their metrics; how far behind they are is from there.
    """

    def __init__(self, console: Console, supervisor: Supervisor, metrics: Path) -> None:
        self._supervisor = supervisor
        self._metrics = metrics
        self._rates: dict[str, Rate] = {}
        self._live = Live(
            console=console, get_renderable=self._table, refresh_per_second=_REFRESHES_PER_SECOND, transient=True
        )

    def __enter__(self) -> Display:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _table(self) -> Table:
        supervisor = self._supervisor
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        table.add_column("shard", no_wrap=True)
        table.add_column("state", no_wrap=True)
        for name in ("records", "MB/s", "behind", "last checkpoint"):
            table.add_column(name, justify="right", no_wrap=True)
        behind = self._behind()
        with supervisor.lock:
            shards = list(supervisor.reader.shards.values())
        for shard in shards:
            lag = behind.get(shard.id)
            table.add_row(
                Text(shard.id),
                Text(shard.state.value, _STYLES.get(shard.state, "yellow")),
                f"{shard.records:,}",
                f"{self._rate(shard):,.2f}",
                "" if lag is None else f"{lag:,.1f} s",
                _checkpoint(shard),
            )
        if not shards:
            table.add_row("no lease yet", "", "", "", "", "")
        return table

    def _rate(self, shard: Shard) -> float:
        """MB/s of the lines with records, over the last seconds."""
        return self._rates.setdefault(shard.id, Rate()).at(time.monotonic(), shard.bytes) / 1e6

    def _behind(self) -> dict[str, float]:
        found: dict[str, float] = {}
        left = _MOST_OF_ALL
        for path in self._metrics.glob("*.prom"):
            try:
                data = read_given(path, min(_MOST_BYTES, left), patience=0)
            except OSError:  # its child has ended meanwhile, or no child wrote it
                continue
            left -= len(data)
            found |= _behind_in(data.decode("utf-8", "replace"))
        return found


def _behind_in(text: str) -> dict[str, float]:
    """Seconds by shard, of a file for Prometheus. The time is proportional to the text: anybody may have written it."""
    found: dict[str, float] = {}
    for line in text.split("\n"):
        if not line.startswith(_BEHIND):
            continue
        labels, _, value = line.rpartition("} ")
        shard = _SHARD.search(labels)
        with suppress(ValueError):
            if shard is not None:
                found[shard[1]] = float(value)
    return found


def _checkpoint(shard: Shard) -> str:
    if shard.checkpoint_at is None:
        return "none"
    age = time.monotonic() - shard.checkpoint_at
    return f"{age:,.0f} s ago" if shard.checkpoint != "SHARD_END" else "end of shard"
