"""A logging handler whose lines end in the core's log: `stitch.log` for programs that use `logging`."""

from __future__ import annotations

import logging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fastkcl.processv1.stitch import Stitch


class CoreLogHandler(logging.Handler):
    """Writes each record to the core's log, a line of the log for each line of the record.

    Args:
        stitch: whose core.
        level: the least level that is written.
    """

    def __init__(self, stitch: Stitch, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._stitch = stitch
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. As of any handler, errors are reported and not raised."""
        try:
            self._stitch.log(*self.format(record).splitlines())
        except Exception:
            self.handleError(record)
