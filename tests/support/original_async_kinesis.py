"""async-kinesis in an environment of its own: its programs' view, and their speed.

A pytest plugin, listed in conftest; made and skipped as amazon_kclpy's.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from foreign_packages import CACHE, install, last_words

VERSION = "3.0.1"


@pytest.fixture(scope="session")
def async_kinesis_python() -> Path:
    """A Python interpreter of this version that has async-kinesis 3.0.1 with its extras, and ujson."""
    try:
        return install(
            CACHE / f"async-kinesis-{VERSION}",
            f"async-kinesis[kpl,msgpack,redis]=={VERSION}",
            "ujson",
            check="import kinesis, aws_kinesis_agg, msgpack, redis, ujson",
        )
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"async-kinesis {VERSION} could not be installed: {last_words(error)}")
