"""Bench session: machine and versions in the result file and the header, so that no figure travels without them.

It also has the parts that several benches need: where a child runs, and the environment of the original.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

from fastkcl import _core
from fastkcl.bench import original, peers
from fastkcl.bench.pipes import CPUS, PLACEMENTS
from original_async_kinesis import async_kinesis_python as async_kinesis_python  # a fixture, as the next one
from original_kclpy import original_python as original_python  # a fixture: amazon_kclpy in an environment of its own

PACKAGES = ("fastkcl", "pyarrow", *peers.LIBRARIES, "pyspark", "botocore")


LOAD = os.getloadavg()
"""Of others, before anything is measured."""


def versions() -> dict[str, str]:
    """Versions of what is measured; "absent" for what is not installed."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def pytest_report_header(config: pytest.Config) -> str:
    """One line with the backend and the versions."""
    installed = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"bench: codec backend {_core.isa()}, {len(CPUS)} CPUs; {installed}"


@pytest.fixture(scope="session")
def original_packages(original_python: Path) -> None:
    """amazon_kclpy itself for this process and its children, from the environment that has it, after all else."""
    (packages,) = (original_python.parent.parent / "lib").glob("python3*/site-packages")
    os.environ[original.PACKAGES_VARIABLE] = str(packages)


@pytest.fixture(params=PLACEMENTS, ids=lambda name: name.replace(" ", "_"))
def placement(request: pytest.FixtureRequest) -> Iterator[str]:
    """This process on its core for the time of the test."""
    os.sched_setaffinity(0, {PLACEMENTS[request.param][0]})
    yield request.param
    os.sched_setaffinity(0, CPUS)


QUICK = {"placement": ("two cores",), "writes": ("1 MiB writes",), "target": ("noop",), "pace": (1.0, 5.0)}
"""Parameters that change no result, and whose values are left out where only results count."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only makes a difference to times."""
    if not config.getoption("benchmark_disable"):
        return
    quick, others = [], []
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        same = any(parameters.get(name) in values for name, values in QUICK.items())
        (others if same else quick).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = quick


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """The same in the result file."""
    machine_info["isa"] = _core.isa()
    machine_info["cpus"] = len(CPUS)
    machine_info["load"] = LOAD
    machine_info["versions"] = versions()
