"""Print the figures of one bench run, and the table of targets; write them into a page, and draw them.

    python bench/report.py [--markdown PAGE FIGURES] [--plots FOLDER] RESULT.json...

Each RESULT.json comes from ``pytest bench --benchmark-json=RESULT.json`` or from fastkcl-bench; ``make bench`` runs
both. Ratios are those of medians of one run; figures of different runs or machines are not to be compared. Speeds are
bytes of the line (base64, keys and all) for a second, MB = 10**6. In brackets: 10th and 90th percentile of the rounds.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from report_spark import spark_tables
from results import Result, Results, Row, read
from rich import box
from rich.console import Console
from rich.table import Table
from targets import PROFILES, TARGETS, Outcome

BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
"""What `--markdown` writes between, on both pages."""
MISSING = "–"


@dataclass(frozen=True)
class Sheet:
    """A table of texts, for a terminal and for a page. The first column is the rows' names."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def show(self, console: Console) -> None:
        """To a terminal."""
        table = Table(*self.columns, box=box.SIMPLE_HEAD)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in self.rows:
            table.add_row(*row)
        console.print(self.title)  # as the table's own it would be wrapped to its width
        console.print(table)

    def markdown(self) -> str:
        """To a page."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        return f"**{self.title}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def number(value: float) -> str:
    """Three digits that count, at least."""
    magnitude = abs(value)
    digits = 0 if magnitude >= 100 or not value else 1 if magnitude >= 10 else 2 if magnitude >= 0.2 else 3
    return f"{value:,.{digits}f}"


def with_spread(result: Result, scale: float = 1.0) -> str:
    """E.g. ``21.3 (19.8-23.1)``."""
    low, high = number(result.low * scale), number(result.high * scale)
    return f"{number(result.median * scale)} ({low}–{high})" if low != high else number(result.median * scale)


# Suites.

_SECONDS = [("seconds", "ms", 1e3)]
_FIGURES = {
    "record size": [("nanoseconds", "ns a record, by bytes of its payload", 1.0)],
    "memory": [
        ("start_resident_bytes", "MB of a fresh child", 1e-6),
        ("idle_resident_bytes", "MB after a batch of 15 MB and 5 s of silence", 1e-6),
    ],
    "idle children": [("core_share", "% of one core", 1e2)],
    "start-up": _SECONDS,
    "install": [("seconds", "ms of the import in a new process", 1e3), ("wheel_bytes", "MB of the wheel", 1e-6)],
    "last byte to status": _SECONDS,
    "paced": [
        ("seconds", "ms from the first byte of a line to its status", 1e3),
        ("cpu_of_line", "CPU of the child for a line and the silence after it, ms", 1e3),
    ],
    "group": [
        ("records_a_second", "records a second", 1.0),
        ("gap_seconds", "s from a kill until its shards are read again, failover 3 s", 1.0),
    ],
    "payloads with a schema": [("seconds", "ms", 1e3), ("speed", "MB/s", 1e-6)],
    "typed payloads": [*_SECONDS, ("cpu_seconds_of_all", "CPU of all, ms", 1e3)],
    "tables, put to row": [
        ("put_to_row_seconds", "s from a put to a row that readers see, median", 1.0),
        ("put_to_row_99_percent", "the same, 99 of 100 rows", 1.0),
    ],
    "tables, many writers": [
        ("writes_a_second", "writes a second", 1.0),
        ("seconds_of_95_percent", "s, within which 95 of 100 writes were done", 1.0),
        ("longest_seconds", "s of the slowest write", 1.0),
    ],
    "tables, start-up": [
        ("seconds", "ms from before the fork to the status of initialize", 1e3),
        ("first_batch_seconds", "ms to the status of the first batch", 1e3),
    ],
    "tables": [("cpu_per_gb", "CPU of all, s for a GB of payloads", 1.0)],
    "source, Parquet": [("cpu_per_gb", "CPU of all, s for each GB of payloads more", 1.0)],
    "source, Avro": [("cpu_per_gb", "CPU of all, s for each GB of payloads more", 1.0)],
    "source, JSON": [("cpu_per_gb", "CPU of all, s for each GB of payloads more", 1.0)],
    "source, batch": [("cpu_per_batch", "CPU of all, s a batch", 1.0)],
    "source, latency": [("put_to_row_seconds", "s from a put to its row", 1.0)],
    "source, idle": [("core_share", "% of one core", 1e2)],
    "source, plan": [
        ("first_plan_seconds", "s of the first", 1.0),
        ("next_plan_seconds", "s of the next", 1.0),
        ("first_calls_a_shard", "GetRecords a shard, the first", 1.0),
        ("next_calls_a_shard", "GetRecords a shard, the next", 1.0),
    ],
}
"""What is shown of a suite whose name begins so: figure, title, scale."""
_SPEEDS = [("speed", "MB/s", 1e-6), ("cpu", "the child's CPU, s/GB", 1.0)]


def suite_sheets(results: Results) -> list[Sheet]:
    """All figures of all suites."""
    sheets = []
    for suite in results.suites():
        rows = results.suite(suite)
        figures = next((found for name, found in _FIGURES.items() if suite.startswith(name)), _SPEEDS)
        for figure, title, scale in figures:
            if any(row.figures(peer, figure) for row in rows.values() for peer in row.samples):
                sheets.append(_sheet(f"{suite}: {title}", rows, figure, scale))
    return sheets


def _sheet(title: str, rows: dict[str, Row], figure: str, scale: float) -> Sheet:
    measured = (peer for row in rows.values() for peer in row.samples if row.figures(peer, figure))
    peers = list(dict.fromkeys(measured))

    def cell(row: Row, peer: str) -> str:
        values = row.figures(peer, figure)
        return with_spread(Result.of(values), scale) if values else MISSING

    return Sheet(title, ["", *rows], [[peer, *(cell(row, peer) for row in rows.values())] for peer in peers])


# Targets.


def target_sheet(results: Results) -> Sheet:
    """Every target of which something was measured; those for other profiles have their cells in the last column."""
    rows = []
    for target in TARGETS:
        outcomes = target.outcomes(results)
        if all(outcome.result is None for outcome in outcomes.values()):
            continue
        by_profile = set(outcomes) == set(PROFILES)
        cells = [_outcome(outcomes[profile]) if by_profile else "" for profile in PROFILES]
        named = [f"{profile}: {_outcome(outcome)}" for profile, outcome in outcomes.items() if not by_profile]
        rows.append([target.what, *cells, "; ".join(named)])
    return Sheet("Targets (✓ met, ✗ missed)", ["what", *PROFILES, "other"], rows)


def not_measured(results: Results) -> list[str]:
    """Targets of suites that have not run, or of peers that are not there."""
    return [
        target.what
        for target in TARGETS
        if all(outcome.result is None for outcome in target.outcomes(results).values())
    ]


def _outcome(outcome: Outcome) -> str:
    target = outcome.target
    bound = f"{'≥' if target.at_least else '≤'} {outcome.bound:g}{target.unit}"
    if outcome.result is None:
        return f"{bound}: not measured"
    return f"{with_spread(outcome.result)} {'✓' if outcome.met else '✗'} {bound}"


def machine(results: Results) -> str:
    """What all this was measured on and with."""
    found = results.machine
    if not found:
        return "machine: not told (no result of pytest-benchmark)"
    cpu = found["cpu"].get("brand_raw", found["machine"])
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    load = ", ".join(f"{value:.1f}" for value in found.get("load", ()))
    return (
        f"{cpu}, {found['cpus']} CPUs, {found['system']} {found['release']}; codec backend {found['isa']}; {versions}; "
        f"{results.when[:16]}" + (f"; load average at the start {load}" if load else "")
    )


# Output.


def write_pages(page: Path, figures: Path, results: Results, plots: list[Path]) -> None:
    """Put targets and plots between the marks of one page, and the tables of all suites between those of the other.

    Raises:
        OSError, ValueError: a page cannot be read or written, or has no marks.
    """
    targets = [target_sheet(results).markdown()]
    if missing := not_measured(results):
        targets.append(f"Not measured in this run: {'; '.join(missing)}.\n")
    targets += [f"![{path.stem.replace('-', ' ')}]({path.relative_to(page.parent)})\n" for path in plots]
    _write_between_marks(page, [f"{machine(results)}.\n", *targets])
    _write_between_marks(figures, [f"{machine(results)}.\n", *(sheet.markdown() for sheet in suite_sheets(results))])


def _write_between_marks(page: Path, parts: list[str]) -> None:
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no marks {BEGIN} and {END}")
    page.write_text(f"{before}{begin}\n\n" + "\n".join(parts) + f"\n{end}{after}")


def main(arguments: list[str]) -> int:
    """Print everything; the exit status, which is 0 also where a target is missed."""
    parser = argparse.ArgumentParser(prog="report.py", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--markdown",
        type=Path,
        nargs=2,
        metavar=("PAGE", "FIGURES"),
        help="write targets and plots between the marks of PAGE, and the tables of all suites between those of FIGURES",
    )
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw SVG files into this folder")
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULT.json")
    options = parser.parse_args(arguments)
    try:
        results = read(options.results)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"report: not a result of this bench: {error!r}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    console.print(machine(results))
    for sheet in suite_sheets(results):
        sheet.show(console)
    for info in results.spark:
        spark_tables(info)
    if (sheet := target_sheet(results)).rows:
        sheet.show(console)
    if missing := not_measured(results):
        console.print(f"Not measured in this run: {'; '.join(missing)}.")
    plots = []
    if options.plots is not None:
        from plots import draw

        plots = draw(results, machine(results), options.plots)
    if options.markdown is not None:
        write_pages(*options.markdown, results, plots)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
