"""What an installation costs: the bytes of the wheel, and the time of an import, beside amazon_kclpy's.

`bench/run.py` builds the wheel, and imports are of it, in an environment that has nothing else. Where only results
count the development environment stands in for it.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from suites import take_turns

ROOT = Path(__file__).parent.parent
PEERS = {"fastkcl": "fastkcl", "fastkcl.kclpy": "fastkcl.kclpy.kcl", "amazon_kclpy": "amazon_kclpy.kcl"}
"""The module that a program imports first, by peer."""
HEAVY = {"pyarrow", "pyspark", "click", "rich", "numpy", "botocore"}
ROUNDS = 40


@pytest.fixture
def wheel(benchmark) -> Path | None:
    """The wheel for this machine; None where only results count.

    Raises:
        pytest.fail.Exception: dist/ has no wheel for this machine, or more than one.
    """
    if not benchmark.enabled:
        return None
    found = list((ROOT / "dist").glob(f"*manylinux*{platform.machine()}.whl"))
    if len(found) != 1:
        names = [each.name for each in found]
        pytest.fail(f"dist/ has the wheels {names} for this Linux, and not one: make dist-clean wheel")
    return found[0]


@pytest.fixture
def own_python(wheel: Path | None, tmp_path: Path) -> Path:
    """An interpreter that has fastkcl."""
    if wheel is None:
        return Path(sys.executable)
    venv.create(tmp_path / "installed", with_pip=True)
    python = tmp_path / "installed" / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel]
    subprocess.run(command, check=True)
    return python


def test_import(benchmark, own_python: Path, original_python: Path, wheel: Path | None) -> None:
    """In a new process each time; the start of the interpreter is not in it."""
    sizes = {} if wheel is None else {"wheel_bytes": float(wheel.stat().st_size)}

    def begin(peer: str) -> dict[str, float]:
        program = (
            "import sys, time; begun = time.perf_counter(); "
            f"import {PEERS[peer]}; print(time.perf_counter() - begun, *sys.modules)"
        )
        python = original_python if peer == "amazon_kclpy" else own_python
        answer = subprocess.run([python, "-c", program], check=True, capture_output=True, text=True, timeout=60)
        seconds, *modules = answer.stdout.split()
        assert PEERS[peer] in modules
        if peer == "amazon_kclpy":
            return {"seconds": float(seconds)}
        assert not HEAVY & set(modules), HEAVY & set(modules)
        return {"seconds": float(seconds)} | (sizes if peer == "fastkcl" else {})

    ways = {peer: lambda peer=peer: begin(peer) for peer in PEERS}
    take_turns(benchmark, "install", "import", ways, ROUNDS)
