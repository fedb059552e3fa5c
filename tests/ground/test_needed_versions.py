"""tests/support/needed_versions leaves out the tests that need a newer PySpark, and says how many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import SUPPORT

TESTS = """
import pytest

@pytest.mark.needs_pyspark("99.0")
def test_of_the_future(): raise AssertionError

@pytest.mark.needs_pyspark("1.0")
def test_of_the_past(): pass

@pytest.mark.before_python("3.0")
def test_of_what_has_no_wheel(): raise AssertionError

@pytest.mark.before_python("99.0")
def test_of_what_has_one(): pass

def test_of_any(): pass
"""


def test_they_are_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(
        f'import sys\nsys.path.append({str(SUPPORT)!r})\npytest_plugins = ["needed_versions"]\n'
    )
    (tmp_path / "test_others.py").write_text('import not_there\npytestmark = pytest.mark.needs_pyspark("99.0")\n')
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for workers in ("0", "2"):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", workers, "-p", "no:cacheprovider"]
        command += [f"--basetemp={tmp_path / 'base'}", str(tmp_path)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120, env=environment
        )
        assert (done.returncode, "3 passed" in done.stdout) == (0, True), done.stdout
        assert "1 tests left out: they need PySpark 99.0" in done.stdout
        assert "1 tests left out: Python 3.0 has no wheel of a package that they need" in done.stdout
