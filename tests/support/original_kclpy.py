"""The original, amazon_kclpy, in an environment of its own: the oracle of the drop-in's tests.

A pytest plugin, listed in conftest. The environment is made once, in .cache of the checkout; where it cannot be made,
tests that need it are skipped and say why.

The environment has the newest release whose jars Maven Central has. Later ones cannot be installed without theirs:
they are there as sources, and a test compares their modules with the environment's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from foreign_packages import CACHE, fetch_source, install, last_words

VERSION = "3.1.3"
NEWEST = "3.2.0"
FOLDER = CACHE / f"amazon_kclpy-{VERSION}"


@pytest.fixture(scope="session")
def original_python() -> Path:
    """A Python interpreter of this version that has amazon_kclpy 3.1.3; its scripts are beside it."""
    try:
        return install(FOLDER, f"amazon_kclpy=={VERSION}", check="import amazon_kclpy.kcl, samples")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"amazon_kclpy {VERSION} could not be installed: {last_words(error)}")


@pytest.fixture(scope="session")
def newest_source() -> Path:
    """The unpacked source package of amazon_kclpy 3.2.0."""
    try:
        return fetch_source(CACHE / f"amazon_kclpy-{NEWEST}-source", f"amazon_kclpy=={NEWEST}")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"the source package of amazon_kclpy {NEWEST} could not be had: {last_words(error)}")
