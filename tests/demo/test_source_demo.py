"""``fastkcl spark demo`` without Spark: its output, and its reaction when Spark ends its query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastkcl.cli.main import cli
from fastkcl.demo import source
from fastkcl.demo.parts import DemoError
from fastkcl.demo.source import SourceReport, is_impatience
from fastkcl.java import Java
from fastkcl.local_aws import LocalAws
from fastkcl.spark.server import jdk

IMPATIENT = "org.apache.spark.SparkException: Timed out while waiting for the Python worker to connect back after 10 s"


def report(**changes: Any) -> SourceReport:
    given: dict[str, Any] = {
        "sent": 10,
        "rows": 10,
        "distinct": 10,
        "batches": 3,
        "shards": {"shardId-000000000000": 10},
        "restarts": 1,
        "put_seconds": 0.5,
        "query_seconds": 20.0,
        "events": [(3.0, "shardId-000000000000 was split")],
    }
    return SourceReport(**given | changes)


def run(monkeypatch: pytest.MonkeyPatch, outcome: SourceReport | Exception, *arguments: str) -> Any:
    def demo(**options: Any) -> SourceReport:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(source, "run_source_demo", demo)
    monkeypatch.setattr(jdk, "use_java", lambda: Java(Path("/java"), 17, "PATH"))
    return CliRunner().invoke(cli, ["spark", "demo", *arguments])


def test_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, report(table="/tmp/kept"))
    assert done.exit_code == 0, done.output
    for said in (
        "shardId-000000000000 was split",
        "0 records/s",
        "Each of the 10 records is in the table once",
        "/kept",
    ):
        assert said in done.output
    done = run(monkeypatch, report(rows=11, distinct=8))
    assert done.exit_code == 1
    assert "2 records are missing, and 3 rows are doubled" in done.output


def test_its_report_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, report(distinct=9), "--json")
    found = json.loads(done.stdout)
    assert (found["ok"], found["lost"], found["doubled"]) == (False, 1, 1)


def test_what_is_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, DemoError("no batch 1 within 180 s"))
    assert done.exit_code == 1
    assert done.output.splitlines()[-1] == "Error: no batch 1 within 180 s"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (IMPATIENT, True),
        ("org.apache.spark.SparkException: Python worker failed to connect back.", True),
        ("Timed out while waiting for the Python worker to connect back", True),
        ("java.net.ConnectException: Connection refused", False),
        ("Python worker exited unexpectedly (crashed)", False),
    ],
)
def test_sparks_impatience_is_known(line: str, expected: bool) -> None:
    assert is_impatience(f"first\n{line}\nlast") is expected


def test_only_impatience_starts_a_query_again_and_not_for_ever(aws: LocalAws, tmp_path: Path) -> None:
    demo = source._Demo(aws, tmp_path, tmp_path, lambda step: None)
    log = tmp_path / "spark.log"
    for demo._starts in range(1, source.STARTS):
        log.write_text(f"{IMPATIENT}\n" + "later\n" * 100)
        demo.judge()
        assert not log.exists(), "the next judgement is of the next start"
    log.write_text(IMPATIENT)
    demo._starts = source.STARTS
    with pytest.raises(DemoError, match="connect back"):
        demo.judge()
    demo._starts = 1
    log.write_text("OptionError: no such stream")
    with pytest.raises(DemoError, match="no such stream"):
        demo.judge()
