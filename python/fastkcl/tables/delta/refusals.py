"""Why deltalake does not open a table.

Of some damage it panics. The exception of a panic is no `Exception`, so that programs that catch those end by it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["RefusalError", "opened"]

T = TypeVar("T")


class RefusalError(Exception):
    """deltalake cannot read what a table has. `str()` is the first line of its own error."""


def opened(look: Callable[[], T]) -> T:
    """What a look at a table gives.

    Raises:
        RefusalError: deltalake cannot read the table.
        OSError: nobody knows, as a file cannot be read.
    """
    from deltalake.exceptions import DeltaError

    try:
        return look()
    except DeltaError as error:
        raise RefusalError(str(error).partition("\n")[0]) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise RefusalError(f"it panics: {str(error).partition(chr(10))[0]}") from error
