"""`fastkcl sink inspect`: sound tables, and everything that can be wrong with one."""

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
from fastkcl.cli.main import cli
from fastkcl.spark.sinks import ParquetSink, Shard
from fastkcl.spark.sinks.rows import ShardRows
from fastkcl.tables import inspection as inspection_module
from sink_helpers import FakeSession, FakeWriter, batch, edit_commit, rows
from waiting import wait_until

SHARD = Shard("clicks", "shardId-000000000000")
OTHER = Shard("orders/eu", "shardId-000000000000")
SESSION: Any = FakeSession()
SOUND: dict[str, Any] = {
    "ok": True,
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


def write(table: Path, *runs: tuple[int, int], shard: Shard = SHARD, **options: Any) -> Path:
    sink = ParquetSink(table, **options)
    sink.open(shard)
    for first, last in runs:
        sink.write(rows(first, last), SESSION)
    return table


def data(table: Path, name: str, shard: Shard = SHARD) -> Path:
    return table / f"stream={shard.stream}" / f"shard={shard.shard_id}" / name


def commit_file(table: Path, after: str) -> Path:
    return table / "_commits" / SHARD.stream / SHARD.shard_id / f"after-{after}"


def inspect(table: Path) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table), "--json"])
    return done.exit_code, json.loads(done.stdout)


def inspect_one(table: Path) -> tuple[int, dict[str, Any]]:
    """The exit status, and what differs from a sound shard."""
    code, report = inspect(table)
    (shard,) = report["shards"]
    assert shard["ok"] is report["ok"] is (code == 0)
    return code, {name: value for name, value in shard.items() if SOUND.get(name, ...) != value and name != "ok"}


def inspect_text(table: Path) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["sink", "inspect", str(table)])
    assert done.stderr == ""
    return done.exit_code, done.stdout


def facts(commits: int, records: int, first: int, last: int) -> dict[str, Any]:
    """What is told of a shard, as `inspect_one` has it."""
    return {
        "stream": SHARD.stream,
        "shard": SHARD.shard_id,
        "commits": commits,
        "all_commits": True,
        "records": records,
        "rows": records,
        "first": place(first),
        "last": place(last),
        "continues_from": place(last),
    }


def test_a_sound_table(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 9), (10, 12))
    write(table, (5, 6), shard=OTHER)
    code, report = inspect(table)
    assert code == 0
    shard, other = report.pop("shards")
    assert report == {"path": str(table), "sink": "ParquetSink", "ok": True, "unknown_files": [], "damage": []}
    assert shard == {**SOUND, **facts(2, 12, 1, 12)}
    assert other == {**SOUND, **facts(1, 2, 5, 6), "stream": OTHER.stream}


def test_a_sound_table_for_people(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 9), (10, 1234))
    write(table, shard=Shard("a\x1b[31m\n", "s"))
    assert inspect_text(table) == (
        0,
        f"""\
{table}: a table of ParquetSink, 2 shards

a\\x1b[31m\\n  s
  commits         0
  records         0 committed, 0 rows in the table
  first           unknown
  last            unknown
  continues after the shard's start
  gaps            none
  missing files   none
  doubles         none

clicks  shardId-000000000000
  commits         2
  records         1,234 committed, 1,234 rows in the table
  first           1/0
  last            1234/0
  continues after 1234/0
  gaps            none
  missing files   none
  doubles         none

All is well.
""",
    )


def test_positions_compare_as_integers_then_sub_numbers(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.open(SHARD)
    sink.write(ShardRows([batch([(9, 0), (10**128, 2), (10**128, 9)])], legacy=False), SESSION)
    sink.write(ShardRows([batch([(10**128, 10), (10**128, 11)])], legacy=False), SESSION)
    code, found = inspect_one(tmp_path)
    assert code == 0
    assert (found["first"], found["last"]) == (place(9), place(10**128, 11))


def legacy_batch(*numbers: int) -> Any:
    """As a KCL 1.x daemon sends them: without sub-sequence numbers."""
    from fastkcl import _core

    records = [{"data": "", "partitionKey": "k", "sequenceNumber": str(number)} for number in numbers]
    message = _core.decode_line(json.dumps({"action": "processRecords", "records": records}).encode())
    assert isinstance(message, _core.ProcessRecords)
    return message.batch


def test_legacy_records_of_an_aggregate_are_no_doubles_but_in_two_commits(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    sink.open(SHARD)
    sink.write(ShardRows([legacy_batch(7, 8, 8, 8)], legacy=True), SESSION)
    sink.write(ShardRows([legacy_batch(9, 9)], legacy=True), SESSION)
    code, found = inspect_one(tmp_path)
    assert (code, found["rows"], found["last"]) == (0, 6, place(9, None))
    table = pq.read_table(data(tmp_path, "start-00001.parquet"), partitioning=None)
    assert table["sequenceNumber"].to_pylist() == ["8", "8"]
    pq.write_table(table, data(tmp_path, "again.parquet"))
    code, found = inspect_one(tmp_path)
    assert (code, found["doubles"], found["doubles_examples"]) == (1, 2, ["8"])


def test_a_commit_that_a_death_has_left_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write(tmp_path, (1, 4))
    sink = ParquetSink(table)
    sink.open(SHARD)
    monkeypatch.setattr(ParquetSink, "_publish", lambda self, commit: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sink.write(rows(5, 8), SESSION)
    monkeypatch.undo()
    before = sorted(table.rglob("*"))
    code, found = inspect_one(table)
    waiting = {"unpublished": [{"after": place(4), "upto": place(8)}]}
    assert (code, found) == (0, {**facts(2, 8, 1, 4), "rows": 4, "continues_from": place(8), **waiting})
    assert "commits         2, 1 not published yet\n" in inspect_text(table)[1]
    assert sorted(table.rglob("*")) == before
    (staging,) = (table / "_staging" / SHARD.stream / SHARD.shard_id).iterdir()
    (staging / "part-00000-x.snappy.parquet").rename(data(table, "4.0-00000.parquet"))  # a death between two renames
    code, found = inspect_one(table)
    assert (code, found["unpublished"], found["rows"]) == (0, waiting["unpublished"], 6)
    write(table)
    assert inspect_one(table) == (0, facts(2, 8, 1, 8))


def test_an_unpublished_commit_that_is_not_the_last_stays_so(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4), (5, 8))
    staging = json.loads(commit_file(table, "start").read_text())
    (table / staging["staging"]).mkdir()
    data(table, "start-00000.parquet").rename(table / staging["staging"] / staging["files"][0])
    code, found = inspect_one(table)
    assert (code, found["unpublished"]) == (1, [{"after": None, "upto": place(4)}])
    assert found["damage"] == [
        "the commit from the start up to 4/0 is not published, nor the last: no writer will do it"
    ]


def test_a_transformation_that_removes_the_keys(tmp_path: Path) -> None:
    def without(*names: str) -> Callable[[Any], Any]:
        def transform(df: Any) -> Any:
            df.write = FakeWriter(df.table.drop_columns(list(names)), 1)
            return df

        return transform

    table = write(tmp_path, (1, 4), transform=without("sequenceNumber", "subSequenceNumber"))
    write(table, (5, 6), transform=without("subSequenceNumber"))
    code, found = inspect_one(table)
    why = [{"why": f"no column {name}", "files": 1} for name in ("sequenceNumber", "subSequenceNumber")]
    assert code == 0
    assert (found["doubles"], found["doubles_not_looked_for"]) == (None, why)
    assert (found["first"], found["last"], found["continues_from"], found["rows"]) == (None, None, place(6), 6)
    assert "doubles         not looked for in 1 file: no column sequenceNumber\n" in inspect_text(table)[1]
    write(table, (7, 8))
    code, found = inspect_one(table)
    assert (code, found.get("doubles", 0), found["doubles_not_looked_for"]) == (0, 0, why)
    assert (found["first"], found["last"]) == (place(7), place(8))


def test_a_transformation_that_makes_other_keys(tmp_path: Path) -> None:
    def transform(df: Any) -> Any:
        numbers = [None, "x", "y", "y"]
        df.write = FakeWriter(df.table.set_column(2, "sequenceNumber", pa.array(numbers)), 1)
        return df

    table = write(tmp_path, (1, 4), transform=transform)
    code, found = inspect_one(table)
    assert (code, found["doubles"], found["doubles_examples"], found["first"]) == (1, 1, ["y/0"], None)
    assert found["doubles_not_looked_for"] == [{"why": "rows without a sequenceNumber", "files": 1}]


def remove_a_commit(table: Path) -> None:
    commit_file(table, "4.0").unlink()


def remove_the_first_commit(table: Path) -> None:
    commit_file(table, "start").unlink()


def remove_the_last_commit(table: Path) -> None:
    commit_file(table, "8.0").unlink()


def remove_a_file(table: Path) -> None:
    data(table, "4.0-00001.parquet").unlink()


def copy_a_file(table: Path) -> None:
    data(table, "copy.parquet").write_bytes(data(table, "4.0-00001.parquet").read_bytes())


def break_a_file(table: Path) -> None:
    data(table, "4.0-00001.parquet").write_bytes(b"PAR1 and nothing else")


def break_a_commit(table: Path) -> None:
    commit_file(table, "4.0").write_text("{")


def turn_a_commit_back(table: Path) -> None:
    edit_commit(commit_file(table, "8.0"), upto=["8", 0])


def continue_twice(table: Path) -> None:
    edit_commit(commit_file(table, "8.0"), after=["4", 0])


def repeat_rows(table: Path) -> None:
    """In the middle of one file, and over two commits."""
    one, other = data(table, "start-00001.parquet"), data(table, "8.0-00000.parquet")
    tables = [pq.read_table(path, partitioning=None) for path in (one, one, other, data(table, "4.0-00000.parquet"))]
    pq.write_table(pa.concat_tables(tables[:2]), one)
    pq.write_table(pa.concat_tables(tables[2:]), other)


FILES_OF_5_TO_8 = [f"stream=clicks/shard={SHARD.shard_id}/4.0-{index:05d}.parquet" for index in (0, 1)]

WRONG: list[tuple[Callable[[Path], None], dict[str, Any], str]] = [
    (
        remove_a_commit,
        {"gaps": [{"after": place(8), "upto": place(12)}], "unknown_files": FILES_OF_5_TO_8},
        "gaps            nothing leads to the commit after 8/0 up to 12/0\n",
    ),
    (
        remove_the_first_commit,
        {
            "gaps": [{"after": place(4), "upto": place(8)}],
            "unknown_files": [name.replace("4.0-", "start-") for name in FILES_OF_5_TO_8],
        },
        "nothing leads to the commit after 4/0 up to 8/0\n",
    ),
    (
        remove_the_last_commit,
        {"continues_from": place(8), "unknown_files": [name.replace("4.0-", "8.0-") for name in FILES_OF_5_TO_8]},
        f"of no commit    stream=clicks/shard={SHARD.shard_id}/8.0-00000.parquet\n",
    ),
    (remove_a_file, {"missing_files": FILES_OF_5_TO_8[1:], "rows": 10}, f"missing files   {FILES_OF_5_TO_8[1]}\n"),
    (
        copy_a_file,
        {
            "rows": 14,
            "unknown_files": [f"stream=clicks/shard={SHARD.shard_id}/copy.parquet"],
            "doubles": 2,
            "doubles_examples": ["7/0", "8/0"],
        },
        "doubles         2 rows too many, e.g. of 7/0, 8/0\n",
    ),
    (
        repeat_rows,
        {"rows": 16, "doubles": 4, "doubles_examples": ["3/0", "4/0", "5/0"]},
        "doubles         4 rows too many, e.g. of 3/0, 4/0, 5/0\n",
    ),
    (
        turn_a_commit_back,
        {"damage": ["the commit after 8/0 up to 8/0 ends before it begins"]},
        "damage          the commit",
    ),
    (
        continue_twice,
        {
            "damage": ["the commit after 4/0 up to 12/0 is not the only one that begins there"],
            "unknown_files": [name.replace("4.0-", "8.0-") for name in FILES_OF_5_TO_8],
        },
        "damage          the commit",
    ),
]


@pytest.mark.parametrize(("damage", "expected", "text"), WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_told(
    tmp_path: Path, damage: Callable[[Path], None], expected: dict[str, Any], text: str
) -> None:
    table = write(tmp_path, (1, 4), (5, 8), (9, 12))
    write(table, (1, 2), shard=OTHER)
    damage(table)
    code, report = inspect(table)
    assert (code, report["ok"], report["shards"][1]["ok"]) == (1, False, True)
    shard = report["shards"][0]
    assert shard["ok"] is False
    assert {name: shard[name] for name in expected} == expected
    for name in set(SOUND) - {"ok"} - set(expected):
        assert shard[name] == SOUND[name], name
    code, shown = inspect_text(table)
    assert code == 1
    assert text in shown
    assert shown.endswith("\nThe table is not sound: see above (1 of 2 shards).\n")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (break_a_file, f"{FILES_OF_5_TO_8[1]}: cannot be read: "),
        (break_a_commit, "after-4.0: a damaged commit file"),
    ],
)
def test_damage_of_one_shard_does_not_hide_another(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    table = write(tmp_path, (1, 4), (5, 8))
    write(table, (1, 2), shard=OTHER)
    damage(table)
    code, report = inspect(table)
    assert code == 1
    (told,) = report["shards"][0]["damage"]
    assert message in told
    assert report["shards"][1] == {**SOUND, **facts(1, 2, 1, 2), "stream": OTHER.stream}
    assert message in inspect_text(table)[1]


def test_files_outside_of_shards(tmp_path: Path) -> None:
    table = write(tmp_path, (1, 4))
    names = ["stream=clicks/shard=other/x.parquet", "x.parquet"]
    for name in (*names, ".crc", "_SUCCESS", "_other/x.parquet"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).touch()
    code, report = inspect(table)
    assert (code, report["ok"], report["shards"][0]["ok"], report["unknown_files"]) == (1, False, True, names)
    assert "".join(f"  {name}\n" for name in names) in inspect_text(table)[1]


def test_long_lists_are_cut_for_people_only(tmp_path: Path) -> None:
    table = write(tmp_path, *((number, number) for number in range(1, 16)))
    for file in (data(table, "x").parent).iterdir():
        file.unlink()
    code, found = inspect_one(table)
    assert (code, len(found["missing_files"])) == (1, 30)
    shown = inspect_text(table)[1]
    assert shown.count(".parquet\n") == 10
    assert "                  ... and 20 more\n" in shown


def test_what_overlaps_is_looked_through_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else: of a sound table one commit at a time is in memory."""
    together: list[int] = []
    doubles = inspection_module._doubles
    monkeypatch.setattr(inspection_module, "_doubles", lambda units: (together.append(len(units)), doubles(units))[1])
    table = write(tmp_path, (1, 4), (5, 8), (9, 12), (13, 16))
    assert inspect(table)[0] == 0
    assert together == [1, 1, 1, 1]
    copy_a_file(table)
    together.clear()
    assert inspect(table)[0] == 1
    assert together == [1, 1, 1, 1, 1, 2]


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


def test_what_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, message in (
        (tmp_path, "no table of a sink"),
        (tmp_path, "a TableSink keeps no position and may store a record twice: look for doubles by stream, shard,"),
        (tmp_path / "x", "does not exist"),
        (tmp_path / "file", "is a file"),
    ):
        done = CliRunner().invoke(cli, ["sink", "inspect", str(path)])
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr
        assert "Traceback" not in done.stderr


STRAYS: dict[str, Callable[[Path], object]] = {
    "clicks/shardId-000000000000/.nfs0001": Path.touch,
    ".DS_Store": Path.touch,
    "file": Path.touch,
    "clicks/.DS_Store": Path.touch,
    "link": lambda path: path.symlink_to("nowhere"),
    "circle": lambda path: path.symlink_to(path),
    "clicks/circle": lambda path: path.symlink_to(path),
    "clicks/@zz": lambda path: path.mkdir(),
    "clicks/%ff": lambda path: path.mkdir(),
    "@clicks/shardId-000000000000": lambda path: path.mkdir(parents=True),
    "clicks/shardId-000000000000/after-4.0.bak": Path.touch,
}


@pytest.mark.parametrize("name", STRAYS)
def test_what_does_not_belong_there_hides_no_shard(tmp_path: Path, name: str) -> None:
    table = write(tmp_path, (1, 4))
    write(table, (1, 2), shard=OTHER)
    STRAYS[name](table / "_commits" / name)
    code, report = inspect(table)
    told = [*report["damage"], *(fault for shard in report["shards"] for fault in shard["damage"])]
    assert report["shards"][-1] == {**SOUND, **facts(1, 2, 1, 2), "stream": OTHER.stream}
    if name.endswith("/.nfs0001"):
        assert (code, told) == (0, [])
    else:
        assert code == 1
        (fault,) = told
        assert str(table / "_commits" / name) in fault


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_needs_pyarrow_only(tmp_path: Path, missing: str) -> None:
    table = write(tmp_path, (1, 4))
    code = (
        f"import sys\nsys.modules[{missing!r}] = None\nsys.argv = ['fastkcl', 'sink', 'inspect', {str(table)!r}]\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    if missing == "pyspark":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        error = "Error: it cannot be read without pyarrow: pip install 'fastkcl[arrow]'\n"
        assert (done.returncode, done.stderr) == (2, error)
