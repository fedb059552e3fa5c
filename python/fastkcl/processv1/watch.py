"""Is the core still there: its process by id and start time, as another may get the id when it has gone.

Linux shows the start time in /proc. Elsewhere psutil knows it (extra ``processv1``).
"""

from __future__ import annotations

import os

from fastkcl.portable import is_linux
from fastkcl.processv1.errors import CoreGoneError

TYPE_CHECKING = False  # the module typing is slow to import
if TYPE_CHECKING:
    from collections.abc import Callable

_STATE, _START_TIME = 0, 19  # of the fields after the name in /proc/PID/stat: proc(5), fields 3 and 22


class CoreWatch:
    """Watches the process `pid`.

    Raises:
        CoreGoneError: there is no such process.
        ModuleNotFoundError: not on Linux, and psutil is not installed.
    """

    __slots__ = ("_is_there",)

    def __init__(self, pid: int) -> None:
        self._is_there = _by_proc(pid) if is_linux() else _by_psutil(pid)
        if self.is_gone():
            raise CoreGoneError(f"corepid={pid}: there is no such process; the core that started this stitch is gone")

    def is_gone(self) -> bool:
        """Whether the process has ended; a new one of the same id is another."""
        return not self._is_there()


def _by_proc(pid: int) -> Callable[[], bool]:
    started = start_time(pid)
    return lambda: started is not None and start_time(pid) == started


def start_time(pid: int) -> float | None:
    """When the process started, on some clock; None if it has ended.

    0 if it is there but its start time is hidden (/proc mounted with hidepid).
    """
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


def _by_psutil(pid: int) -> Callable[[], bool]:
    try:
        import psutil
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("watching the core needs psutil here: pip install 'fastkcl[processv1]'") from error

    # It keeps the start time; one of two looks could differ by what the system's clock was set by.
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return lambda: False

    def is_there() -> bool:
        try:
            return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True

    return is_there
