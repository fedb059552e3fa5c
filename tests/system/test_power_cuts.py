"""Power cuts under a strict model of POSIX (tests/support/power_cuts.py): 0 lost, 0 doubled, 0 refused.

FASTKCL_POWER_CUTS says how many states of each kind of table are looked at; `make test-long` looks at thousands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from delta_table_helpers import DELTA_TABLE, SPARK_TABLE
from fastkcl.tables.delta import checkpoint as checkpoint_module
from fastkcl.tables.delta import sink as delta_module
from power_cuts import problems, shows, sites
from sink_helpers import DELTA, PARQUET
from table_helpers import TABLE

pytestmark = pytest.mark.timeout(7200)

STATES = int(os.environ.get("FASTKCL_POWER_CUTS", "0"))
KINDS = {"PARQUET": PARQUET, "DELTA": DELTA, "TABLE": TABLE, "DELTA_TABLE": DELTA_TABLE, "SPARK_TABLE": SPARK_TABLE}
# Places that sync, and what sees that they do: a power cut, or, where another one syncs the same, nothing.
SEEN = {
    "PARQUET": [
        "ParquetAppender._adopt: sync_file(file), content",
        "ParquetAppender._adopt: sync_folder(file.parent), name",
        "ParquetAppender._commit: create(self._commit_file), content",
        "ParquetAppender._commit: create(self._commit_file), name",
        "ParquetAppender._publish: sync_folder(self._data_folder), name",
        "ParquetAppender._stage: sync_file(staging / file), content",
        "ParquetAppender._stage: sync_folder(staging), name",
        "ParquetAppender._stage: sync_folder(staging.parent), name",
        "ParquetAppender.open: make_folder(folder), name",
        "_identify: create(root / _TABLE), content",
        "_identify: create(root / _TABLE), name",
        "_identify: sync_file(root / _TABLE), content",
    ],
    "DELTA": [
        "DeltaAppender._append: make_folder(folder), name",
        "DeltaAppender._files: sync_folder(staging), name",
        "DeltaAppender._files: sync_folder(staging.parent), name",
        "DeltaAppender._make_checkpoint: replace(log / LAST_CHECKPOINT), content",
        "DeltaAppender._make_checkpoint: replace(log / LAST_CHECKPOINT), name",
        "DeltaAppender._make_checkpoint: replace(target), content",
        "DeltaAppender._make_checkpoint: replace(target), name",
        "PosixStore.create: create(path), content",
        "PosixStore.create: create(path), name",
        "PosixStore.settle: make_folder(path.parent), name",
        "PosixStore.settle: sync_file(self._root / each), content",
        "PosixStore.settle: sync_folder(path.parent), name",
        "found_files: sync_file(file), content",
    ],
    "TABLE": [
        "PosixStore.claim: make_folder(target.parent), name",
        "PosixStore.claim: sync_folder(target.parent), name",
        "PosixStore.claim: sync_folder(temporary), name",
        "PosixStore.create: create(path), content",
        "PosixStore.create: create(path), name",
        "PosixStore.create: make_folder(path.parent), name",
        "PosixStore.settle: sync_file(self._root / each), content",
        "PosixStore.settle: sync_file(self._root / each), name",
        "PosixStore.settle: sync_folder(path.parent), name",
    ],
    "DELTA_TABLE": [
        "PosixStore.create: create(path), content",
        "PosixStore.create: create(path), name",
        "PosixStore.create: make_folder(path.parent), name",
        "PosixStore.replace: replace(path), content",
        "PosixStore.replace: replace(path), name",
        "PosixStore.settle: make_folder(path.parent), name",
        "PosixStore.settle: sync_file(self._root / each), content",
        "PosixStore.settle: sync_folder(path.parent), name",
    ],
    "SPARK_TABLE": [  # the files alone: their entries are a DeltaTable's
        "found_files: sync_file(file), content",
        "moved_in: make_folder(target), name",
        "moved_in: sync_folder(target), name",
    ],
}
TWICE = {
    "PARQUET": ["_identify: sync_folder(root), name"],  # `open` has made sure of the folders below right before
    "DELTA": [
        "DeltaAppender._make_checkpoint: make_folder(target.parent), name",  # deltalake makes no folder in the log
        "PosixStore.create: make_folder(aside), name",
        "PosixStore.create: make_folder(path.parent), name",  # of the log, which `settle` keeps as well
    ],
    "TABLE": [
        "PosixStore.create: make_folder(aside), name",  # nobody needs what lies aside after a cut
        "PosixStore.settle: make_folder(path.parent), name",  # `create` keeps folders before it makes a file in them
    ],
    "DELTA_TABLE": [
        "PosixStore.create: make_folder(aside), name",
    ],
}
TWICE["SPARK_TABLE"] = SEEN["DELTA_TABLE"] + TWICE["DELTA_TABLE"]


@pytest.fixture(autouse=True)
def _early_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_module, "_CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpoint_module, "INTERVAL", 2)


@pytest.mark.parametrize(
    ("name", "states"), [("PARQUET", 120), ("DELTA", 50), ("TABLE", 120), ("DELTA_TABLE", 60), ("SPARK_TABLE", 60)]
)
def test_what_a_power_cut_leaves(tmp_path: Path, name: str, states: int) -> None:
    wrong = list(problems(KINDS[name], tmp_path, STATES or states))
    assert wrong == [], (len(wrong), wrong[:3])


@pytest.mark.parametrize("name", KINDS)
def test_each_place_that_syncs_is_known(tmp_path: Path, name: str) -> None:
    assert sites(KINDS[name], tmp_path) == sorted(SEEN[name] + TWICE[name])


@pytest.mark.parametrize(("name", "site"), [(name, site) for name in KINDS for site in SEEN[name]])
def test_a_sync_that_is_left_out_is_seen(tmp_path: Path, name: str, site: str) -> None:
    """The model itself: none of them could be taken away and nothing of it shown."""
    assert shows(KINDS[name], tmp_path, site) is not None
