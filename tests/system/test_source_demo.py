"""``fastkcl spark demo``: the whole of it, in small."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest


@pytest.mark.usefixtures("mortal_jvms")
def test_the_whole_way(tmp_path: Path) -> None:
    kept, temporary = tmp_path / "kept", tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fastkcl", "spark", "demo", "--records", "3000", "--json", "--keep", str(kept)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["ok"], report["rows"], report["lost"], report["doubled"]) == (True, 3000, 0, 0)
    assert report["restarts"] >= 1
    assert report["batches"] >= 3
    assert len(report["shards"]) == 4, "a split has two children"
    happened = [what for _, what in report["events"]]
    assert happened[0] == "shardId-000000000000 was split"
    assert any(
        re.fullmatch(r"the driver and its JVM were killed; batches in the table: [1-9]\d*", what) for what in happened
    )
    files = list((kept / "table").glob("*.parquet"))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) >= 3000
    assert {path.name for path in kept.iterdir()} == {"table", "checkpoint"}
    assert [path.name for path in temporary.iterdir() if path.name.startswith("fastkcl")] == []
