"""Exceptions of user code that resist those who look at them: their text, class, members or arguments fail."""

from __future__ import annotations

import errno
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

_name_of = vars(type)["__name__"].__get__


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError("do not look")


class Incomparable:
    """As an array in a condition."""

    __eq__ = __ne__ = __bool__ = __str__ = __repr__ = __format__ = _refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class UnreadableError(Exception):
    __notes__ = property(_refuse)  # type: ignore[assignment]


class UntouchableError(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError("no attributes")


class ClasslessError(Exception):
    __class__ = property(_refuse)  # type: ignore[assignment]


class _Nameless(type):
    __name__ = property(_refuse)  # type: ignore[assignment]


class NamelessError(Exception, metaclass=_Nameless):
    pass


class _OddText(str):
    __format__ = __str__ = __bool__ = _refuse  # type: ignore[assignment]
    __slots__ = ()


class OddlyToldError(Exception):
    def __str__(self) -> str:
        return _OddText("odd")


class LockedGroup(ExceptionGroup[Any]):
    exceptions = property(_refuse)  # type: ignore[assignment]


class EmptiedGroup(ExceptionGroup[Any]):
    exceptions = 5  # type: ignore[assignment]


class _ReplacedArchive:
    """The loader of a module whose archive is another file by now."""

    def get_source(self, name: str) -> NoReturn:
        raise zlib.error("incorrect header check")


def _raised_in_a_replaced_archive() -> Exception:
    code = compile("1 / 0", "/nowhere/app.pyz/app.py", "exec")
    try:
        exec(code, {"__name__": "app", "__loader__": _ReplacedArchive()})
    except ZeroDivisionError as error:
        return error
    raise AssertionError("it raises")


def awkward_errors() -> dict[str, Exception]:
    """Each of them, by the name of its class in a report and what is awkward about it."""
    errors: list[Exception] = [
        UnspeakableError(),
        UnreadableError("the module traceback fails"),
        UntouchableError("x"),
        ClasslessError("x"),
        NamelessError("x"),
        OddlyToldError(),
        LockedGroup("x", [ValueError("a member")]),
        EmptiedGroup("x", [ValueError("a member")]),
        ValueError("half \ud800 of a pair"),
        ValueError(Incomparable()),
        EOFError(Incomparable()),
        EOFError(Incomparable(), Incomparable()),
        OSError(errno.ENXIO, "no device", Incomparable()),
        OSError(Incomparable(), "no number"),
        _raised_in_a_replaced_archive(),
    ]
    return {f"{_name_of(type(error))} {number}": error for number, error in enumerate(errors)}


def escaping(call: Callable[[], object]) -> str | None:
    """The name of the exception that a call lets out: pytest cannot show one of these, or one with such a context."""
    try:
        call()
    except BaseException as error:
        return str(_name_of(type(error)))
    return None


AWKWARD = awkward_errors()
