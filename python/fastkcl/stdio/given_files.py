"""Reads files that a user has named: bounded, and without waiting in silence for a pipe that nobody writes to."""

from __future__ import annotations

import errno
import os
import select
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader
    from ssl import SSLContext
    from typing import Any

__all__ = [
    "MOST_CERTIFICATES",
    "PATIENCE",
    "check_bundle",
    "check_tokens",
    "fault_of_pipe",
    "open_pipe",
    "read_given",
    "trusting",
]

PATIENCE = 5.0
"""Seconds for which a pipe may have nothing."""
_PART = 65_536
MOST_CERTIFICATES = 16 << 20
"""Bytes of a file with some; a system's bundle has 0.3 MB."""


def read_given(path: str | os.PathLike[str], most: int, *, patience: float | None = None) -> bytes:
    """A file's content, or that of a pipe: a shell gives one for ``<(command)``.

    Args:
        path: of the file.
        most: bytes that it may have.
        patience: seconds for which a pipe may have nothing; `PATIENCE` if None.

    Raises:
        OSError: it cannot be read, has more bytes (EFBIG), or nobody writes to it (ETIMEDOUT).
    """
    patience = PATIENCE if patience is None else patience
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
        data = bytearray()
        while True:
            if is_pipe and not select.select([descriptor], [], [], patience)[0]:
                raise _silent(path, patience)
            part = os.read(descriptor, _PART)
            if not part:
                return bytes(data)
            data += part
            if len(data) > most:
                raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path))
    finally:
        os.close(descriptor)


def open_pipe(path: str | os.PathLike[str], on_wait: Callable[[], None] | None = None) -> BufferedReader:
    """Open a pipe for reading, when it has something.

    Args:
        path: of the pipe.
        on_wait: called when it has had nothing for `PATIENCE`; then it is waited for without an end.

    Raises:
        OSError: it cannot be opened, or without `on_wait` nobody writes to it (ETIMEDOUT).
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: PTH123, SIM115
    try:
        if not select.select([file], [], [], PATIENCE)[0]:
            if on_wait is None:
                raise _silent(path, PATIENCE)
            on_wait()
            select.select([file], [], [])
        os.set_blocking(file.fileno(), True)
    except BaseException:
        file.close()
        raise
    return file


def trusting(bundle: str | os.PathLike[str] | None) -> SSLContext:
    """TLS that trusts the certificates of a file or a pipe; those of the system if None.

    Raises:
        OSError: it cannot be read, has no certificate, or is a pipe to which nobody writes.
    """
    import ssl

    if bundle is None or stat.S_ISREG(os.stat(bundle).st_mode):  # noqa: PTH116 - pathlib is slow to import
        return ssl.create_default_context(cafile=bundle)
    text = read_given(bundle, MOST_CERTIFICATES).decode("ascii", "ignore")  # names in comments may have any letter
    if not text:
        raise OSError(errno.EINVAL, "it has no certificate", os.fspath(bundle))
    return ssl.create_default_context(cadata=text)


def check_bundle(session: Any) -> None:  # noqa: ANN401 - of botocore, or of aiobotocore
    """See that the certificates of botocore's clients are in no pipe: each connection would open it, and wait for ever.

    Raises:
        botocore.exceptions.InvalidConfigError: they are.
    """
    bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    _refuse_pipe(bundle, "AWS_CA_BUNDLE, ca_bundle or REQUESTS_CA_BUNDLE")


def check_tokens() -> None:
    """See that what aiobotocore reads on the event loop, again and again, is in no pipe.

    Raises:
        botocore.exceptions.InvalidConfigError: it is.
    """
    for name in ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        _refuse_pipe(os.environ.get(name), name)


def fault_of_pipe(path: str | None, what: str) -> str | None:
    """What is said of a pipe that a client would open again and again; None of anything else.

    Args:
        path: of the file.
        what: names it.
    """
    try:
        is_pipe = path and stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return None  # the client says so
    return f"{path} ({what}) is a pipe, and it is read more than once: give a file" if is_pipe else None


def _refuse_pipe(path: str | None, what: str) -> None:
    if fault := fault_of_pipe(path, what):
        from botocore.exceptions import InvalidConfigError

        raise InvalidConfigError(error_msg=fault)


def _silent(path: str | os.PathLike[str], patience: float) -> OSError:
    return OSError(errno.ETIMEDOUT, f"a pipe to which nobody has written for {patience:g} s", os.fspath(path))
