"""How tests of the system are shared out to workers: one at a time, as each takes long; those of one life together."""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

LIFE = re.compile(r"(.*/test_daemon_life\.py)::.*\[(KCL_\w+)")


class ByLife(LoadScopeScheduling):
    """Each life of a stream is lived once: the tests that look at it run in one worker."""

    def _split_scope(self, nodeid: str) -> str:
        lived = LIFE.match(nodeid)
        return " ".join(lived.groups()) if lived else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByLife:
    return ByLife(config, log)
