"""What has been logged of payloads, so that each line comes once.

Rules: for any number of threads. Texts are bounded: a stream of garbage with headers cannot fill the memory.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["Told"]

_MOST_TOLD: Final = 1000


class Told:
    """The lines of one process, or of one query in a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def is_new(self, text: str) -> bool:
        """Whether a text was not asked about before. Of very many texts the earlier ones are forgotten."""
        with self._lock:
            is_new = text not in self._told
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told.add(text)
            return is_new
