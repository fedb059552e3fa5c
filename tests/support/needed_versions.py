"""A test that needs a newer PySpark than docs/versions.md promises says so: ``@pytest.mark.needs_pyspark("4.2")``.

A file of such tests has the line ``pytestmark = pytest.mark.needs_pyspark("4.2")``, and older ones do not import it.
`make test-oldest` leaves them out, and the summary counts them; everything else has to pass there. So it is with a test
that needs a package of which there is no wheel for newer Pythons: ``@pytest.mark.before_python("3.15")``, and in
pyproject.toml the same bound. A pytest plugin, listed in conftest.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

_left_out = pytest.StashKey[dict[str, int]]()
_OF_A_FILE = re.compile(r'^pytestmark = pytest\.mark\.needs_pyspark\("([\d.]+)"\)$', re.MULTILINE)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_pyspark(version): the oldest PySpark that has what the test is of")
    config.addinivalue_line("markers", "before_python(version): a Python without a wheel of what the test needs")
    config.stash[_left_out] = {}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Whether a file is left out; one that is may import what is not there."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    found = _OF_A_FILE.search(collection_path.read_text())
    return True if found and _numbers(found[1]) > _numbers(version("pyspark")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect those whose version is not there."""
    reasons = {item: reason for item in items if (reason := _reason(item))}
    if reasons:
        config.hook.pytest_deselected(items=list(reasons))
        items[:] = [item for item in items if item not in reasons]
    for reason in reasons.values():
        config.stash[_left_out][reason] = config.stash[_left_out].get(reason, 0) + 1


def _reason(item: pytest.Item) -> str:
    """Why a test is left out; empty if it is not."""
    newest = max((mark.args[0] for mark in item.iter_markers("needs_pyspark")), default="")
    if newest and _numbers(newest) > _numbers(there := version("pyspark")):
        return f"they need PySpark {newest}, and {there} is here"
    first = min((mark.args[0] for mark in item.iter_markers("before_python")), default="")
    if first and sys.version_info >= _numbers(first):
        return f"Python {first} has no wheel of a package that they need"
    return ""


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
    for reason, count in sorted(config.stash[_left_out].items()):
        terminalreporter.write_line(f"{count} tests left out: {reason}")
