"""The tables of the Spark bench; a part of report.py."""

from __future__ import annotations

from statistics import median
from typing import Any

TARGET = 0.8
"""Of createDataFrame's best case, what a child of fastkcl.spark has to reach."""
OURS = "fastkcl.spark"
BEST = "pa.Table in memory"

Table = dict[str, dict[str, str]]


def table(title: str, rows: Table) -> None:
    """A table with a row a peer and a column a figure."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    widths = [max(len(name), *(len(row.get(name, "")) for row in rows.values())) for name in columns]
    first = max(len(name) for name in (title, *rows))
    print(f"\n{title:{first}}  " + "  ".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True)))
    for name, row in rows.items():
        cells = (f"{row.get(column, '-'):>{width}}" for column, width in zip(columns, widths, strict=True))
        print(f"{name:{first}}  " + "  ".join(cells))


def spark_tables(info: dict[str, Any]) -> None:
    """Print what one test has measured: its extra_info."""
    runs: dict[str, list[dict[str, Any]]] = info["spark"]
    arrow, payload = info["arrow_bytes"], info["payload_bytes"]
    lines = runs[OURS][0]["line_bytes"]
    seconds = {name: median(one["seconds"] for one in measured) for name, measured in runs.items()}
    best = min((name for name in runs if name.startswith(BEST)), key=lambda name: seconds[name])
    print(
        f"\n{info['suite']}: {info['shards']} shards, {payload / 1e6:,.0f} MB of payloads,"
        f" {arrow / 1e6:,.0f} MB of Arrow columns, {lines / 1e6:,.0f} MB of lines"
    )
    rows: Table = {}
    for name, measured in runs.items():
        times = [one["seconds"] for one in measured]
        rows[name] = {
            "Arrow MB/s": f"{arrow / seconds[name] / 1e6:,.1f}",
            "slowest-quickest": f"{arrow / max(times) / 1e6:,.1f}-{arrow / min(times) / 1e6:,.1f}",
            "line MB/s": f"{lines / seconds[name] / 1e6:,.1f}" if measured[0]["line_bytes"] else "-",
            "of the best case": f"{seconds[best] / seconds[name]:.2f}",
            "quickest": f"{min(one['seconds'] for one in runs[best]) / min(times):.2f}",
        }
    table("throughput", rows)
    table("CPU, s/GB of Arrow", {name: _cpu(measured, arrow) for name, measured in runs.items()})
    table("memory, MB", {name: _memory(name, measured, info) for name, measured in runs.items()})
    share = seconds[best] / seconds[OURS]
    verdict = "met" if share >= TARGET else "MISSED"
    print(f"target: at least {TARGET} of createDataFrame's best case ({best}): {share:.2f}, {verdict}")


def _cpu(measured: list[dict[str, Any]], arrow: int) -> dict[str, str]:
    parts = {
        "clients": [one["client_cpu"] for one in measured],
        "server": [one["server_cpu"] for one in measured],
        "daemon": [one["daemon_cpu"] for one in measured],
    }
    parts["in all"] = [sum(one) for one in zip(*parts.values(), strict=True)]
    return {name: f"{median(values) / arrow * 1e9:.2f}" for name, values in parts.items()}


def _memory(name: str, measured: list[dict[str, Any]], info: dict[str, Any]) -> dict[str, str]:
    cells = {
        "client at its start": f"{median(one['start_bytes'] for one in measured) / 1e6:.0f}",
        "beyond it": f"{median(one['growth_bytes'] for one in measured) / 1e6:.0f}",
    }
    if "server_peak_bytes" in info:
        cells[f"server ({info['heap']} heap)"] = f"{info['server_peak_bytes'][name] / 1e6:,.0f}"
    return cells
