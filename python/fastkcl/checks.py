"""Checks of options, each with one wording: the option, the expected value, the given value."""

from __future__ import annotations

__all__ = ["check_choice", "check_not_negative", "check_whole_number"]


def check_choice(name: str, value: object, *choices: str) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ValueError: it is none.
    """
    if value not in choices:
        expected = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise ValueError(f"{name} must be {expected}, not {value!r}")


def check_not_negative(**options: float) -> None:
    """Refuse numbers below 0, and NaN.

    Raises:
        ValueError: there is one; all of them are named.
    """
    if not all(value >= 0 for value in options.values()):
        raise ValueError(f"{' and '.join(options)} must not be negative: {', '.join(map(str, options.values()))}")


def check_whole_number(name: str, value: object) -> None:
    """Refuse fractions, and everything that is not a number.

    Raises:
        TypeError: it is one.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
