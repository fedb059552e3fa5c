"""The display of `fastkcl load` for its shards: on a terminal, in a line, and in all when some have come and gone."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from fastkcl.cli.console import Console
from fastkcl.cli.load_display import LineDisplay, TableDisplay, logged_to, progress_line
from fastkcl.cli.load_state import ShardMonitor, Shards
from fastkcl.cli.rates import Rate
from waiting import wait_until


def begin(shards: Shards, name: str) -> ShardMonitor:
    monitor = ShardMonitor(shards, "app")
    for counter in ("written_records", "written_bytes", "writes"):
        monitor.metrics.counter(counter, "of a test")
    monitor.metrics.gauge("behind_latest_seconds", "of a test", lambda: 1.5)
    monitor.metrics.gauge("held_records", "of a test", lambda: 7)
    monitor.metrics.timestamp("last_write", "of a test")
    monitor.start({"stream": "clicks", "shard": name})
    return monitor


def write(monitor: ShardMonitor, rows: int) -> None:
    values = {metric.name: metric for metric in monitor.metrics}
    values["written_records"].add(rows)  # type: ignore[union-attr]
    values["written_bytes"].add(1000 * rows)  # type: ignore[union-attr]
    values["writes"].add()  # type: ignore[union-attr]
    values["last_write"].touch()  # type: ignore[union-attr]


def test_shards_that_come_and_go() -> None:
    shards = Shards()
    assert progress_line(shards.look(0.0)) == "0 shards; 0 rows (0.0 MB) in 0 commits; 0 rows/s, 0.00 MB/s; 0 held"
    first, second = begin(shards, "shardId-000000000000"), begin(shards, "shardId-000000000001")
    shards.look(0.0)
    write(first, 2000)
    write(second, 1000)
    look = shards.look(10.0)
    assert [(each.shard_id[-1], each.rows, each.rows_a_second) for each in look.shards] == [
        ("0", 2000, 200.0),
        ("1", 1000, 100.0),
    ]
    assert progress_line(look) == (
        "2 shards, 1.5 s behind; 3,000 rows (3.0 MB) in 2 commits, the last one 0 s ago; 300 rows/s, 0.30 MB/s; 14 held"
    )
    first.stop()
    first.stop()
    third = begin(shards, "shardId-000000000000")  # it comes back
    write(third, 5)
    look = shards.look(20.0)
    assert (look.rows, look.commits, look.held) == (3005, 3, 14)
    assert look.rows_by_shard == {"shardId-000000000000": 2005, "shardId-000000000001": 1000}


def test_a_rate_is_of_the_last_seconds() -> None:
    rate = Rate(10.0)
    assert [rate.at(now, count) for now, count in ((0, 0), (5, 50), (10, 100), (20, 100), (30, 100), (40, 0))] == [
        *(0.0, 10.0, 10.0, 0.0, 0.0, 0.0),
    ]


def test_a_terminal_has_a_table_and_the_log_above_it() -> None:
    shards = Shards()
    file = io.StringIO()
    display = TableDisplay(
        Console(file=file, force_terminal=True, width=120, highlight=False), lambda: shards.look(0.0)
    )
    write(begin(shards, "shardId-000000000000"), 3)
    display.write("a line of [b]the log[/b]")
    display._live.refresh()
    display.stop()
    display.stop()
    text = file.getvalue()
    assert "a line of [b]the log[/b]" in text
    assert "no shard yet" in text
    assert "shardId-000000000000" in text
    assert "last commit" in text


def test_a_line_now_and_then() -> None:
    shards = Shards()
    file = io.StringIO()
    display = LineDisplay(Console(file=file), lambda: shards.look(0.0), every=0.01)
    wait_until(lambda: file.getvalue().count("0 shards; 0 rows") > 1, "two lines", seen=file.getvalue)
    display.stop()


@pytest.mark.parametrize(("verbose", "lines"), [(False, 1), (True, 2)])
def test_the_log_is_lines_without_tracebacks_and_passwords(
    verbose: bool, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also after a line from before, for which the log has made a handler."""
    said: list[str] = []
    logging.getLogger("fastkcl").addHandler(own := logging.StreamHandler(sys.stderr))
    before = logging.getLogger("fastkcl").handlers[:]
    with logged_to(said.append, verbose=verbose):
        logging.getLogger("fastkcl.kinesis.hosting").info("shard came")
        try:
            raise ValueError("x")
        except ValueError:
            logging.getLogger("fastkcl.kinesis.hosting").exception("at http://user:TOKEN@host/\x1b[31m")
    assert len(said) == lines
    assert said[-1].endswith(r"ERROR: at http://…@host/\x1b[31m")
    assert logging.getLogger("fastkcl").handlers == before
    logging.getLogger("fastkcl").removeHandler(own)
    assert capsys.readouterr().err == ""
