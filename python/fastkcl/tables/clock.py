"""A clock that also counts while the machine sleeps, and that nobody sets: for the ages of files and requests."""

from __future__ import annotations

import sys
import time

from fastkcl.portable import is_linux

__all__ = ["running_seconds"]


def running_seconds() -> float:
    """Seconds, sleep of the machine included, since a moment that is the same for all processes of the host."""
    if is_linux():
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # time.monotonic() stands still there while the machine sleeps
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()
