"""Where there is no Linux, as on macOS: what only Linux has is gone, and each module can be imported.

The rooms' tests take each portable way: those with the fixture `each_way`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastkcl.portable import sync
from portable_ways import WITHOUT_LINUX

GONE = """
import ctypes, os, select, socket
for module, name in [(os, "pidfd_open"), (os, "pipe2"), (os, "sched_getaffinity"), (socket, "SO_PEERCRED"),
                     (select, "epoll")]:
    assert not hasattr(module, name), name
assert not hasattr(ctypes.CDLL(None), "prctl")
for look in (open, os.scandir, os.listdir, lambda path: os.open(path, os.O_RDONLY), socket.socket(socket.AF_UNIX).bind):
    try:
        look("/proc/self")
    except FileNotFoundError:
        continue
    raise AssertionError(look)
"""
IMPORTS = """
import importlib, sys
from pathlib import Path
import fastkcl
package = Path(fastkcl.__file__).parent
for path in sorted([*package.rglob("*.py"), *package.parent.glob("pyspark_fastkcl*/**/*.py")]):
    name = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] == "fastkcl":
            raise
        print("without", error.name, file=sys.stderr)  # a library of an extra
    print(name)
"""


def python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", source],
        env=os.environ | {"FASTKCL_PORTABLE": "1", "PYTHONPATH": str(WITHOUT_LINUX)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_what_only_linux_has_is_gone() -> None:
    done = python(GONE)
    assert done.returncode == 0, done.stderr


def test_each_module_can_be_imported() -> None:
    done = python(IMPORTS)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 300


@pytest.mark.parametrize(
    ("full", "expected"),
    [(0, ["full"]), (errno.ENOTSUP, ["full", "fsync"]), (errno.EIO, ["full"])],
    ids=["known", "not of this file system", "fails"],
)
def test_a_sync_empties_the_cache_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: int, expected: list[str]
) -> None:
    """macOS has a call of its own for that."""
    calls = []

    def control(descriptor: int, command: int) -> int:
        assert (os.fstat(descriptor).st_size, command) == (1, 51)
        calls.append("full")
        if full:
            raise OSError(full, os.strerror(full))
        return 0

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", lambda _: calls.append("fsync"))
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        if full == errno.EIO:
            with pytest.raises(OSError, match="Input/output"):
                sync(file.fileno())
        else:
            sync(file.fileno())
    assert calls == expected
