"""The table of shards that `fastkcl daemon` shows on a terminal."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastkcl.cli import daemon_display
from fastkcl.cli.daemon_display import Display, event_line
from fastkcl.daemon.log import LogReader
from fastkcl.daemon.log_lines import Event, Kind, ShardState
from rich.console import Console

FIRST, SECOND, THIRD = (f"shardId-00000000000{n}" for n in range(3))


class Terminal:
    def __init__(self, metrics: Path) -> None:
        self.reader = LogReader(time.monotonic)
        supervisor: Any = SimpleNamespace(reader=self.reader, lock=threading.Lock())
        self.console = Console(width=120, record=True)
        self.display = Display(self.console, supervisor, metrics)

    def rows(self) -> dict[str, list[str]]:
        self.console.print(self.display._table())
        lines = self.console.export_text().splitlines()
        return {words[0]: words[1:] for line in lines if (words := line.split()) and words[0].startswith("shardId")}


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_what_is_known_of_each_shard(terminal: Terminal, tmp_path: Path) -> None:
    first, second, third = (terminal.reader.shard(shard) for shard in (FIRST, SECOND, THIRD))
    first.state, first.records, first.checkpoint_at = ShardState.WORKING, 12_345, time.monotonic() - 100
    second.state, second.checkpoint, second.checkpoint_at = ShardState.ENDED, "SHARD_END", time.monotonic()
    (tmp_path / "fastkcl+a.prom").write_text(
        "# TYPE fastkcl_behind_latest_seconds gauge\n"
        f'fastkcl_behind_latest_seconds{{stream="s",shard="{FIRST}"}} 61.25\n'
        f'fastkcl_records_total{{stream="s",shard="{FIRST}"}} 5\n'
    )
    assert terminal.rows() == {
        FIRST: ["working", "12,345", "0.00", "61.2", "s", "100", "s", "ago"],
        SECOND: ["ended", "0", "0.00", "end", "of", "shard"],
        THIRD: ["lease", "taken", "0", "0.00", "none"],
    }


@pytest.mark.parametrize("value", ["abc", "1_", "\x1b[31m"])
def test_metrics_that_are_none_end_nothing(terminal: Terminal, tmp_path: Path, value: str) -> None:
    """FASTKCL_METRICS_DIR can be a folder that other programs write to."""
    terminal.reader.shard(FIRST)
    sample = f'fastkcl_behind_latest_seconds{{shard="{FIRST}"}}'
    (tmp_path / "a.prom").write_text(f"{sample} 3\n")
    (tmp_path / "b.prom").write_text(f"{sample} {value}\n")
    (tmp_path / "c.prom").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "d.prom")
    (tmp_path / "e.prom").mkdir()
    assert terminal.rows()[FIRST] == ["lease", "taken", "0", "0.00", "3.0", "s", "none"]


@pytest.mark.parametrize("part", ['shard="a"} ', 'shard="a', "} ", "{"])
def test_metrics_of_anybody_take_little_time(terminal: Terminal, tmp_path: Path, part: str) -> None:
    terminal.reader.shard(FIRST)
    (tmp_path / "a.prom").write_text(f"fastkcl_behind_latest_seconds{{{part * (150_000 // len(part))}x y\n")
    begun = time.thread_time()
    assert terminal.rows()[FIRST] == ["lease", "taken", "0", "0.00", "none"]
    assert time.thread_time() - begun < 1


def test_a_look_at_metrics_reads_so_much(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, shard in enumerate((FIRST, SECOND, THIRD)):
        (tmp_path / f"{number}.prom").write_text(f'fastkcl_behind_latest_seconds{{shard="{shard}"}} 3\n')
    assert set(terminal.display._behind()) == {FIRST, SECOND, THIRD}
    monkeypatch.setattr(daemon_display, "_MOST_OF_ALL", 150)
    assert len(terminal.display._behind()) == 2


def test_the_rate_is_that_of_the_last_seconds(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(daemon_display, "time", SimpleNamespace(monotonic=lambda: clock.now))
    shard = terminal.reader.shard(FIRST)
    rates = []
    for now, megabytes in ((0.0, 0), (5.0, 50), (10.0, 50), (20.0, 50), (40.0, 50)):
        clock.now, shard.bytes = now, megabytes * 1_000_000
        rates.append(terminal.rows()[FIRST][3])
    assert rates == ["0.00", "10.00", "5.00", "0.00", "0.00"]


def test_before_the_first_lease(terminal: Terminal) -> None:
    terminal.console.print(terminal.display._table())
    assert "no lease yet" in terminal.console.export_text()


def test_events_as_lines() -> None:
    assert event_line(Event(Kind.BATCH, "x", FIRST, "12:34:56.789")) == f"12:34:56.7 batch       {FIRST}  x"
    assert event_line(Event(Kind.DAEMON, "x", None, "12:34:56.789")) == "12:34:56.7 daemon      x"
