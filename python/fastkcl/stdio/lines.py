"""Cuts a process's output into lines, with a bound."""

from __future__ import annotations

import re

__all__ = ["LINE_LIMIT", "LineSplitter"]

LINE_LIMIT = 1024 * 1024
"""Bytes of a line that are kept."""


class LineSplitter:
    """Cuts a byte stream into lines as `BufferedReader.readLine` does, however the bytes arrive.

    The bytes of a line beyond `LINE_LIMIT` are left out.
    """

    __slots__ = ("_open", "_skip_line_feed")

    _ENDS = re.compile(rb"\r\n|\n|\r")

    def __init__(self) -> None:
        self._open = bytearray()
        self._skip_line_feed = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends."""
        if self._skip_line_feed and data:
            data = data.removeprefix(b"\n")
            self._skip_line_feed = False
        # A CR at the end of the present input already ends the line; an LF that follows it belongs to it.
        self._skip_line_feed = data.endswith(b"\r")
        first, *rest = self._ENDS.split(data)
        self._open += first[: LINE_LIMIT - len(self._open)]
        if not rest:
            return []
        lines = [bytes(self._open), *(line[:LINE_LIMIT] for line in rest)]
        self._open = bytearray(lines.pop())
        return lines

    def finish(self) -> bytes | None:
        """The last line when it has no end, None if nothing is open."""
        last = bytes(self._open)
        self._open.clear()
        return last or None
