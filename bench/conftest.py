"""Bench session: machine and versions in the result file and the header, so that no figure travels without them."""

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fastkcl import _core

PACKAGES = ("fastkcl", "pyarrow", "msgspec", "orjson", "pysimdjson", "pybase64", "amazon_kclpy")


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


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """The same in the result file."""
    machine_info["isa"] = _core.isa()
    machine_info["cpus"] = len(os.sched_getaffinity(0))
    machine_info["versions"] = versions()
