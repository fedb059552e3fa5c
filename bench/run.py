"""Run suites one after another, and report their measurements: run.py [SUITE...], all of them without an argument.

Each suite is a process of its own with a result file of its own in .benchmarks, so that one that fails takes no other
with it. The report is of the suites of this run, and of nothing older. Exits with 1 if a suite failed, which means that
a result was wrong or something could not run; a missed target is no failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / ".benchmarks"
PAGE = ROOT / "docs" / "performance.md"
FIGURES = ROOT / "docs" / "figures.md"
PLOTS = ROOT / "docs" / "performance"
SUITES = {
    "codec": "the codec alone, in Rust (the first build of its peers takes minutes)",
    "decode": "a line in memory to pyarrow, by profile and by size of a record",
    "get_records": "a GetRecords answer in memory to pyarrow, beside botocore's parser",
    "kinesis": "consumer and producer beside async-kinesis",
    "group": "four members of a group, and one that is killed",
    "frames": "frames of ProcessV1 to objects of Python",
    "pipe": "children on pipes",
    "child": "time to the status, start-up, memory, idle children",
    "install": "the size of the wheel, the time of an import",
    "paced": "children at a daemon's pace: a line every 0.2, 1 and 5 s",
    "kclpy": "the drop-in beside amazon_kclpy",
    "framing": "messages between markers, in Python",
    "payload": "typed payloads into Spark",
    "source": "the Spark source beside other ways to read a stream",
    "schema_payload": "Avro and Protobuf payloads to columns, beside their libraries",
    "tables": "from the daemon's line to a committed file, beside Spark Connect",
    "readable": "from a put to a row that readers of a table see",
    "spark": "eight shards into one Spark Connect server (the longest)",
}


def run(suite: str, result: Path) -> bool:
    """One suite; whether it went well."""
    result.unlink(missing_ok=True)
    if suite == "codec":
        lines = ROOT / "target" / "bench" / "lines"
        cargo = ["cargo", "run", "--quiet", "--release", "--manifest-path", ROOT / "rust" / "bench" / "Cargo.toml"]
        commands = [
            [sys.executable, ROOT / "rust" / "bench" / "lines.py", lines],
            [*cargo, "--target-dir", ROOT / "target" / "bench", "--", "--json", result, lines],
            [*cargo, "--target-dir", ROOT / "target" / "bench", "--bin", "framing"],
        ]
    else:
        options = ["--benchmark-only", "--benchmark-quiet", f"--benchmark-json={result}", "--verbose", "--no-header"]
        commands = [[sys.executable, "-m", "pytest", ROOT / "bench" / f"test_bench_{suite}.py", *options]]
        if suite == "install":
            commands.insert(0, ["make", "wheel"])
    try:
        return all(subprocess.run(command, cwd=ROOT, check=False).returncode == 0 for command in commands)
    except OSError as error:
        print(f"bench: {suite}: {error}", file=sys.stderr)
        return False


def _suite(name: str) -> str:
    if name not in SUITES:
        raise argparse.ArgumentTypeError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    return name


def main(arguments: list[str]) -> int:
    """Run, report, and say what failed."""
    listed = "\n".join(f"  {name:11} {what}" for name, what in SUITES.items())
    parser = argparse.ArgumentParser(
        prog="bench/run.py", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=f"suites:\n{listed}"
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", type=_suite, help="all without one")
    parser.add_argument("--write", action="store_true", help="put figures and plots into docs/")
    options = parser.parse_args(arguments)
    chosen = options.suites or list(SUITES)
    RESULTS.mkdir(exist_ok=True)
    failed, results = [], []
    for number, suite in enumerate(chosen, 1):
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"\n== {number} of {len(chosen)}, {suite}: {SUITES[suite]} (load {load})", flush=True)
        begun = time.monotonic()
        if not run(suite, RESULTS / f"{suite}.json"):
            failed.append(suite)
        if (RESULTS / f"{suite}.json").exists():
            results.append(RESULTS / f"{suite}.json")
        print(f"== {suite}: {time.monotonic() - begun:.0f} s", flush=True)
    status = 0
    if results:
        report = [sys.executable, ROOT / "bench" / "report.py", "--plots", PLOTS if options.write else RESULTS]
        page = ["--markdown", PAGE, FIGURES] if options.write else []
        status = subprocess.run([*report, *page, *results], check=False).returncode
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
