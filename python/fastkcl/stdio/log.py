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

_for_last_resort: logging.Handler | None = None
_own_handler: logging.Handler | None = None
_own_level = False


def logger() -> logging.Logger:
    """The logger "fastkcl", with its own handler as long as the root logger has none."""
    global _own_handler, _own_level
    import logging

    found = logging.getLogger("fastkcl")
    configured = bool(logging.getLogger().handlers)
    if _own_handler is None and not configured and found.handlers in ([], [_for_last_resort]):
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


def module_logger(name: str) -> logging.Logger:
    """The logger of a module of a library, whose program sets up logging.

    Where it does not, Python's last resort writes warnings and errors, and gets them without control characters.

    Args:
        name: of the module.
    """
    global _for_last_resort
    import logging

    if _for_last_resort is None:
        _for_last_resort = _escaping_for_last_resort()
        logging.getLogger("fastkcl").addHandler(_for_last_resort)
    return logging.getLogger(name)


def _escaping_for_last_resort() -> logging.Handler:
    import logging

    from fastkcl.stdio.reports import shown

    class ForLastResort(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            last = logging.lastResort
            if last is None or record.levelno < last.level or has_handlers(record.name):
                return
            text = shown(last.format(record))
            last.handle(
                logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, None, None)
            )

    return ForLastResort()


def has_handlers(name: str) -> bool:
    """Whether a program has set up logging for the logger of that name.

    Args:
        name: of the logger.
    """
    import logging

    at: logging.Logger | None = logging.getLogger(name)
    while at is not None:
        if any(handler is not _for_last_resort for handler in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def escaping_formatter(layout: str) -> logging.Formatter:
    """A formatter of lines without control characters.

    Args:
        layout: of logging's, in the style of %.
    """
    import logging

    from fastkcl.stdio.reports import shown

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return shown(super().format(record))

    return Formatter(layout)


def _handler() -> logging.Handler:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(escaping_formatter("fastkcl: %(levelname)s: %(message)s"))
    return handler
