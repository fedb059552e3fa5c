"""Measurements, read back: rows of a suite and a profile, with the samples of each peer.

Comes from files that pytest-benchmark has written (`suites.take_turns` put the samples there) and from fastkcl-bench's
(`rust/bench`). Rows of a later file replace those of an earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

__all__ = ["FIGURES", "Result", "Results", "Row", "spread"]

FIGURES = {
    "seconds": "s of a line",
    "first_batch_seconds": "s from the start of a child to the status of its first batch",
    "speed": "bytes of line a second",
    "nanoseconds": "ns a record",
    "cpu": "CPU s of the child for a GB of line",
    "cpu_seconds_of_all": "CPU s of all processes",
    "cpu_of_line": "CPU s of the child from one line to the next",
    "start_resident_bytes": "bytes",
    "idle_resident_bytes": "bytes",
    "core_share": "of a core",
    "wheel_bytes": "bytes",
    "cpu_per_gb": "CPU s of all processes for a GB of payloads more",
    "cpu_per_batch": "CPU s of all processes for a batch",
    "put_to_row_seconds": "s from a put to its row",
    "put_to_row_99_percent": "s from a put to its row, within which 99 of 100 rows came",
    "writes_a_second": "of all writers",
    "seconds_of_95_percent": "s, within which 95 of 100 writes were done",
    "longest_seconds": "s of the slowest write",
    "first_plan_seconds": "s",
    "next_plan_seconds": "s",
    "first_calls_a_shard": "calls of GetRecords",
    "next_calls_a_shard": "calls of GetRecords",
}
"""What can be asked of a row, with its unit."""


@dataclass(frozen=True)
class Row:
    """One profile in one suite. `samples` as in `fastkcl.bench.turns`."""

    line_bytes: int
    records: int
    samples: dict[str, dict[str, list[float]]]

    def peer(self, name: str) -> str | None:
        """The peer of that name, or whose name begins with it and a blank, as versions do."""
        return next((peer for peer in self.samples if peer == name or peer.startswith(f"{name} ")), None)

    def figures(self, peer: str, figure: str) -> list[float]:
        """One value of each round; empty for what was not measured."""
        found = self.samples.get(self.peer(peer) or "", {})
        if figure == "speed":
            return [self.line_bytes / seconds for seconds in found.get("seconds", ())]
        if figure == "nanoseconds":
            return [seconds / self.records * 1e9 for seconds in found.get("seconds", ())]
        if figure == "cpu":
            return [seconds / self.line_bytes * 1e9 for seconds in found.get("cpu_seconds", ())]
        if figure == "cpu_seconds_of_all":
            return found.get("cpu_seconds", []) if "client_cpu_seconds" in found else []
        return found.get(figure, [])


@dataclass(frozen=True)
class Result:
    """A median with the 10th and the 90th percentile of its rounds."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float], centre: float | None = None) -> Result:
        """Of at least one value; `centre` instead of their median."""
        return Result(median(values) if centre is None else centre, *spread(values))


def spread(values: list[float]) -> tuple[float, float]:
    """10th and 90th percentile."""
    if len(values) < 2:
        return values[0], values[0]
    tenths = quantiles(values, n=10, method="inclusive")
    return tenths[0], tenths[-1]


@dataclass
class Results:
    """All rows, and where they come from.

    Attributes:
        rows: by suite and profile.
        machine: the machine_info of pytest-benchmark.
        when: date and time of the last file with a machine.
        spark: the extra_info of the Spark suites, which have reports of their own.
    """

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    when: str = ""
    spark: list[dict[str, Any]] = field(default_factory=list)

    def suite(self, name: str) -> dict[str, Row]:
        """The rows of a suite by profile."""
        return {profile: row for (suite, profile), row in self.rows.items() if suite == name}

    def suites(self) -> list[str]:
        """Their names, in the order of the files."""
        return list(dict.fromkeys(suite for suite, _ in self.rows))


def read(paths: Iterable[Path]) -> Results:
    """All files.

    Raises:
        OSError, ValueError, KeyError, TypeError: one cannot be read, or is no result of this bench.
    """
    results = Results()
    for path in paths:
        content = json.loads(path.read_text())
        if isinstance(content, list):
            for row in content:
                key = (row["suite"], row["profile"])
                known = results.rows.setdefault(key, Row(row["line_bytes"], row["records"], {}))
                known.samples[row["peer"]] = {"seconds": row["seconds"]}
            continue
        results.machine, results.when = content["machine_info"], content["datetime"]
        for run in content["benchmarks"]:
            info = run["extra_info"]
            if "spark" in info:
                results.spark.append(info)
            else:
                row = Row(info.get("line_bytes", 0), info.get("records", 0), info["samples"])
                results.rows[info["suite"], info["profile"]] = row
    return results
