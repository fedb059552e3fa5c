"""Bench session: machine and versions in the result file and the header, so that no figure travels without them.

Also what several benches need: where a child runs, and the environment of the original.
"""

import importlib.metadata
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "tests"))

from fastkcl import _core
from original_kclpy import original_python as original_python  # a fixture: amazon_kclpy in an environment of its own
from pipe_child import CPUS, PLACEMENTS

PACKAGES = ("fastkcl", "pyarrow", "msgspec", "orjson", "pysimdjson", "pybase64", "amazon_kclpy", "pyspark")


def versions() -> dict[str, str]:
    """Versions of what is measured; "absent" for what is not installed."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def pytest_report_header(config: pytest.Config) -> str:
    """One line with the backend and the versions."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"bench: codec backend {_core.isa()}, {len(os.sched_getaffinity(0))} CPUs; {installed}"


@pytest.fixture(params=PLACEMENTS, ids=lambda name: name.replace(" ", "_"))
def placement(request: pytest.FixtureRequest) -> Iterator[str]:
    """This process on its core for the time of the test."""
    os.sched_setaffinity(0, {PLACEMENTS[request.param][0]})
    yield request.param
    os.sched_setaffinity(0, CPUS)


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """The same in the result file."""
    machine_info["isa"] = _core.isa()
    machine_info["cpus"] = len(os.sched_getaffinity(0))
    machine_info["versions"] = versions()
