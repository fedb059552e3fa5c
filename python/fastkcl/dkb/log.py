"""Log lines of a stage, as DKB writes them on standard error, and as its supervisor reads them.

An entry, and its second line:

    2016-10-19 13:00:00 (INFO) (ProcessorStage) first line
    (==) second line of the same entry
"""

from __future__ import annotations

import re
import time
from typing import Final

from fastkcl.stdio import reports

__all__ = ["DEFAULT_LEVEL", "LineLevels", "log"]

DEFAULT_LEVEL: Final = "TRACE"
_CONTINUED: Final = "(==) "
_LEVEL: Final = re.compile(
    rb"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )?\((TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\)(?: |$)"
)


def log(level: str, origin: str, text: str) -> None:
    """Write an entry to fd 2, whatever has become of `sys.stderr`."""
    first, *more = text.splitlines() or [""]
    head = f"{time.strftime('%Y-%m-%d %H:%M:%S')} ({level}) ({origin}) {first}\n"
    reports.write("".join([head, *(f"{_CONTINUED}{line}\n" for line in more)]))


class LineLevels:
    """Finds the level of each line of one worker's standard error; a continuation has that of its entry."""

    def __init__(self) -> None:
        self._last = DEFAULT_LEVEL

    def level(self, line: bytes) -> str:
        """The level that the line names at its start, `DEFAULT_LEVEL` if none."""
        if not line.startswith(_CONTINUED.encode()):
            found = _LEVEL.match(line)
            self._last = found[1].decode() if found else DEFAULT_LEVEL
            self._last = {"WARNING": "WARN", "FATAL": "CRITICAL"}.get(self._last, self._last)
        return self._last
