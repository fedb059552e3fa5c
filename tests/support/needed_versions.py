"""A test that needs a newer PySpark than docs/versions.md promises says so: ``@pytest.mark.needs_pyspark("4.2")``.

With an older one (`make test-oldest`) it is left out, and the summary counts it; everything else has to pass there. A
pytest plugin, listed in conftest.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

_left_out = pytest.StashKey[dict[str, int]]()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_pyspark(version): the oldest PySpark that has what the test is of")
    config.stash[_left_out] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect those whose version is not there."""
    needing = {
        item: newest
        for item in items
        if (newest := max((m.args[0] for m in item.iter_markers("needs_pyspark")), default=""))
    }
    if not needing:
        return
    here = _numbers(version("pyspark"))
    gone = {item: needed for item, needed in needing.items() if _numbers(needed) > here}
    if gone:
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]
    for needed in gone.values():
        config.stash[_left_out][needed] = config.stash[_left_out].get(needed, 0) + 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells the process that started it, which collects nothing itself."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = session.config.stash[_left_out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker has collected the same tests."""
    node.config.stash[_left_out] |= getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for needed, count in sorted(config.stash[_left_out].items()):
        terminalreporter.write_line(
            f"{count} tests left out: they need PySpark {needed}, and {version('pyspark')} is here"
        )
