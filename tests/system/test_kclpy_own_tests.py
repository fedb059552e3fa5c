"""The tests that amazon_kclpy has for itself, against fastkcl.kclpy under its name.

They are run where they lie and as they are. The source package on the package index has five of them, in two files,
without the helper module that they import; the repository has all eleven. Its address is FASTKCL_KCLPY_REPOSITORY's,
which may be a folder, or GitHub's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from foreign_packages import last_words

REPOSITORY = os.environ.get("FASTKCL_KCLPY_REPOSITORY", "https://github.com/awslabs/amazon-kinesis-client-python")

pytestmark = pytest.mark.long


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The newest state of the package's repository."""
    folder = tmp_path / "checkout"
    try:
        subprocess.run(
            ["git", "clone", "--quiet", "--depth=1", "--", REPOSITORY, folder],
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=120,
        )
    except (OSError, subprocess.SubprocessError) as error:
        pytest.fail(f"{REPOSITORY} could not be cloned: {last_words(error)}")
    return folder


def test_of_the_source_package(newest_source: Path, tmp_path: Path) -> None:
    assert passed(newest_source, tmp_path) == 5


def test_of_the_repository(checkout: Path, tmp_path: Path) -> None:
    assert passed(checkout, tmp_path) == 11


def passed(source: Path, folder: Path) -> int:
    """Run the tests of a source tree with `fastkcl run -m pytest`; how many have passed, if none has failed."""
    modules = folder / "modules"
    modules.mkdir()
    # What these tests import: `mock` is the standard library's by its old name, `utils` is not in the source package.
    (modules / "mock.py").write_text("from unittest.mock import *\n")
    (modules / "utils.py").write_text("from io import StringIO as make_io_obj\n")
    configuration = folder / "pytest.ini"
    configuration.write_text("[pytest]\npython_files = test_*.py *_test.py\nmarkers = webtests\n")
    (modules / "served.py").write_text("import amazon_kclpy, fastkcl.kclpy\nassert amazon_kclpy is fastkcl.kclpy\n")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "fastkcl", "run", "-m", "pytest", f"-c{configuration}", f"--rootdir={source}"),
            *("-p", "no:cacheprovider", "-p", "served", "--color=no", str(source / "test")),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(modules), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (summary,) = re.findall(r"=+ (.*) in .*s =+", done.stdout)
    (number,) = re.fullmatch(r"(\d+) passed", summary).groups()  # type: ignore[union-attr]
    return int(number)
