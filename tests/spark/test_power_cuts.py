"""Power cuts under a strict model of POSIX (tests/support/power_cuts.py): 0 lost, 0 doubled, 0 refused.

FASTKCL_POWER_CUTS says how many states of each sink are looked at; `make test-long` looks at thousands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fastkcl.spark.sinks import delta as delta_module
from power_cuts import run_plots
from sink_helpers import DELTA, PARQUET

STATES = int(os.environ.get("FASTKCL_POWER_CUTS", "0"))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "states"), [("PARQUET", 120), ("DELTA", 50)])
def test_what_a_power_cut_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, states: int) -> None:
    monkeypatch.setattr(delta_module, "_CHECKPOINT_INTERVAL", 2)
    wrong = run_plots({"PARQUET": PARQUET, "DELTA": DELTA}[name], tmp_path, STATES or states)
    assert wrong == [], (len(wrong), wrong[:3])
