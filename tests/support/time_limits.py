"""A time limit for every test. A test that hangs is named, with all threads' stacks, its processes and their output.

A pytest plugin, listed in conftest. It takes the place of pytest-timeout's own reaction, which writes to a terminal
that workers of pytest-xdist do not have; limits are set as ever, in pyproject.toml or by ``@pytest.mark.timeout``. A
test that cannot even be interrupted ends its process a while later, after the interpreter has written the stacks.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

LAST_GRACE = 30.0
"""Seconds after the limit until a process is ended whose main thread does not come back to Python."""
TAIL = 4_000
"""Characters shown of what a process has written."""

_started: weakref.WeakSet[subprocess.Popen[Any]] = weakref.WeakSet()
_popen_init = subprocess.Popen.__init__
_real_stderr = pytest.StashKey[int]()


def _note(process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
    _popen_init(process, *arguments, **options)
    _started.add(process)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "timeout(seconds): the test's own time limit")
    config.stash[_real_stderr] = os.dup(2)  # here nothing is captured, as it is while conftest.py is read
    subprocess.Popen.__init__ = _note  # type: ignore[method-assign]


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[_real_stderr])
    subprocess.Popen.__init__ = _popen_init  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    if threading.current_thread() is not threading.main_thread():
        return None

    def over(number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        pytest.fail(f"{item.nodeid} has not ended within {settings.timeout:g} s\n{report(frame)}", pytrace=False)

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    faulthandler.dump_traceback_later(settings.timeout + LAST_GRACE, exit=True, file=item.config.stash[_real_stderr])
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool:
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True


def report(frame: FrameType | None = None) -> str:
    """All threads' stacks, and every process below this one: what it is, what it does, what it has written."""
    return "\n".join([*_stacks(frame), *_processes()])


def _stacks(main: FrameType | None) -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        is_main = ident == threading.main_thread().ident
        lines.append(f"---- thread {names.get(ident, '?')} ({ident})")
        lines += "".join(traceback.format_stack(main if is_main and main is not None else frame)).splitlines()
    return lines


def _processes() -> list[str]:
    lines = []
    by_pid = {process.pid: process for process in _started}
    for child in psutil.Process().children(recursive=True):
        try:
            words = " ".join(child.cmdline())[:500]
            lines.append(f"---- process {child.pid}, child of {child.ppid()}, {child.status()}: {words}")
        except psutil.Error:
            continue
        lines += _written(child.pid, by_pid.pop(child.pid, None))
    for process in by_pid.values():
        lines.append(f"---- process {process.pid}, ended with {process.returncode}: {process.args!r}"[:600])
        lines += _written(process.pid, process)
    return lines


def _written(pid: int, process: subprocess.Popen[Any] | None) -> list[str]:
    """What a process has written into pipes of ours, or into files."""
    lines = []
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(process, name, None)
        text = _from_pipe(process, stream) if stream is not None else _from_file(Path(f"/proc/{pid}/fd/{number}"))
        if text:
            lines += [f"  {name}: {line}" for line in text[-TAIL:].decode("utf-8", "replace").splitlines()]
    return lines


def _from_pipe(process: Any, stream: Any) -> bytes:
    """What communicate() has collected, and what is in the pipe: nobody else will read it any more."""
    try:
        collected = b"".join(getattr(process, "_fileobj2output", {}).get(stream, []))
        while not stream.closed and select.select([stream], [], [], 0)[0]:
            piece = os.read(stream.fileno(), 65536)
            if not piece:
                break
            collected += piece
    except (OSError, ValueError):
        return b""
    return collected


def _from_file(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            return file.read()
    except OSError:
        return b""
