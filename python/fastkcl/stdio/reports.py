"""Lines for standard error, and exit codes.

Reports of the run go straight to fd 2: user code may close or replace `sys.stderr`, and a signal handler may not enter
a buffered writer that it has interrupted. A daemon reads fd 2 line by line in its own charset, so a report is one line
of ASCII.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

EXIT_CLEAN = 0
"""The dialogue ended as the protocol says."""
EXIT_FAILURE = 1
"""A protocol error, a daemon that is gone, or an exception out of user code."""
EXIT_USAGE = 2
"""Started in a way that cannot work, e.g. by hand in a terminal."""
METRICS_VARIABLE = "FASTKCL_METRICS_DIR"
"""Environment variable with the folder for files of `fastkcl.monitoring`, a module that most children never import."""
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))} | {13: "\\r"}
"""All that control a terminal, but tab and line feed."""
_EXIT_SIGNAL = 128
_CONTEXT_LIMIT = 200
_own_modules: tuple[str, ...] = ("fastkcl.stdio.",)


def exit_code_of_signal(number: int) -> int:
    """128 + the signal's number, as shells write it."""
    return _EXIT_SIGNAL + number


def context(data: bytes) -> str:
    """At most 200 bytes of input as they can stand in a report: quoted, escaped, ASCII."""
    return ascii(data[:_CONTEXT_LIMIT])


def printable(text: str) -> str:
    """Text without control characters: each is written as its escape."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_controls(text: str) -> str:
    """Text that does not control a terminal, and is otherwise as it was: line feeds and tabs stay."""
    return text.translate(_CONTROLS)


def shown(text: str) -> str:
    """As `printable`, for text of several lines: line feeds, tabs and spaces of all widths stay."""
    if text.isprintable():
        return text
    import unicodedata

    return "".join(c if c in "\n\t" or unicodedata.category(c) == "Zs" else printable(c) for c in text)


def as_report(text: str) -> str:
    """``fastkcl: <text>`` as one line of ASCII, without its line feed."""
    one_line = text.replace("\n", "\\n").translate(_CONTROLS)
    return f"fastkcl: {one_line}".encode("ascii", "backslashreplace").decode("ascii")


def line(text: str) -> None:
    """Write a report to fd 2. A standard error that is gone is not a reason to fail."""
    write(f"{as_report(text)}\n")


def skip_frames_of(package: str) -> None:
    """Have tracebacks begin after a package's frames. A protocol names its own package, which calls user code."""
    global _own_modules
    _own_modules = (*_own_modules, f"{package}.")


# As every exception and every class has them, whatever user code makes of these names.
frames_of: Callable[[BaseException], TracebackType | None] = vars(BaseException)["__traceback__"].__get__
"""The frames that an exception has come through."""
_name_of: Callable[[type], str] = vars(type)["__name__"].__get__


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception as Python prints it, from the first frame that is not the run's own."""
    frames = frames_of(error)
    while frames is not None and frames.tb_next is not None:
        if not str(frames.tb_frame.f_globals.get("__name__")).startswith(_own_modules):
            break
        frames = frames.tb_next
    return formatted(error, frames)


def formatted(error: BaseException, frames: TracebackType | None) -> str:
    """An exception with these frames as Python prints it, whatever user code has made of its class."""
    lines: list[str] = []
    try:
        import traceback

        try:
            return "".join(traceback.format_exception(type(error), error, frames, limit=_frame_limit()))
        except Exception:  # out of an attribute of the exception
            lines = traceback.format_tb(frames)
    except (
        Exception
    ):  # out of the loader of a module, e.g. of an archive that has been replaced, or of an import at exit
        pass
    return "".join(["Traceback (most recent call last):\n", *(lines or _places(frames)), f"{describe(error)}\n"])


def _frame_limit() -> int | None:
    """The last ones, as Python's own hook has them; the module `traceback` has the first ones."""
    import sys

    limit = getattr(sys, "tracebacklimit", None)
    return -limit if isinstance(limit, int) and limit > 0 else None


def _places(frames: TracebackType | None) -> Iterator[str]:
    while frames is not None:
        code = frames.tb_frame.f_code
        yield f'  File "{code.co_filename}", line {frames.tb_lineno}, in {code.co_name}\n'
        frames = frames.tb_next


def text_of(error: object) -> str:
    """``str(error)``; user code's ``__str__`` may fail, or return a string of a class of its own."""
    try:
        return str.__str__(str(error))
    except Exception:
        return "<its text cannot be made>"


def describe(error: BaseException) -> str:
    """``ValueError: boom``, or only the class name where the exception has no text."""
    name, text = _name_of(type(error)), text_of(error)
    return f"{name}: {text}" if text else name


def traceback_lines(text: str) -> None:
    """Write a traceback of `traceback_text` to fd 2."""
    write(text)


def write(text: str) -> None:
    """Write text to fd 2 as ASCII without control characters. A standard error that is gone is not a reason to fail."""
    data = text.translate(_CONTROLS).encode("ascii", "backslashreplace")
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass
