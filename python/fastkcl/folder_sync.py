"""When the sync of a folder may fail: names are then kept by others, or by nobody.

A new name outlives a power cut once its folder is synced. `tables` and `dead_letters` sync all folders above their own,
also existing ones, since who made those may have died before. Some of them cannot be synced, and need not be.
"""

from __future__ import annotations

import errno

__all__ = ["is_needless"]

_NEEDLESS = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS})


def is_needless(error: OSError) -> bool:
    """Whether the folder is somebody else's, its file system keeps names by itself, or the system is Windows."""
    return error.errno in _NEEDLESS
