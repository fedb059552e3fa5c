"""The logger "fastkcl" of the standard library, imported when there is something to log.

`import logging` costs as much time as the rest of a child's start; most children never log a line.
Where the program has set up logging, its handlers and levels are asked. Where it has not, everything from INFO on
goes to standard error: a few lines for each write of a table, against the four that a daemon logs for each message.
There the control characters of names and errors are written as escapes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

_own_handler: logging.Handler | None = None
_own_level = False


def logger() -> logging.Logger:
    """The logger "fastkcl", with its own handler as long as the root logger has none."""
    global _own_handler, _own_level
    import logging

    found = logging.getLogger("fastkcl")
    configured = bool(logging.getLogger().handlers)
    if _own_handler is None and not configured and not found.handlers:
        _own_handler = _handler()
        found.addHandler(_own_handler)
        if found.level == logging.NOTSET:
            found.setLevel(logging.INFO)
            _own_level = True
    elif _own_handler is not None and configured:
        found.removeHandler(_own_handler)
        _own_handler = None
        if _own_level:
            found.setLevel(logging.NOTSET)
            _own_level = False
    return found


def _handler() -> logging.Handler:
    import logging

    from fastkcl.stdio.reports import shown

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return shown(super().format(record))

    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("fastkcl: %(levelname)s: %(message)s"))
    return handler
