"""Print the figures of one bench run: machine, versions, MB/s, and how many times fastkcl is faster.

    python bench/report.py RESULT.json

RESULT.json is what ``pytest bench --benchmark-only --benchmark-json=RESULT.json`` wrote. Every ratio is one of
medians from this one run; figures of different runs or machines are not to be compared. Speeds are bytes of the
line (base64, keys and all) for a second, MB = 10**6.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report_spark import spark_tables

OURS = ("fastkcl", "fastkcl.kclpy")
Runs = dict[tuple[str, str], dict[str, Any]]
"""(peer, profile) to a benchmark."""


def table(title: str, rows: dict[str, dict[str, str]]) -> None:
    """A table with a row a peer and a column a profile."""
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    widths = [max(len(name), *(len(row.get(name, "")) for row in rows.values())) for name in columns]
    first = max(len(name) for name in (title, *rows))
    print(f"\n{title:{first}}  " + "  ".join(f"{name:>{width}}" for name, width in zip(columns, widths, strict=True)))
    for name, row in rows.items():
        cells = (f"{row.get(column, '-'):>{width}}" for column, width in zip(columns, widths, strict=True))
        print(f"{name:{first}}  " + "  ".join(cells))


def rows(runs: Runs, show: Callable[[dict[str, Any]], str]) -> dict[str, dict[str, str]]:
    """`show(run)` by peer and profile."""
    found: dict[str, dict[str, str]] = {}
    for (peer, profile), run in runs.items():
        found.setdefault(peer, {})[profile] = show(run)
    return found


def ratios(runs: Runs, value: Callable[[dict[str, Any]], float]) -> dict[str, dict[str, str]]:
    """How many times fastkcl's value each peer's is, where both ran; not for the bare reader."""
    found: dict[str, dict[str, str]] = {}
    for (peer, profile), run in runs.items():
        ours = next((runs[name, profile] for name in OURS if (name, profile) in runs), None)
        if ours is not None and peer not in OURS and not is_bare(peer):
            found.setdefault(peer, {})[profile] = times(value(run) / value(ours))
    return found


def times(ratio: float) -> str:
    """E.g. 12.3x; two places where it is near 1."""
    return f"{ratio:.1f}x" if ratio >= 3 else f"{ratio:.2f}x"


def is_bare(peer: str) -> bool:
    """Whether it only reads, and so is the floor."""
    return peer.startswith("bare read")


def shares(runs: Runs) -> dict[str, dict[str, str]]:
    """What part of the bare reader's speed each peer reaches."""
    bare = {profile: median(run) for (peer, profile), run in runs.items() if is_bare(peer)}
    found: dict[str, dict[str, str]] = {}
    for (peer, profile), run in runs.items():
        if profile in bare and not is_bare(peer):
            found.setdefault(peer, {})[profile] = f"{bare[profile] / median(run):.2f}"
    return found


def median(run: dict[str, Any]) -> float:
    """Seconds."""
    return run["stats"]["median"]


def quickest(run: dict[str, Any]) -> float:
    """Seconds of the round that others disturbed least."""
    return run["stats"]["min"]


def extra(run: dict[str, Any], name: str, scale: float) -> float:
    """A figure that the bench noted beside the time."""
    return run["extra_info"][name] * scale


def suite_tables(suite: str, runs: Runs) -> None:
    """What there is to say about one suite."""

    def all_have(name: str) -> bool:
        return all(name in run["extra_info"] for run in runs.values())

    if all_have("line_bytes"):
        table(f"{suite}: MB/s", rows(runs, lambda run: f"{extra(run, 'line_bytes', 1e-6) / median(run):,.0f}"))
    else:
        table(f"{suite}: ms", rows(runs, lambda run: f"{median(run) * 1e3:.1f}"))
    if compared := ratios(runs, median):
        table(f"{suite}: fastkcl is faster by", compared)
        table(f"{suite}: quickest rounds, by", ratios(runs, quickest))
    if part := shares(runs):
        table(f"{suite}: share of the bare reader's speed", part)
    if all_have("cpu_seconds_per_gb"):
        table(f"{suite}: child's CPU, s/GB", rows(runs, lambda run: f"{extra(run, 'cpu_seconds_per_gb', 1):.2f}"))
        if compared := ratios(runs, lambda run: extra(run, "cpu_seconds_per_gb", 1)):
            table(f"{suite}: fastkcl needs less CPU by", compared)
    if all_have("cpu_seconds"):
        table(f"{suite}: CPU of all, ms", rows(runs, lambda run: f"{extra(run, 'cpu_seconds', 1e3):,.0f}"))
        table(f"{suite}: of it, the child's", rows(runs, lambda run: f"{extra(run, 'client_cpu_seconds', 1e3):,.0f}"))
        if compared := ratios(runs, lambda run: extra(run, "cpu_seconds", 1)):
            table(f"{suite}: fastkcl needs less CPU by", compared)
    if all_have("last_byte_to_status"):
        table(
            f"{suite}: last byte to status, ms", rows(runs, lambda run: f"{extra(run, 'last_byte_to_status', 1e3):.2f}")
        )
    if all_have("start_resident_bytes"):
        table(f"{suite}: before it, MB", rows(runs, lambda run: f"{extra(run, 'start_resident_bytes', 1e-6):.1f}"))
    if all_have("idle_resident_bytes"):
        table(f"{suite}: idle child, MB", rows(runs, lambda run: f"{extra(run, 'idle_resident_bytes', 1e-6):.1f}"))


def main(arguments: list[str]) -> int:
    """Print everything; the exit status."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        result = json.loads(Path(arguments[0]).read_text())
        machine, benchmarks = result["machine_info"], result["benchmarks"]
        versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"report: {arguments[0]} is no result of this bench: {error!r}", file=sys.stderr)
        return 1
    cpu = machine["cpu"].get("brand_raw", machine["machine"])
    print(f"{cpu}, {machine['cpus']} CPUs, {machine['system']} {machine['release']}")
    print(f"codec backend {machine['isa']}; Python {machine['python_version']}; {versions}")
    print(f"{result['datetime']}")
    suites: dict[str, Runs] = {}
    for run in benchmarks:
        info = run["extra_info"]
        if "spark" in info:
            continue
        suites.setdefault(info["suite"], {})[info["peer"], info["profile"]] = run
    for suite, runs in suites.items():
        suite_tables(suite, runs)
    for run in benchmarks:
        if "spark" in run["extra_info"]:
            spark_tables(run["extra_info"], table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
