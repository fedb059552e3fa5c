"""The ways of a system that is not Linux, in tests on Linux."""

from __future__ import annotations

import os
from typing import Literal

import pytest
from paths import PROGRAMS

WITHOUT_LINUX = PROGRAMS / "without_linux"
"""On the PYTHONPATH of a process, it takes away what only Linux has."""

Way = Literal["linux", "portable"]


@pytest.fixture(params=["linux", "portable"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Which ways this process takes, and those that it starts; these cannot take another one."""
    way: Way = request.param
    if way == "portable":
        monkeypatch.setenv("FASTKCL_PORTABLE", "1")
        monkeypatch.setenv(
            "PYTHONPATH", os.pathsep.join(filter(None, [str(WITHOUT_LINUX), os.environ.get("PYTHONPATH")]))
        )
    return way
