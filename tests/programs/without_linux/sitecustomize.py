"""Takes from each Python that starts with this folder on its PYTHONPATH what only Linux has, as on macOS.

Gone are attributes of modules, the function prctl, and each way into /proc. Its platform is still called linux, as
Python's own modules and those of others look there for what else they need.
"""

from __future__ import annotations

import _signal
import _socket
import errno
import fcntl
import os
import posix
import resource
import select
import sys
import time

NAMES = {
    "CLOCK_BOOTTIME",
    "CLOCK_TAI",
    "O_DIRECT",
    "O_LARGEFILE",
    "O_NOATIME",
    "O_PATH",
    "O_TMPFILE",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_RTPRIO",
    "RUSAGE_THREAD",
    "SIGPOLL",
    "SIGPWR",
    "SIGRTMAX",
    "SIGRTMIN",
    "SIGSTKFLT",
    "SOCK_CLOEXEC",
    "SOCK_NONBLOCK",
    "SO_BINDTODEVICE",
    "SO_DOMAIN",
    "SO_PASSCRED",
    "SO_PEERCRED",
    "SO_PROTOCOL",
    "TCP_USER_TIMEOUT",
    "copy_file_range",
    "epoll",
    "eventfd",
    "fdatasync",
    "getrandom",
    "getxattr",
    "memfd_create",
    "pidfd_open",
    "pidfd_send_signal",
    "pipe2",
    "posix_fadvise",
    "posix_fallocate",
    "prlimit",
    "sched_getaffinity",
    "sched_setaffinity",
    "setns",
    "setxattr",
    "sigtimedwait",
    "sigwaitinfo",
    "splice",
    "unshare",
    "waitid",
}
PREFIXES = ("EPOLL", "F_GETPIPE", "F_OFD_", "F_SETPIPE", "EFD_", "MFD_", "SCHED_", "SPLICE_")

for module in (_signal, _socket, fcntl, os, posix, resource, select, time):
    for name in [each for each in vars(module) if each in NAMES or each.startswith(PREFIXES)]:
        delattr(module, name)


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    """As an audit hook: there is no folder /proc, and no function prctl."""
    if event in ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "socket.bind", "socket.connect"):
        path = arguments[1 if event.startswith("socket.") else 0]
        if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    elif event == "ctypes.dlsym" and arguments[1] == "prctl":
        raise AttributeError("no function prctl")


sys.addaudithook(refuse)
