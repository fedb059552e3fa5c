"""Is the core still there: its process by id and start time, as another may get the id when it has gone.

Linux shows the start time in /proc. Elsewhere psutil does (extra ``processv1``); there this is untested.
"""

from __future__ import annotations

import os
import sys

from fastkcl.processv1.errors import CoreGoneError

_STATE, _START_TIME = 0, 19  # of the fields after the name in /proc/PID/stat: proc(5), fields 3 and 22


class CoreWatch:
    """Watches the process `pid`.

    Raises:
        CoreGoneError: there is no such process.
        ModuleNotFoundError: not on Linux, and psutil is not installed.
    """

    __slots__ = ("_pid", "_started")

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._started = start_time(pid)
        if self._started is None:
            raise CoreGoneError(f"corepid={pid}: there is no such process; the core that started this stitch is gone")

    def is_gone(self) -> bool:
        """Whether the process has ended; a new one of the same id is another."""
        return start_time(self._pid) != self._started


def start_time(pid: int) -> float | None:
    """When the process started, on some clock; None if it has ended.

    0 if it is there but its start time is hidden (/proc mounted with hidepid).
    """
    if sys.platform != "linux":
        return _start_time_of_psutil(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            fields = file.read().rpartition(b")")[2].split()
    except ProcessLookupError:
        return None
    except FileNotFoundError:
        return 0 if _exists(pid) else None
    return None if fields[_STATE] in (b"Z", b"X") else float(fields[_START_TIME])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _start_time_of_psutil(pid: int) -> float | None:
    try:
        import psutil
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("watching the core needs psutil here: pip install 'fastkcl[processv1]'") from error
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else float(process.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.AccessDenied:
        return 0
