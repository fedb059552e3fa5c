"""Ends a stitch's process where the program does not: at once, or when its time is over."""

from __future__ import annotations

import os
import sys
import threading

from fastkcl.stdio import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from fastkcl.processv1.connection import Connection


def end_within(seconds: float, connection: Connection) -> None:
    """End the process in `seconds`, with the exit code that `connection` has then, unless it has ended before."""

    def end_late() -> None:
        code = connection.exit_code
        assert code is not None
        reports.line(f"still running {seconds:g} s after the core's _exit; ending the process")
        end_now(code)

    timer = threading.Timer(seconds, end_late)
    timer.daemon = True
    timer.start()


def end_now(code: int) -> NoReturn:
    """End the process from any thread; what is printed so far is written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # user code may have closed it, or put anything there
            continue
    os._exit(code)
