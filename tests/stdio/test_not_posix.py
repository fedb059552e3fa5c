"""Where there is no POSIX, as on Windows: decoding, Arrow and the Kinesis client work, and the error of `run` names its
needs.

A Python for Windows is not to be had here. This one has lost the parts that that one lacks: its modules, signals and
calls.
"""

from __future__ import annotations

import subprocess
import sys

from kcl_helpers import process_records
from paths import ROOT

WITHOUT = """
import os, signal, sys
for module in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[module] = None
for name in ("SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1",
             "SIGUSR2", "pthread_kill", "pthread_sigmask", "setitimer"):
    delattr(signal, name)
for name in ("fork", "get_blocking", "getpgid", "getuid", "killpg", "mkfifo", "openpty", "pipe2", "register_at_fork",
             "set_blocking", "setsid", "statvfs", "waitid", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK"):
    delattr(os, name)
"""


def python(source: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + source]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=120)


def test_a_wheel_passes_its_check() -> None:
    done = python(f"sys.path.insert(0, {str(ROOT / 'tools')!r}); import check_wheel; exec(check_wheel.CHECK)")
    assert (done.returncode, "from a clean environment" in done.stdout) == (0, True), done.stderr


def test_records_become_arrow() -> None:
    line = process_records(1)
    done = python(f"import pyarrow, fastkcl; print(pyarrow.table(fastkcl.decode_line({line!r}).batch).num_rows)")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_the_kinesis_client_is_there() -> None:
    done = python("from fastkcl.kinesis import Consumer, Producer, decode_get_records; import fastkcl.tables")
    assert done.returncode == 0, done.stderr


def test_a_run_says_what_it_needs() -> None:
    done = python(
        "import fastkcl\n@fastkcl.processor\ndef nothing(batch):\n    pass\n"
        "os.name, sys.platform = 'nt', 'win32'\nfastkcl.run(nothing)\n"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "fastkcl: no_daemon: a daemon's pipes need a POSIX system, and this one is win32" in done.stderr
