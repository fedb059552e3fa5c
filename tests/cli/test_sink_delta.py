"""`fastkcl sink inspect` of a Delta table: the commits that its log still has, and the rows of its files."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from fastkcl.cli.main import cli
from fastkcl.spark.sinks import DeltaSink, Shard
from fastkcl.tables import inspection as inspection_module
from fastkcl.tables.delta.actions import lines
from sink_helpers import FakeSession, FakeWriter, rows
from waiting import wait_until

SHARD = Shard("clicks eu", "shardId-000000000000")
SESSION: Any = FakeSession()
SOUND: dict[str, Any] = {
    "ok": True,
    "all_commits": True,
    "gaps": [],
    "unpublished": [],
    "missing_files": [],
    "unknown_files": [],
    "doubles": 0,
    "doubles_examples": [],
    "doubles_not_looked_for": [],
    "damage": [],
}


def place(number: int, sub: int | None = 0) -> dict[str, Any]:
    return {"sequenceNumber": str(number), "subSequenceNumber": sub}


def write(table: Path, *runs: tuple[int, int], shard: Shard = SHARD, legacy: bool = False, **options: Any) -> Path:
    sink = DeltaSink(table, **options)
    sink.open(shard)
    for first, last in runs:
        sink.write(rows(first, last, legacy=legacy), SESSION)
    return table


def facts(commits: int, records: int, first: int, last: int, sub: int | None = 0) -> dict[str, Any]:
    return {
        "stream": SHARD.stream,
        "shard": SHARD.shard_id,
        "commits": commits,
        "records": records,
        "rows": records,
        "first": place(first, sub),
        "last": place(last, sub),
        "continues_from": place(last, sub),
    }


def inspect(table: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table), "--json"])
    assert done.stderr == ""
    return done.exit_code, json.loads(done.stdout)


def inspect_one(table: Path) -> tuple[int, dict[str, Any]]:
    code, report = inspect(table)
    (shard,) = report["shards"]
    return code, shard


def files(table: Path) -> list[Path]:
    """In the order of the commits."""
    return sorted((Path(path) for path in DeltaTable(table).file_uris()), key=lambda path: path.stat().st_mtime_ns)


def append(table: Path, of: Path, **partitions: str | None) -> None:
    """The rows of a file once more, by another tool."""
    names = {"stream": SHARD.stream, "shard": SHARD.shard_id, **partitions}
    copy = pq.read_table(of, partitioning=None)
    for name, value in names.items():
        copy = copy.append_column(name, pa.array([value] * len(copy), pa.string()))
    write_deltalake(table, copy, mode="append")


def test_a_sound_table(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 9), (10, 12))
    write(table, (5, 6), shard=Shard("a", "b"))
    code, report = inspect(table)
    other, shard = report.pop("shards")
    assert (code, report) == (
        0,
        {"path": str(table), "sink": "DeltaSink", "ok": True, "unknown_files": [], "damage": []},
    )
    assert shard == {**SOUND, **facts(2, 12, 1, 12)}
    assert other == {**SOUND, **facts(1, 2, 5, 6), "stream": "a", "shard": "b"}
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table)])
    assert done.exit_code == 0
    assert f"{table}: a table of DeltaSink, 2 shards\n" in done.stdout
    assert "  commits         2\n  records         12 committed, 12 rows in the table\n" in done.stdout


def test_one_commit_at_a_time_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[int] = []
    doubles = inspection_module._doubles
    monkeypatch.setattr(inspection_module, "_doubles", lambda units: (together.append(len(units)), doubles(units))[1])
    assert inspect(write(tmp_path, (1, 4), (5, 8)))[0] == 0
    assert together == [1, 1]


def test_a_compacted_table_is_sound(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4), (5, 8))
    DeltaTable(table).optimize.compact()
    assert len(files(table)) == 1
    write(table, (9, 10))
    assert inspect_one(table) == (0, {**SOUND, **facts(3, 10, 1, 10)})


def test_a_log_that_was_cleaned_up(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4), (5, 8), (9, 12))
    DeltaTable(table).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    code, found = inspect_one(table)
    assert (code, found) == (0, {**SOUND, **facts(1, 4, 1, 12), "all_commits": False, "rows": 12})
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table)])
    assert "  commits         1 in the log that is left\n" in done.stdout


def test_a_clean_up_that_a_power_cut_has_interrupted(tmp_path: Path) -> None:
    """Some of the names that it has removed are there again."""
    table = write(tmp_path, (1, 4), (5, 8), (9, 12))
    DeltaTable(table).create_checkpoint()
    for version in (1, 2):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    code, found = inspect_one(table)
    assert (code, found) == (0, {**SOUND, **facts(1, 4, 1, 12), "all_commits": False, "rows": 12})


def test_a_transformation_that_leaves_no_row(tmp_path: Path) -> None:
    def none(df: Any) -> Any:
        df.write = FakeWriter(df.table.slice(0, 0), 1)
        return df

    code, found = inspect_one(write(tmp_path, (1, 4), transform=none))
    assert (code, found) == (0, {**SOUND, **facts(1, 4, 1, 4), "rows": 0, "first": None, "last": None})


def test_rows_that_another_tool_has_doubled(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4), (5, 8))
    append(table, files(table)[1])
    code, found = inspect_one(table)
    assert (code, found["doubles"], found["doubles_examples"], found["rows"]) == (1, 2, ["3/0", "4/0"], 10)
    assert {name for name, value in SOUND.items() if found[name] != value} == {"ok", "doubles", "doubles_examples"}


def test_legacy_aggregates_may_be_cut_by_whoever_rewrites_files(tmp_path: Path) -> None:
    def aggregate(df: Any) -> Any:
        same = df.table.set_column(2, "sequenceNumber", pa.array(["4"] * len(df.table)))
        df.write = FakeWriter(same.set_column(3, "subSequenceNumber", pa.nulls(len(same), pa.int64())), 2)
        return df

    table = write(tmp_path, (1, 4), legacy=True, transform=aggregate)
    assert inspect_one(table)[1]["doubles"] == 0  # one commit
    DeltaTable(table).optimize.compact()
    code, found = inspect_one(table)
    assert (code, found["rows"], found["doubles"], found["last"]) == (0, 4, 0, place(4, None))
    append(table, files(table)[0])  # perhaps the aggregate's other records: nothing tells
    code, found = inspect_one(table)
    assert (code, found["rows"], found["doubles"]) == (0, 8, 0)


def edit_commits(table: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the metadata of the commits, with the digests."""
    for path in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for action in actions:
            if "fastkcl" in action.get("commitInfo", {}):
                change(action["commitInfo"]["fastkcl"])
        path.write_bytes(lines(actions))


def leave_out(table: Path) -> None:
    edit_commits(table, lambda about: about.update(after="7.0") if about["after"] == "8.0" else None)


def begin_late(table: Path) -> None:
    edit_commits(table, lambda about: about.update(after="0.0") if about["after"] == "start" else None)


def end_early(table: Path) -> None:
    edit_commits(table, lambda about: about.update(upto="11.0") if about["upto"] == "12.0" else None)


def remove_a_file(table: Path) -> None:
    files(table)[-1].unlink()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (leave_out, {"gaps": [{"after": place(7), "upto": place(12)}]}),
        (begin_late, {"gaps": [{"after": place(0), "upto": place(4)}]}),
        (end_early, {"damage": ["the position is 12/0, and the last commit ends elsewhere"]}),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, damage: Callable[[Path], None], expected: dict[str, Any]) -> None:
    table = write(tmp_path, (1, 4), (5, 8), (9, 12))
    damage(table)
    code, found = inspect_one(table)
    assert (code, found) == (1, {**SOUND, **facts(3, 12, 1, 12), "ok": False, **expected})


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 1.5},
        {"rows": "4"},
        {"stream": ["clicks"]},
        {"shard": 7},
        {"upto": 12},
        {"upto": "start"},
        {"after": None},
        {"after": "9" * 5000 + "x"},
    ],
    ids=str,
)
def test_what_a_hostile_commit_says_is_told(tmp_path: Path, change: dict[str, Any]) -> None:
    table = write(tmp_path, (1, 4))
    edit_commits(table, lambda about: about.update(change))
    code, report = inspect(table)
    assert (code, report["ok"]) == (1, False)
    assert any("1.json: its part of a DeltaSink is damaged" in each for each in report["damage"])


def test_a_missing_file(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4))
    gone = files(table)[-1]
    gone.unlink()
    code, found = inspect_one(table)
    name = str(gone.relative_to(table))
    assert (code, found["missing_files"], found["rows"]) == (1, [name], 2)


def test_rows_of_no_sink(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4))
    append(table, files(table)[0], shard="other")
    append(table, files(table)[0], stream=None)
    code, report = inspect(table)
    other, ours = report["shards"]
    assert (code, ours["ok"], other["shard"], len(report["unknown_files"])) == (1, True, "other", 1)
    (damage,) = other["damage"]
    assert damage.startswith("it has no position: no DeltaSink has written its rows; a TableSink keeps no position")


def test_deletion_vectors_are_not_read(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4))
    path = table / "_delta_log" / f"{0:020d}.json"
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    features["writerFeatures"] = ["deletionVectors"]
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_bytes(lines([{"protocol": features} if "protocol" in action else action for action in actions]))
    code, found = inspect_one(table)
    why = "rows of this table may be deleted by vectors, which are not read here"
    assert (code, found["doubles"], found["doubles_not_looked_for"]) == (0, None, [{"why": why, "files": 2}])


def test_a_table_that_is_being_written_to(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 2))
    runs = [(first, first + 2) for first in range(3, 120, 3)]
    seen, looks = set(), 0

    def fill() -> None:
        """Write a third, and wait until it was looked at, however slow that is."""
        for start in range(0, len(runs), 13):
            write(table, *runs[start : start + 13])
            due = looks + 2  # the first of them may have begun before
            wait_until(lambda due=due: looks >= due, "two looks at the table", seen=lambda: looks)

    writer = threading.Thread(target=fill)
    writer.start()
    while writer.is_alive():
        code, report = inspect(table)
        assert code == 0, report
        seen.add(report["shards"][0]["commits"])
        looks += 1
    writer.join()
    assert len(seen) > 2
    assert inspect(table)[1]["shards"][0]["commits"] == 40


def test_a_delta_table_of_somebody_else(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"a": [1]}))
    (tmp_path / "empty" / "_delta_log").mkdir(parents=True)
    for name, message in (
        ("t", "a Delta table without commits of a DeltaTable or a DeltaSink"),
        ("empty", ""),
    ):
        done = CliRunner().invoke(cli, ["sink", "inspect", str(tmp_path / name)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"Error: {tmp_path / name}")
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_damaged_entry_that_a_checkpoint_has(tmp_path: Path) -> None:
    table = write(tmp_path / "broken", (1, 2), (3, 4))
    DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{1:020d}.json").write_text("{")
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table)])
    assert done.exit_code == 1
    fault = "damaged, its JSON is cut off or overwritten: a checkpoint has its commit if it was made before the damage"
    assert f"{1:020d}.json: {fault}" in done.output


def test_without_deltalake(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4))
    code = (
        f"import sys\nsys.modules['deltalake'] = None\nsys.argv = ['fastkcl', 'sink', 'inspect', {str(table)!r}]\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    error = "Error: it cannot be read without deltalake: pip install 'fastkcl[delta]'\n"
    assert (done.returncode, done.stderr) == (2, error)
