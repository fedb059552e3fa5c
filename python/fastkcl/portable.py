"""Whether this is Linux. What only Linux has is used where `is_linux` says so, and has a portable way beside it.

`sync` is fsync as each system means it.

``FASTKCL_PORTABLE=1`` in the environment chooses the portable ways on Linux, too: for tests of them.
"""

import errno
import os
import sys

__all__ = ["is_linux", "sync"]

_NOT_HERE = frozenset({errno.ENOTSUP, errno.ENOTTY, errno.EINVAL})
"""A file system that does not know F_FULLFSYNC."""


def is_linux() -> bool:
    """Whether to use what only Linux has."""
    return sys.platform == "linux" and os.environ.get("FASTKCL_PORTABLE") != "1"


def sync(descriptor: int) -> None:
    """Have a file, or the names in a folder, outlive a power cut.

    The fsync of macOS leaves them in the disk's own cache; F_FULLFSYNC writes that, too.

    Args:
        descriptor: of the file or folder.

    Raises:
        OSError: it cannot be synced.
    """
    import fcntl

    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
        else:
            return
    os.fsync(descriptor)
