"""Whether this is Linux. What only Linux has is used where `is_linux` says so, and has a portable way beside it.

``FASTKCL_PORTABLE=1`` in the environment chooses the portable ways on Linux, too: for tests of them.
"""

import os
import sys

__all__ = ["is_linux"]


def is_linux() -> bool:
    """Whether to use what only Linux has."""
    return sys.platform == "linux" and os.environ.get("FASTKCL_PORTABLE") != "1"
