"""One Spark Connect server for all children of a host: started by the first, found by the others, ended after the last.

    child ──┐                       ┌────────────────────────────┐
    child ──┼─ Unix socket, held ──▶│ keeper (fastkcl.spark.     │── standard input ──▶ JVM with Spark Connect
    child ──┘  as long as it writes │ server.keeper), a process  │                      on the loopback interface
      │                             │ of its own session         │                            ▲
      └──────────── tables, by the URL and token that the keeper tells ──────────────────────┘

A daemon starts a process for each shard; a JVM for each of them would take half a gigabyte and seconds of start each.

Rules:

1. A connection to the keeper's socket keeps the server alive; the kernel closes it with the process, after any death.
   Without one for `LINGER_SECONDS` the server ends, so that a worker that is started again finds it.
2. The other way round, a server that has died has closed the connections: no file is trusted.
3. A client that looks for the server holds a lock meanwhile, and so does the keeper at its end. A client that finds
   none listens itself, starts the keeper and hands the listening socket over. From then on others connect, and wait for
   the keeper's message that Spark has started, or has not.
4. The folder (``$XDG_RUNTIME_DIR/fastkcl``, or ``fastkcl-UID`` in the folder for temporary files) is for this user
   alone, on Linux both ends check the user of the other, too, and the token goes through the socket: it is in no file.
5. The keeper inherits nothing but the listening socket: no pipe of a daemon, no terminal, no process group. The first
   SIGTERM, which a service manager may send to all processes, has it end with its last client.
6. A server that lives and does not answer is given up by the client that sees it: the client informs the keeper, which
   stops listening. The next one is started beside it; it ends with its last client.
7. One server serves one name, Python environment and heap.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Final
from weakref import WeakSet

from fastkcl import private_folder
from fastkcl.portable import is_linux
from fastkcl.private_folder import runtime_folder
from fastkcl.spark.server.settings import SparkUnavailableError, require_spark

__all__ = [
    "ADDRESS",
    "LINGER_SECONDS",
    "Attachment",
    "SharedServer",
    "default_heap_megabytes",
    "is_ours",
    "lock_file",
]

ADDRESS: Final = r"shared(:(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]{0,39}))?(;memory=(?P<memory>[1-9]\d{0,5}[mg]))?"
"""Pattern of an address: ``shared``, ``shared:NAME``, each with ``;memory=4g``."""
LINGER_SECONDS: Final = 60.0

_START_SECONDS: Final = 180.0  # 10 s on a quiet machine, above a minute on one that has no time
_ATTEMPTS: Final = 2  # a server can die while one waits for it
_SPAWN_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.25
_LONGEST_ANSWER: Final = 65536
_BACKLOG: Final = 512
_LONGEST_PATH: Final = 103  # of a socket, in bytes, as macOS has it; Linux takes four more
_MEGABYTE: Final = 1024**2
# Variables that would make the keeper's pyspark a client.
_NOT_INHERITED: Final = ("FASTKCL_SPARK", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

_attachments: WeakSet[Attachment] = WeakSet()


class Attachment:
    """A hold on the shared server, to be closed; it ends with this process at the latest, and is none of its forks'."""

    url: str
    """``sc://localhost:PORT/;token=…``, to be kept as secret as the data."""
    pid: int
    """Process id of the keeper."""

    def __init__(self, connection: socket.socket, answer: dict[str, str | int]) -> None:
        self._connection = connection
        connection.setblocking(False)
        self.url = str(answer["url"])
        self.pid = int(answer["pid"])
        _attachments.add(self)

    @property
    def alive(self) -> bool:
        """Whether the server is there."""
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def give_up(self) -> None:
        """Release a server that runs but does not answer, and keep others from finding it."""
        with suppress(OSError):
            self._connection.send(b"\n")
        self._connection.close()

    def close(self) -> None:
        """Release it. A second call does nothing."""
        self._connection.close()


class SharedServer:
    """The server of a name, running or not.

    Args:
        address: as `ADDRESS`.
        linger: seconds that it stays without a client, of who starts it; `LINGER_SECONDS` by default.

    Raises:
        ValueError: `address` is none.
    """

    def __init__(self, address: str = "shared", *, linger: float | None = None) -> None:
        found = re.fullmatch(ADDRESS, address)
        if found is None:
            raise ValueError(f"{address!r}: expected shared[:NAME][;memory=SIZE], SIZE as in 4g or 512m")
        self._memory = found["memory"]
        self._name = found["name"] or "default"
        self._linger = LINGER_SECONDS if linger is None else linger

    def attach(self, wanted: Callable[[], bool] = lambda: True) -> Attachment:
        """Find the server, or start it, and wait until it serves.

        Args:
            wanted: asked while waiting; False gives up.

        Raises:
            SparkUnavailableError: it does not start, or is not wanted any more; `str()` names its log.
        """
        require_spark()
        try:
            for _ in range(_ATTEMPTS):
                with self._locked() as folder:
                    connection = self._connect(folder) or self._start(folder)
                answer = self._answer(connection, wanted)
                if answer is not None and "url" in answer:
                    return Attachment(connection, answer)
                connection.close()
                if answer is not None:
                    raise SparkUnavailableError(f"{answer['error']} (its log: {self.log_path})")
        except (OSError, subprocess.SubprocessError) as error:
            raise SparkUnavailableError(f"no shared Spark server can be had in {runtime_folder()}: {error}") from error
        raise SparkUnavailableError(f"the shared Spark server has ended while it started; its log: {self.log_path}")

    @property
    def log_path(self) -> Path:
        """The log of keeper and JVM; that of the server before is beside it, with ``.old``."""
        return runtime_folder() / f"{self._stem()}.log"

    def _stem(self) -> str:
        """Name of its files: clients in another environment, or of other wishes, have another server."""
        versions = [metadata.version(name) for name in ("fastkcl", "pyspark")]
        kind = "\n".join([*versions, sys.prefix, os.environ.get("SPARK_HOME", ""), self._memory or ""])
        return f"{self._name}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"

    @contextmanager
    def _locked(self) -> Iterator[Path]:
        """Hold the lock; gives a path of the folder that is short enough for a socket's: on Linux always.

        Raises:
            OSError: the folder cannot be used, or its path is too long.
        """
        with (
            private_folder.opened(runtime_folder()) as folder,
            lock_file(f"{self._stem()}.lock", folder),
        ):
            if is_linux():
                yield Path(f"/proc/self/fd/{folder}")
                return
            name = f"{self._stem()}.sock"
            length = len(os.fsencode(runtime_folder() / name))
            if length > _LONGEST_PATH:
                raise OSError(
                    f"with its name {name} the path of a socket there has {length} bytes, and this system takes"
                    f" {_LONGEST_PATH}: have XDG_RUNTIME_DIR name a folder with a shorter path"
                )
            yield runtime_folder()

    def _connect(self, folder: Path) -> socket.socket | None:
        """A connection to a keeper that listens, None if there is none."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(folder / f"{self._stem()}.sock"))
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            return None
        except BaseException:
            connection.close()
            raise
        if not is_ours(connection):
            connection.close()
            raise PermissionError("another user listens there")
        return connection

    def _start(self, folder: Path) -> socket.socket:
        """Listen, and have a keeper take that over."""
        path = folder / f"{self._stem()}.sock"
        path.unlink(missing_ok=True)
        log = folder / f"{self._stem()}.log"
        if log.exists():
            log.replace(log.with_suffix(".log.old"))
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        with socket.socket(socket.AF_UNIX) as listener, open(log, "ab", opener=_private) as output:
            listener.bind(str(path))
            listener.listen(_BACKLOG)
            keeper = [str(listener.fileno()), str(runtime_folder()), self._stem(), self._heap(), str(self._linger)]
            # It forks and is nobody's child then; this waits for its start.
            subprocess.run(
                [sys.executable, "-P", "-m", "fastkcl.spark.server.keeper", *keeper],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                timeout=_SPAWN_SECONDS,
                check=True,
            )
            connection = self._connect(folder)
        if connection is None:
            raise FileNotFoundError(f"{path.name} has gone")
        return connection

    def _heap(self) -> str:
        return self._memory or f"{default_heap_megabytes()}m"

    def _answer(self, connection: socket.socket, wanted: Callable[[], bool]) -> dict[str, str | int] | None:
        """The keeper's message when Spark has started or has not; None if it is gone."""
        deadline = time.monotonic() + _START_SECONDS
        connection.settimeout(_POLL_SECONDS)
        answer = b""
        while not answer.endswith(b"\n"):
            if not wanted() or time.monotonic() > deadline:
                connection.close()
                raise SparkUnavailableError(
                    f"the shared Spark server was not there within {_START_SECONDS:g} s; its log: {self.log_path}"
                    if wanted()
                    else "a shared Spark server is not wanted any more"
                )
            try:
                part = connection.recv(_LONGEST_ANSWER)
            except TimeoutError:
                continue
            except ConnectionResetError:
                return None
            if not part:
                return None
            answer += part
        found: dict[str, str | int] = json.loads(answer)
        return found


@contextmanager
def lock_file(path: Path | str, folder: int | None = None) -> Iterator[None]:
    """Hold a lock that everybody takes who looks for the server, starts it or ends it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def is_ours(connection: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket is this user's.

    Elsewhere than on Linux the folder alone tells: only this user can enter it.
    """
    if not is_linux():
        return True
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def default_heap_megabytes() -> int:
    """A quarter of the memory, as a JVM would choose, in MiB: 1 GiB or half of it at least, and 4 GiB at most."""
    megabytes = min(_memory_limits()) // _MEGABYTE
    return int(min(4096, max(megabytes // 4, min(1024, megabytes // 2))))


def _memory_limits() -> Iterator[int]:
    """Bytes of memory of the machine; on Linux, within the limits of control groups."""
    yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if not is_linux():
        return
    folders = [Path("/sys/fs/cgroup/memory")]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::/"):
            own = Path("/sys/fs/cgroup", line.removeprefix("0::/"))
            folders += [own, *own.parents[: len(own.parts) - len(Path("/sys/fs/cgroup").parts)]]
    for folder in folders:
        for name in ("memory.max", "memory.limit_in_bytes"):
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal():
                yield int(text)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _close_in_forked_child() -> None:
    for attachment in list(_attachments):
        attachment.close()


os.register_at_fork(after_in_child=_close_in_forked_child)
