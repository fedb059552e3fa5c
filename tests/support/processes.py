"""A process in /proc, whose threads and descriptors come and go while it is read."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

GONE = (FileNotFoundError, ProcessLookupError)  # between the listing and the look


def open_files(pid: int | str = "self") -> dict[int, str]:
    """What each descriptor of a process is open on, as its link reads: a path, ``pipe:[1234]``, ``socket:[1234]``."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(*GONE):
            found[int(link.name)] = str(link.readlink())
    return found


def children(pid: int) -> Iterator[tuple[int, str]]:
    """Each child that a thread of a process has started and that still runs: its process id and its command's name."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(*GONE):
            for child in map(int, (task / "children").read_text().split()):
                with suppress(*GONE):
                    yield child, Path(f"/proc/{child}/comm").read_text().strip()
