"""The processes of a group, by Linux's /proc or by ps: the daemon's children, also when the daemon is gone.

The daemon is started as the leader of its own process group. Java starts children in the group of their parent,
so the group has all processes that the daemon has started. A server that a child has put into a separate session, to be
shared and to outlive it, is not in the group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fastkcl.portable import is_linux

__all__ = ["end_group", "group_members", "parent_death_signal"]

_SET_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_POLL_SECONDS: Final = 0.1
_PS_SECONDS: Final = 30.0


def group_members(group: int) -> list[int]:
    """Process ids of a group, without those that have ended and wait for their parent to notice."""
    return sorted(_members_by_proc(group) if is_linux() else _members_by_ps(group))


def _members_by_proc(group: int) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it ended meanwhile
            # The command's name, in parentheses, may hold anything: the fields follow the last one.
            state, _parent, its_group = (
                Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
            )
            if int(its_group) == group and state not in "ZX":
                found.append(int(entry.name))
    return found


def _members_by_ps(group: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=", "-o", "pgid=", "-o", "state="],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_PS_SECONDS,
    ).stdout
    lines = [line.split() for line in listed.splitlines()]
    return [int(pid) for pid, its_group, state, *_ in lines if int(its_group) == group and state[0] not in "ZX"]


def end_group(
    group: int, *, patience: float, on_step: Callable[[str], object], is_hurried: Callable[[], bool] = lambda: False
) -> bool:
    """Wait for the rest of a group to end by itself, then end it.

    Children of a daemon that is gone have read the end of their input and are about to finish their writes. After
    `patience` they get SIGTERM, after as long again SIGKILL.

    Args:
        group: the group, whose leader has ended and is waited for.
        patience: seconds.
        on_step: called with a line for each step.
        is_hurried: whether somebody wants it to be over; then SIGKILL is sent at once.

    Returns:
        Whether all ended by themselves.
    """
    if _wait_for(group, patience, is_hurried, lambda members: on_step(f"waiting for {_count(members)} to finish")):
        return True
    for number in (signal.SIGTERM, signal.SIGKILL):
        if is_hurried() and number is signal.SIGTERM:
            continue
        members = group_members(group)
        if not members:
            break
        on_step(f"{number.name} to {_count(members)} that the daemon left: {', '.join(map(str, members))}")
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if _wait_for(group, patience, is_hurried if number is signal.SIGTERM else lambda: False):
            break
    return False


def _wait_for(
    group: int,
    seconds: float,
    is_hurried: Callable[[], bool],
    on_wait: Callable[[list[int]], object] = lambda _: None,
) -> bool:
    """Whether the group has ended, now or within so many seconds."""
    deadline = time.monotonic() + seconds
    told = False
    while members := group_members(group):
        if is_hurried() or time.monotonic() >= deadline:
            return False
        if not told:
            told = True
            on_wait(members)
        time.sleep(_POLL_SECONDS)
    return True


def parent_death_signal() -> Callable[[], object] | None:
    """What a process calls between fork and exec to get SIGTERM when the thread ends that has started it.

    None where the kernel sends no such signal: only Linux does. There the guard sends it.
    """
    if not is_linux():
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here, not between fork and exec
    return lambda: prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)


def _count(members: list[int]) -> str:
    return "a child" if len(members) == 1 else f"{len(members)} children"
