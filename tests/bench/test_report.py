"""The report of `make bench`: the two sides of a target, when it is met, and the text that goes into a page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

BENCH = ROOT / "bench"
sys.path.append(str(BENCH))

from report import BEGIN, END, number  # noqa: E402
from results import Results, read  # noqa: E402
from targets import TARGETS, Side, Target  # noqa: E402

MACHINE = {
    "cpu": {"brand_raw": "A CPU"},
    "machine": "x86_64",
    "cpus": 2,
    "system": "Linux",
    "release": "6",
    "isa": "avx512",
    "load": [0.5, 0.1, 0.0],
    "versions": {"Python": "3.11", "fastkcl": "0.1"},
}


def pytest_file(path: Path, *infos: dict[str, object]) -> Path:
    benchmarks = [{"extra_info": info} for info in infos]
    path.write_text(json.dumps({"machine_info": MACHINE, "datetime": "2026-01-02T03:04:05", "benchmarks": benchmarks}))
    return path


def decode(profile: str, line_bytes: int, **seconds: list[float]) -> dict[str, object]:
    samples = {name.replace("_", " "): {"seconds": values} for name, values in seconds.items()}
    return {"suite": "decode", "profile": profile, "line_bytes": line_bytes, "records": 10, "samples": samples}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    first = pytest_file(
        tmp_path / "decode.json",
        decode("iot", 1000, fastkcl=[1.0, 2.0, 3.0], msgspec_typed=[30.0, 40.0, 90.0]),
        decode("blob", 9000, fastkcl=[3.0]),
    )
    codec = tmp_path / "codec.json"
    row = {"suite": "codec, warm", "profile": "tiny", "line_bytes": 50, "records": 10}
    codec.write_text(json.dumps([row | {"peer": "memcpy", "seconds": [1.0]}, row | {"peer": "x", "seconds": [4e-7]}]))
    return read([first, codec])


OURS = Side("decode", "fastkcl")


@pytest.mark.parametrize(
    ("target", "median", "low", "high", "met"),
    [
        # The median of the ratios would be 30.
        (Target("", OURS, "speed", {"iot": 19}, against=Side("decode", "msgspec")), 20, 20.0, 30.0, True),
        (Target("", OURS, "speed", {"iot": 21}, against=Side("decode", "msgspec")), 20, 20.0, 30.0, False),
        (Target("", OURS, "seconds", {"iot": 2}, at_least=False), 2, 1.2, 2.8, True),
        (Target("", OURS, "seconds", {"iot": 1.9}, at_least=False), 2, 1.2, 2.8, False),
        (Target("", OURS, "nanoseconds", {"iot": 2e8}, at_least=False), 2e8, 1.2e8, 2.8e8, True),
        (
            Target("", Side("decode", "msgspec"), "seconds", {"iot": 38}, False, OURS, difference=True),
            38, 29.8, 76.8, True,
        ),
        # 9000 bytes in 3 s, of 1000 bytes in 1, 2, 3 s: rounds are compared as far as both go.
        (Target("", OURS, "speed", {"blob": 6}, against=Side("decode", "fastkcl", "iot")), 6, 3.0, 3.0, True),
        (Target("", Side("codec, warm", "x"), "nanoseconds", {"tiny": 40}, at_least=False), 40, 40.0, 40.0, True),
    ],
)  # fmt: skip
def test_what_a_target_compares(
    target: Target, median: float, low: float, high: float, met: bool, results: Results
) -> None:
    (outcome,) = target.outcomes(results).values()
    assert outcome.result is not None
    assert outcome.result.median == pytest.approx(median)
    assert (outcome.result.low, outcome.result.high) == (pytest.approx(low, rel=0.2), pytest.approx(high, rel=0.2))
    assert outcome.met is met


@pytest.mark.parametrize(
    "side",
    [Side("decode", "nobody"), Side("decode", "msg"), Side("no suite", "fastkcl"), Side("decode", "fastkcl", "x")],
)
def test_what_was_not_measured_is_neither_met_nor_missed(side: Side, results: Results) -> None:
    for target in (Target("", side, "speed", {"iot": 1}), Target("", OURS, "speed", {"iot": 1}, against=side)):
        (outcome,) = target.outcomes(results).values()
        assert (outcome.result, outcome.met) == (None, None)


def test_each_target_has_a_name_of_its_own_and_bounds() -> None:
    assert len({target.what for target in TARGETS}) == len(TARGETS) > 15
    assert all(target.bounds for target in TARGETS)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1,234"), (99.94, "99.9"), (2.345, "2.35"), (0.0333, "0.033"), (-3, "-3.00")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def report(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, BENCH / "report.py", *arguments], capture_output=True, text=True, timeout=120
    )


def test_a_page_and_plots(tmp_path: Path) -> None:
    result = pytest_file(
        tmp_path / "decode.json", decode("iot", 1000, fastkcl=[1.0, 2.0, 3.0], msgspec_typed=[4.0, 4.0, 4.0])
    )
    page = tmp_path / "page.md"
    figures = tmp_path / "figures.md"
    for path in (page, figures):
        path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    done = report("--markdown", page, figures, "--plots", tmp_path / "plots", result)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2.00 (1.47–3.60) ✗ ≥ 18" in " ".join(done.stdout.split()), "a missed target is no failure"
    text = page.read_text()
    tables = figures.read_text()
    for written in (text, tables):
        assert written.startswith(f"before\n{BEGIN}\n")
        assert written.endswith(f"\n{END}\nafter\n")
        assert "old" not in written
        assert "A CPU, 2 CPUs" in written
    for word in ("| iot |", "✗ ≥ 18", "![throughput](plots/throughput.svg)"):
        assert word in text
    assert "MB/s**" in tables
    assert "MB/s**" not in text
    assert "✗" not in tables
    first = (tmp_path / "plots" / "throughput.svg").read_text()
    for word in ("MB/s of the line", "payload profile", "msgspec typed", "A CPU"):
        assert word in first
    report("--markdown", page, figures, "--plots", tmp_path / "plots", result)
    assert (page.read_text(), figures.read_text()) == (text, tables)
    assert (tmp_path / "plots" / "throughput.svg").read_text() == first


@pytest.mark.parametrize("content", ["", "{}", '{"machine_info":{},"datetime":"","benchmarks":[{}]}', "[1]"])
def test_a_file_that_is_no_result(content: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(content)
    done = report(path)
    assert done.returncode == 1
    assert done.stderr.startswith("report: not a result of this bench")
