"""The folder through which the children of one host share their commits: requests, answers and a lock.

    $XDG_RUNTIME_DIR/fastkcl/table-<hash of the table's URL>/
      lock                  flock: its holder commits
      <id>.request          a digest, and the request as JSON
      <id>.answer           a digest, and the outcome as JSON

All files are only hints and may disappear at any time. A request is either complete or absent: it is written under
another name and then renamed. Nothing is synced, because nothing is needed after a power cut.

Rules: everything that is read is checked: digest, types, ages, sizes. The holder of the lock removes files that are
damaged or old. Each failure is a `FolderError`; then the child commits alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, Protocol, Self

from fastkcl import private_folder
from fastkcl.portable import is_linux
from fastkcl.tables.base import Shard, in_one_line, parse_own_json
from fastkcl.tables.clock import running_seconds
from fastkcl.tables.folders import parse_position, position_text
from fastkcl.tables.group import MOST_AGE, Answer, Outcome, Request

try:
    import fcntl
except ImportError:  # Windows: each child commits alone
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

__all__ = ["HAS_LOCKS", "Folder", "FolderError", "Meeting", "PosixFolder", "answer_of", "bytes_of", "request_of"]

_MOST_NAMES: Final = 4096  # in the folder
_MOST_REQUESTS: Final = 256  # of a commit
_MOST_BYTES: Final = 1 << 20  # of a request
_FILE: Final = re.compile(r"([0-9a-f]{24})\.(request|answer)", re.ASCII)
_ID: Final = re.compile(r"[0-9a-f]{24}", re.ASCII)
_LOCK: Final = "lock"
_ASIDE: Final = "."
_BOOT: Final = "/proc/sys/kernel/random/boot_id"  # elsewhere than on Linux the ages alone tell


class FolderError(Exception):
    """The folder cannot be used. `str()` says why."""


class Meeting(Protocol):
    """An open folder."""

    def lock(self) -> ExitStack | None:
        """Take the lock if it is free: a context that holds it; None if somebody else has it."""

    def leave(self, request: Request) -> None:
        """Leave a request for whoever has the lock."""

    def withdraw(self, request_id: str) -> None:
        """Remove a request and its answer, if they are there. Raises nothing."""

    def requests(self) -> Sequence[Request]:
        """The others' requests, the oldest first. For the lock's holder; old or damaged requests are removed."""

    def reply(self, answer: Answer) -> None:
        """Leave an answer, and remove its request."""

    def answer(self, request_id: str) -> Answer | None:
        """The answer to a request; None if there is none."""


class Folder(Protocol):
    """Where the children of a host meet."""

    def opened(self) -> Any:  # noqa: ANN401 - a context manager of a Meeting
        """A context with a `Meeting`."""


class PosixFolder:
    """A folder for a table, of this user's processes on this host.

    Args:
        url: of the table; where it is reached by an endpoint, with that.
    """

    def __init__(self, url: str) -> None:
        self._name = f"table-{hashlib.sha256(url.encode()).hexdigest()[:32]}"

    @contextmanager
    def opened(self) -> Iterator[Meeting]:
        """See `Folder.opened`.

        Raises:
            FolderError: it cannot be made, or is not this user's alone.
        """
        with ExitStack() as stack:
            try:
                runtime = stack.enter_context(private_folder.opened(private_folder.runtime_folder()))
                folder = stack.enter_context(private_folder.opened(self._name, runtime))
            except OSError as error:
                raise FolderError(in_one_line(error)) from error
            yield _PosixMeeting(folder)


class _PosixMeeting:
    """Steps in an open folder.

    Args:
        folder: its descriptor.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def lock(self) -> ExitStack | None:
        """See `Meeting.lock`."""
        with ExitStack() as stack:
            try:
                lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=self._folder)
                stack.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                stack.callback(fcntl.flock, lock, fcntl.LOCK_UN)  # also if a fork has the descriptor meanwhile
            except BlockingIOError:
                return None
            except OSError as error:
                raise FolderError(f"its lock: {in_one_line(error)}") from error
            return stack.pop_all()

    def leave(self, request: Request) -> None:
        """See `Meeting.leave`."""
        self._write(f"{request.id}.request", bytes_of(request))

    def withdraw(self, request_id: str) -> None:
        """See `Meeting.withdraw`."""
        for kind in ("request", "answer"):
            with suppress(OSError):
                os.unlink(f"{request_id}.{kind}", dir_fd=self._folder)  # noqa: PTH108 - pathlib takes no descriptor

    def requests(self) -> Sequence[Request]:
        """See `Meeting.requests`."""
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208
        except OSError as error:
            raise FolderError(in_one_line(error)) from error
        if len(names) > _MOST_NAMES:
            self._clean(names)
            raise FolderError(f"it has {len(names):,} files")
        found = []
        for name in names:
            if name == _LOCK:
                continue
            match = _FILE.fullmatch(name)
            if match is None or match[2] != "request":
                self._clean([name])
                continue
            try:
                made, request = request_of(self._read(name))
                if request.id != match[1]:
                    raise ValueError("it has another name")
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                self._remove(name)
            else:
                found.append((made, request))
        found.sort(key=lambda each: (each[0], each[1].id))
        return [request for _, request in found[:_MOST_REQUESTS]]

    def reply(self, answer: Answer) -> None:
        """See `Meeting.reply`."""
        self._write(f"{answer.id}.answer", _sealed({"outcome": answer.outcome.value, "why": answer.why[:1000]}))
        self._remove(f"{answer.id}.request")

    def answer(self, request_id: str) -> Answer | None:
        """See `Meeting.answer`."""
        name = f"{request_id}.answer"
        try:
            return answer_of(request_id, self._read(name))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise FolderError(f"{name}: {in_one_line(error)}") from error

    def _read(self, name: str) -> bytes:
        # O_NONBLOCK: to open a FIFO would never end.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                raise ValueError("no file, or too large")
            with os.fdopen(file, "rb", closefd=False) as stream:  # of a folder it would raise, and leave it open
                return stream.read(_MOST_BYTES)
        finally:
            os.close(file)

    def _write(self, name: str, body: bytes) -> None:
        if len(body) > _MOST_BYTES:
            raise FolderError(f"a request of {len(body):,} bytes")
        aside = f"{_ASIDE}{secrets.token_hex(12)}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(aside, flags, 0o600, dir_fd=self._folder), "wb") as stream:
                stream.write(body)
            os.rename(aside, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)  # noqa: PTH104
        except OSError as error:
            self._remove(aside)
            raise FolderError(in_one_line(error)) from error

    def _clean(self, names: Sequence[str]) -> None:
        """Remove files that nobody reads any longer, by their age."""
        now = time.time()
        for name in names:
            with suppress(OSError):
                if name != _LOCK and now - os.lstat(name, dir_fd=self._folder).st_mtime > MOST_AGE:
                    self._remove(name)

    def _remove(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._folder)  # noqa: PTH108


# ---- as bytes -------------------------------------------------------------------------------------------------------


class _Clock:
    """Both clocks, and which start of the machine they belong to: one of them may be set, the other one begin again."""

    __slots__ = ("boot", "running", "wall")

    def __init__(self, boot: str, running: float, wall: float) -> None:
        self.boot = boot
        self.running = running
        self.wall = wall

    @classmethod
    def now(cls) -> Self:
        boot = ""
        if is_linux():
            with suppress(OSError), open(_BOOT) as file:  # noqa: PTH123
                boot = file.read(64).strip()
        return cls(boot, running_seconds(), time.time())


def bytes_of(request: Request) -> bytes:
    """A request as a file has it."""
    clock = _Clock.now()
    return _sealed(
        {
            "id": request.id,
            "table": request.table,
            "stream": request.shard.stream,
            "shard": request.shard.shard_id,
            "after": position_text(request.after),
            "upto": position_text(request.upto),
            "rows": request.rows,
            "files": request.files,
            "boot": clock.boot,
            "running": clock.running,
            "wall": clock.wall,
        }
    )


def request_of(body: bytes) -> tuple[float, Request]:
    """When a request was made, in seconds since the machine's start, and the request.

    Raises:
        ValueError: it is damaged, or older than an hour.
    """
    value = _unsealed(body)
    now = _Clock.now()
    try:
        texts = [value[name] for name in ("id", "table", "stream", "shard", "after", "upto", "boot")]
        numbers = [value[name] for name in ("rows", "running", "wall")]
        if not all(isinstance(text, str) for text in texts) or type(value["rows"]) is not int:
            raise TypeError("types")
        if not all(type(number) in (int, float) for number in numbers):
            raise TypeError("types")
        for text in texts:
            text.encode()  # half of a pair of surrogates is no name
        ages = (now.running - value["running"], now.wall - value["wall"])
        after, upto = parse_position(value["after"]), parse_position(value["upto"])
        if not _ID.fullmatch(value["id"]) or upto is None or value["rows"] < 1 or not all(texts[2:4]):
            raise ValueError("no request")
        if after is not None and not after < upto:
            raise ValueError("its records end before they begin")
        shard = Shard(value["stream"], value["shard"])
        found = Request(value["id"], value["table"], shard, after, upto, value["rows"], value["files"])
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"no request: {error!r}") from error
    if value["boot"] != now.boot or not all(-MOST_AGE < age <= MOST_AGE for age in ages):
        raise ValueError("older than an hour")
    return float(value["running"]), found


def answer_of(request_id: str, body: bytes) -> Answer:
    """An answer of a file.

    Raises:
        ValueError: it is damaged.
    """
    value = _unsealed(body)
    try:
        return Answer(request_id, Outcome(value["outcome"]), str(value["why"]))
    except KeyError as error:
        raise ValueError(f"no answer: {error!r}") from error


def _sealed(value: dict[str, Any]) -> bytes:
    text = json.dumps(value).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def _unsealed(body: bytes) -> dict[str, Any]:
    digest, _, text = body.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError("damaged")
    value = parse_own_json(text)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value
