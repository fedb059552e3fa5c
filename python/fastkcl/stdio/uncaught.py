"""The interpreter's reports of exceptions without control characters: of the main thread, of others, of ignored ones.

A report that has none is left to Python, byte for byte. The hooks are Python's own (`sys.excepthook`,
`threading.excepthook`, `sys.unraisablehook`): a program that sets one has its own, and may call the one before or that
of `sys.__excepthook__`.
"""

from __future__ import annotations

import sys

from fastkcl.stdio import reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn


def escape_uncaught() -> None:
    """Escape the reports of this process, from now on, and of its forked children."""
    import _thread

    of_main_thread = _escaping(sys.excepthook, _of_main_thread)

    def main_hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        of_main_thread(kind, error, frames)
        if kind is KeyboardInterrupt and sys._getframe().f_back is None:  # the interpreter calls it, not the program
            # Python ends by SIGINT then, but forgets that at an import, as those of a traceback's printing.
            try:  # noqa: SIM105 - contextlib is slow to import
                exec("raise KeyboardInterrupt")
            except KeyboardInterrupt:
                pass

    sys.excepthook = sys.__excepthook__ = main_hook
    thread_hook = _escaping(_thread._excepthook, _of_thread)
    sys.unraisablehook = sys.__unraisablehook__ = _escaping(sys.unraisablehook, _ignored)
    if (module := sys.modules.get("threading")) is not None:
        module.excepthook = module.__excepthook__ = thread_hook  # type: ignore[attr-defined]
    else:  # which takes it from there; to import it takes longer
        _thread._excepthook = thread_hook


def exit_escaped(end: SystemExit) -> NoReturn:
    """Raise a SystemExit again, whose text Python writes to standard error as it is.

    Raises:
        SystemExit: always.
    """
    if end.code is not None and not isinstance(end.code, int):
        text = reports.text_of(end.code)
        escaped = reports.without_controls(text)
        if escaped != text:
            raise SystemExit(escaped) from None
    raise end


def _escaping(default: Callable[..., Any], text_of: Callable[..., str]) -> Callable[..., None]:
    def report(*about: Any) -> None:  # noqa: ANN401 - Python has no name for all three kinds
        try:
            text = text_of(*about)
            escaped = reports.without_controls(text)
        except Exception:  # user code may have put anything there
            text = escaped = ""
        if escaped == text:
            default(*about)
            return
        stream = _stream(about)
        try:
            stream.write(escaped)
        except OSError:  # nobody reads it
            return
        except Exception:  # none, closed, of another encoding, or the program's own
            if stream is not None or not hasattr(sys, "stderr"):
                reports.write(escaped)
            return
        try:  # noqa: SIM105 - contextlib is slow to import
            stream.flush()
        except Exception:  # Python passes over it, too
            pass

    return report


def _stream(about: tuple[Any, ...]) -> Any:  # noqa: ANN401 - whatever a program has there
    """Where Python writes a report; without a standard error a thread takes the one that it began with."""
    stream = getattr(sys, "stderr", None)
    if stream is None and len(about) == 1:
        stream = getattr(getattr(about[0], "thread", None), "_stderr", None)
    return stream


def _of_main_thread(_kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> str:
    return reports.formatted(error, frames)


def _of_thread(about: threading.ExceptHookArgs) -> str:
    if about.exc_type is SystemExit:  # it ends the thread in silence
        return ""
    name = about.thread.name if about.thread is not None else "unknown"
    assert about.exc_value is not None
    return f"Exception in thread {name}:\n{reports.formatted(about.exc_value, about.exc_traceback)}"


def _ignored(about: sys.UnraisableHookArgs) -> str:
    first = about.err_msg or "Exception ignored in"
    if about.object is not None:
        first = f"{first}: {_repr(about.object)}"
    if about.exc_value is None:
        return f"{first}\n"
    return f"{first}\n{reports.formatted(about.exc_value, about.exc_traceback)}"


def _repr(thing: object) -> str:
    try:
        return repr(thing)
    except Exception:
        return "<object repr() failed>"
