"""rich's console for terminals: styles are obeyed, and nothing else is.

rich writes text as it is, with control characters that a key, a payload, a child's line or a file name brings along.
Here each piece of text is made `shown` before styles are put around it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, cast

from rich import console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from fastkcl.cli.output import printable, shown

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

__all__ = ["Console", "show_columns"]


class _Unescaped:
    """Standard output or error without the escaping of text, for our own styles."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - any text file
        self._stream = stream
        self.write = getattr(stream, "write_as_it_is", stream.write)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._stream, name)


class Console(console.Console):
    """rich's, for text from outside.

    Args:
        stderr: write to standard error instead of standard output.
        file: or to this.
        options: of rich's console.
    """

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, **options: Any) -> None:  # noqa: ANN401
        written = _Unescaped(sys.stderr if stderr else sys.stdout) if file is None else file
        super().__init__(file=cast("IO[str]", written), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Segments of text that has no control characters."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)

    def print_line(self, line: Text) -> None:
        """Print one line, however long; a file or a pipe gets it without rich's way through styles, which is slow."""
        if self.is_terminal:
            self.print(line, soft_wrap=True)
            return
        self.file.write(shown(line.plain) + "\n")
        self.file.flush()


def show_columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns on standard output, or nothing if there are none.

    A terminal gets cells that fit its width; a file or a pipe gets a line for each row, however long.

    Args:
        names: of the columns.
        rows: of text from anywhere; a cell for each column.
    """
    if not rows:
        return
    printed = [[printable(cell) for cell in row] for row in rows]
    # A character takes two cells at most.
    longest = sum(2 * max(map(len, column)) + 2 for column in zip(names, *printed, strict=True))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    for row in printed:
        table.add_row(*map(Text, row))
    Console(width=None if sys.stdout.isatty() else longest).print(table)
