"""Ends the processes that ``fastkcl daemon`` leaves behind when it is killed: the JVM, its children, and their files.

    python -m fastkcl.daemon.guard GROUP GRACE PATIENCE FOLDER        standard input: a pipe that nobody else reads

The supervisor starts one with each JVM, in a separate session, so that a signal to the supervisor's group does not end
it too. It waits for a byte on its input, which means that the supervisor is done with this JVM, and ends. If the input
ends without one, the supervisor has died. Linux has then sent SIGTERM to the JVM (`parent_death_signal`), which stops
the children; elsewhere the guard sends it, and a supervisor that dies before its guard runs leaves the JVM. The guard
takes the next steps, which are the supervisor's own:

    GRACE seconds for the JVM ──▶ SIGKILL to it ──▶ PATIENCE for its children ──▶ SIGTERM ──▶ PATIENCE ──▶ SIGKILL
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from fastkcl.daemon.processes import end_group, group_members
from fastkcl.portable import is_linux

__all__ = ["Guard"]

_POLL_SECONDS: Final = 0.1


class Guard:
    """The supervisor's side: runs one from `with` on, and releases it at the end.

    Args:
        group: of the JVM and its children; the JVM's process id.
        grace: seconds that the JVM has to stop.
        patience: seconds that children have, to end by themselves and after SIGTERM.
        folder: removed when all have ended.
    """

    def __init__(self, group: int, *, grace: float, patience: float, folder: Path) -> None:
        self._command = [sys.executable, "-P", "-m", __name__, str(group), f"{grace:g}", f"{patience:g}", str(folder)]

    def __enter__(self) -> Guard:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):  # somebody has ended it
            self._process.communicate(b".")


def guard(group: int, grace: float, patience: float, folder: Path) -> None:
    """Wait for the supervisor; if it dies, end its group within some seconds."""
    if os.read(sys.stdin.fileno(), 1):
        return
    if not is_linux() and group in group_members(group):
        with suppress(ProcessLookupError):
            os.kill(group, signal.SIGTERM)
    _log(f"it was killed; the JVM is asked to stop, and has {grace:.0f} s for it")
    deadline = time.monotonic() + grace
    while group in group_members(group):
        if time.monotonic() >= deadline:
            _log("the JVM has not stopped in time: killing it")
            with suppress(ProcessLookupError):
                os.kill(group, signal.SIGKILL)
            break
        time.sleep(_POLL_SECONDS)
    tidy = end_group(group, patience=patience, on_step=_log)
    shutil.rmtree(folder, ignore_errors=True)
    _log("nothing of it is left" + ("" if tidy else ", and a child had to be ended"))


def _log(text: str) -> None:
    with suppress(OSError):  # nobody reads it any more
        sys.stderr.write(f"fastkcl daemon: {text}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    # A terminal that closes, or a service manager that stops everything, does not mean it.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    guard(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
