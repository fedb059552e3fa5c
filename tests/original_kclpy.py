"""The original, amazon_kclpy, in an environment of its own: the oracle of the drop-in's tests.

A pytest plugin, listed in conftest. The environment is made once, in .cache of the checkout; where it cannot be made,
what needs it is skipped and says why.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

VERSION = "3.1.3"
FOLDER = Path(__file__).parent.parent / ".cache" / f"amazon_kclpy-{VERSION}"
_TIMEOUT = 240.0  # seconds; the package's set-up downloads the jars, some 30 MB


@pytest.fixture(scope="session")
def original_python() -> Path:
    """A Python interpreter of this version that has amazon_kclpy 3.1.3; its scripts are beside it."""
    try:
        return install(FOLDER)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"amazon_kclpy {VERSION} could not be installed: {_last_words(error)}")


def install(folder: Path) -> Path:
    """Make the environment if it is not there, or of another Python; one process at a time.

    Raises:
        OSError, subprocess.SubprocessError: it could not be made. What there is of it will not be used.
    """
    python = folder / "bin" / "python"
    # Written last: without it an environment is not whole.
    mark = folder / "complete"
    made_by = f"{VERSION} {sys.base_prefix} {sys.version}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mark.is_file() and mark.read_text() == made_by):
            if folder.exists():
                shutil.rmtree(folder)
            _run(sys.executable, "-m", "venv", folder)
            pip = [python, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
            _run(*pip, "install", f"amazon_kclpy=={VERSION}")
            _run(python, "-c", "import amazon_kclpy.kcl, samples")
            mark.write_text(made_by)
    return python


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT)


def _last_words(error: Exception) -> str:
    said = getattr(error, "stderr", None) or b""  # of a timeout it is bytes, whatever was asked for
    lines = (said if isinstance(said, str) else said.decode("utf-8", "replace")).strip().splitlines()
    return lines[-1] if lines else str(error)
