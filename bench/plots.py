"""The figures as pictures, each of which names its subject, its unit, its peers and its machine."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
from fastkcl.bench.pipes import BARE
from results import Result, Results, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

_PIPE = "pipe, one core, 1 MiB writes"


def draw(results: Results, machine: str, folder: Path) -> list[Path]:
    """All plots for which something was measured; the files, which are the same for the same results."""
    folder.mkdir(parents=True, exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "fastkcl", "svg.fonttype": "none", "font.size": 10, "axes.axisbelow": True})
    drawn = []
    for name, plot in (
        ("throughput", _throughput),
        ("cost-per-record", _cost_per_record),
        ("cpu-per-gb", _cpu_per_gb),
        ("memory-of-a-child", _memory),
    ):
        figure = plot(results)
        if figure is None:
            continue
        figure.text(0.01, 0.005, "\n".join(wrap(machine, 170)), fontsize=6, color="0.35", va="bottom")
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        path = folder / f"{name}.svg"
        figure.savefig(path, metadata={"Date": None})
        # The renderer leaves blanks at ends of lines.
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
        plt.close(figure)
        drawn.append(path)
    return drawn


def _peers(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(peer for row in rows for peer in row.samples))


def _bars(axes: Axes, rows: dict[str, Row], figure: str, scale: float, pattern: str) -> None:
    """Groups of bars: a group a profile, a bar a peer, its value at its end, its spread as a line."""
    names = _peers(list(rows.values()))
    labels = {BARE: f"{BARE} (decodes nothing)"}
    height = 0.85 / len(names)
    colours = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]
    for index, name in enumerate(names):
        for group, row in enumerate(rows.values()):
            values = row.figures(name, figure)
            if not values:
                continue
            found = Result.of(values)
            value, low, high = (one * scale for one in (found.median, found.low, found.high))
            place = group + index * height
            error = [[max(0.0, value - low)], [max(0.0, high - value)]]
            axes.barh(
                place, value, height, xerr=error, color=colours[index % 10], ecolor="0.3",
                label=labels.get(name, name) if group == 0 else None,
            )  # fmt: skip
            axes.annotate(
                pattern.format(value), (max(value, high), place), xytext=(3, 0), textcoords="offset points",
                va="center", fontsize=7,
            )  # fmt: skip
    axes.set_yticks([group + 0.85 / 2 - height / 2 for group in range(len(rows))], list(rows))
    axes.invert_yaxis()
    axes.grid(axis="x", color="0.9")


def _legend(axes: Axes) -> None:
    title = "medians; lines and bands:\n10th to 90th percentile"
    axes.legend(
        title=title, title_fontsize=7, fontsize=8, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0
    )


def _throughput(results: Results) -> Figure | None:
    rows = results.suite("decode")
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(11, 2 + 1.5 * len(rows)))
    _bars(axes, rows, "speed", 1e-6, "{:,.0f}")
    axes.set_xscale("log")
    axes.set_xlabel("MB/s of the line (base64, keys and JSON included), logarithmic; more is better")
    axes.set_ylabel("payload profile")
    axes.set_title("One processRecords line in memory to a pyarrow.RecordBatch, one thread")
    _legend(axes)
    return figure


def _cost_per_record(results: Results) -> Figure | None:
    rows = results.suite("record size")
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(11, 6))
    sizes = sorted(rows, key=int)
    for name in _peers(list(rows.values())):
        found = [(int(size), rows[size].figures(name, "nanoseconds")) for size in sizes]
        points = [(size, Result.of(values)) for size, values in found if values]
        xs = [size for size, _ in points]
        axes.plot(xs, [one.median for _, one in points], marker="o", label=name)
        axes.fill_between(xs, [one.low for _, one in points], [one.high for _, one in points], alpha=0.2)
    axes.set_xscale("symlog", base=2, linthresh=8)
    axes.set_yscale("log")
    axes.set_xticks([int(size) for size in sizes], [_size(int(size)) for size in sizes])
    axes.set_xlabel("bytes of a record's payload (random), logarithmic")
    axes.set_ylabel("ns a record, logarithmic; less is better")
    axes.set_title("What a record costs: line in memory to a pyarrow.RecordBatch, one thread")
    axes.grid(color="0.9")
    _legend(axes)
    return figure


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB" if size >= 1 << 10 else f"{size} B"


def _cpu_per_gb(results: Results) -> Figure | None:
    rows = results.suite(_PIPE)
    if not rows:
        return None
    figure, axes = plt.subplots(figsize=(11, 1.5 + 1.1 * len(rows)))
    _bars(axes, rows, "cpu", 1.0, "{:.2f}")
    axes.set_xscale("log")
    axes.set_xlabel("CPU seconds (user and system) of the child for a GB of line, logarithmic; less is better")
    axes.set_ylabel("payload profile")
    axes.set_title("CPU of a child process, from the pipe to a pyarrow.RecordBatch (daemon and child on one core)")
    _legend(axes)
    return figure


def _memory(results: Results) -> Figure | None:
    rows = results.suite("memory")
    if not rows:
        return None
    figure, both = plt.subplots(1, 2, figsize=(11, 1.5 + 0.8 * len(rows)), sharey=True)
    titles = {"start_resident_bytes": "initialized", "idle_resident_bytes": "after a batch of 15 MB and 5 s of silence"}
    largest = max(
        max(values)
        for row in rows.values()
        for peer in row.samples
        for values in [row.figures(peer, "idle_resident_bytes")]
    )
    for axes, (name, title) in zip(both, titles.items(), strict=True):
        axes.set_title(title, fontsize=9)
        _bars(axes, rows, name, 1e-6, "{:.1f}")
        axes.set_xlabel("resident memory, MB; less is better")
        axes.set_xlim(0, largest * 1e-6 * 1.2)
    both[0].invert_yaxis()  # shared, so both have turned it
    both[0].set_ylabel("payload profile of the batch")
    figure.suptitle("Memory of an idle child that does nothing with its batch")
    _legend(both[1])
    return figure
