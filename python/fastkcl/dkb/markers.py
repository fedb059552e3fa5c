r"""The markers of a DKB stream: the purpose of each, the rules for a set, and the sets in the field.

    EOM  end of message       both       after each message
    EOP  end of process       worker     after all results of one request, or alone: done, ready for the next
    EOB  end of batch         supervisor where a message could begin: process what you have
    BNC  batch not complete   worker     after a received message: send one more

Rules: byte strings of 1 to 16 bytes; none is a prefix of another, but EOP may equal EOM; EOP, EOB and BNC may be empty:
not used. An empty EOM stands for "the whole file is one message" and is for files only. Backslash escapes (``\n \0
\x1e \\``) work in all of them.
"""

from __future__ import annotations

import re
from itertools import permutations
from typing import NamedTuple

from fastkcl.dkb.errors import StageError

__all__ = ["PRESETS", "Markers", "escape", "unescape"]

LARGEST_MARKER_BYTES = 16


class Markers(NamedTuple):
    """One set of markers; b"" for one that is not used."""

    end_of_message: bytes = b"\n"
    end_of_process: bytes = b"\0"
    end_of_batch: bytes = b"EOB"
    batch_not_complete: bytes = b"BNC"

    def check(self) -> Markers:
        """Return the set if its markers can be distinguished.

        Raises:
            StageError: kind ``marker_length`` or ``marker_prefix``.
        """
        used = [(name, marker) for name, marker in zip(_NAMES, self, strict=True) if marker]
        for name, marker in used:
            if len(marker) > LARGEST_MARKER_BYTES:
                what = f"{name} {escape(marker)!r} has {len(marker)} bytes: use 1 to {LARGEST_MARKER_BYTES}"
                raise StageError("marker_length", what)
        for (name, marker), (other_name, other) in permutations(used, 2):
            if other.startswith(marker) and not (marker == other and {name, other_name} == {"EOM", "EOP"}):
                raise StageError(
                    "marker_prefix",
                    f"{name} {escape(marker)!r} is a prefix of {other_name} {escape(other)!r}, so the two cannot be"
                    " told apart: choose others, e.g. EOB \\x17 and BNC \\x05",
                )
        return self


_NAMES = ("EOM", "EOP", "EOB", "BNC")

PRESETS: dict[str, Markers] = {
    "fastkcl": Markers(),
    "recommended": Markers(end_of_batch=b"\x17", batch_not_complete=b"\x05"),
    "pydkb": Markers(end_of_batch=b"", batch_not_complete=b""),
    "pydkb-batch": Markers(),
    "pydkb-files": Markers(end_of_process=b"", end_of_batch=b"", batch_not_complete=b""),
    "shell": Markers(end_of_batch=b"\x17", batch_not_complete=b""),
    "php": Markers(b"\x1e", b"\0", b"", b""),
    "shell-sink": Markers(b"\n", b"\x06", b"\0\n", b""),
    "kafka-streams": Markers(end_of_batch=b"", batch_not_complete=b""),
    "kafka-streams-line": Markers(b"\n", b"\n", b"", b""),
    "kafka-connect-sink": Markers(b"\n", b"\x06", b"\0\n", b""),
    "kafka-connect-source": Markers(b"\n", b"", b"", b""),
}
"""Defaults of components in the field, and ours. ``recommended`` is for new set-ups: its markers are no text."""

_ESCAPES = {
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "v": b"\v",
    "\\": b"\\",
    "'": b"'",
    '"': b'"',
}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.|$)", re.DOTALL)


def unescape(text: str) -> bytes:
    r"""The bytes that a marker's text stands for: ``\xHH``, octal, and the letters of C; anything else as UTF-8.

    Raises:
        StageError: kind ``arguments``: an escape that nobody knows.
    """
    parts: list[bytes] = []
    end = 0
    for found in _ESCAPE.finditer(text):
        parts.append(text[end : found.start()].encode())
        end = found.end()
        name = found[1]
        if name.startswith("x") and len(name) > 1:
            parts.append(bytes([int(name[1:], 16)]))
        elif name and name in "01234567" or name.isdigit():
            value = int(name, 8)
            if value > 0xFF:
                raise StageError("arguments", f"marker {text!r}: \\{name} is not a byte", 2)
            parts.append(bytes([value]))
        elif name in _ESCAPES:
            parts.append(_ESCAPES[name])
        else:
            raise StageError("arguments", f"marker {text!r}: unknown escape \\{name}; use \\xHH for a byte", 2)
    parts.append(text[end:].encode())
    return b"".join(parts)


def escape(marker: bytes) -> str:
    """A marker as people write it."""
    return marker.decode("latin-1").encode("unicode_escape").decode("ascii")
