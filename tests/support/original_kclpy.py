"""The original, amazon_kclpy, in an environment of its own: the oracle of the drop-in's tests.

A pytest plugin, listed in conftest. The environment is made once, in .cache of the checkout; where it cannot be made,
what needs it is skipped and says why.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from foreign_packages import CACHE, install, last_words

VERSION = "3.1.3"
FOLDER = CACHE / f"amazon_kclpy-{VERSION}"


@pytest.fixture(scope="session")
def original_python() -> Path:
    """A Python interpreter of this version that has amazon_kclpy 3.1.3; its scripts are beside it."""
    try:
        return install(FOLDER, f"amazon_kclpy=={VERSION}", check="import amazon_kclpy.kcl, samples")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"amazon_kclpy {VERSION} could not be installed: {last_words(error)}")
