"""Checks of callers' arguments: whole numbers for counts, times above 0, and waits that end.

The checks of `fastkcl.checks` raise ValueError; these raise the client's `ValidationError`, as async-kinesis does.
"""

from __future__ import annotations

import asyncio
import math
import numbers
import operator
from collections.abc import Awaitable
from typing import TypeVar

from fastkcl.kinesis.exceptions import ValidationError

__all__ = ["MOST_SECONDS", "check_count", "check_number", "check_seconds", "within"]

MOST_SECONDS = 1e9
"""Three decades: every timer, and every date, can have so many."""

T = TypeVar("T")


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse a value that is not a count.

    Args:
        name: of the argument, for the message.
        value: the given one.
        least: the smallest that can be meant.
        most: the largest; None for any.

    Raises:
        ValidationError: it is out of range, or a fraction.
        TypeError: it is not a number.
    """
    expected = f"{least} or more" if most is None else f"{least} to {most:,}"
    try:
        count = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        if isinstance(value, float):
            raise ValidationError(f"{name} must be a whole number, {expected}, not {value}") from None
        raise TypeError(f"{name} must be a whole number, {expected}, not {value!r}") from None
    if isinstance(value, bool) or count < least or (most is not None and count > most):
        raise ValidationError(f"{name} must be {expected}, not {value}")


def check_seconds(name: str, value: object, *, optional: bool = False, most: float = math.inf) -> None:
    """Refuse a time that is 0, negative or NaN.

    Args:
        name: of the argument, for the message.
        value: the given one.
        optional: None is valid.
        most: the longest time that can be meant.

    Raises:
        ValidationError: it is out of range.
        TypeError: it is not a number.
    """
    if value is None and optional:
        return
    expected = f"above 0 s{'' if most == math.inf else f', up to {most:g} s'}{', or None' if optional else ''}"
    check_number(name, value, above=0, most=most, expected=expected)


def check_number(
    name: str,
    value: object,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    expected: str,
) -> None:
    """Refuse a value that is not a number within bounds. Without `most`, infinity is within them.

    Args:
        name: of the argument, for the message.
        value: the given one.
        least: the smallest that can be meant.
        above: it is larger than this.
        most: the largest that can be meant.
        expected: the bounds, for the message.

    Raises:
        ValidationError: it is out of range, or NaN.
        TypeError: it is not a number.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, {expected}, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValidationError(f"{name} must be {expected}, not a number of hundreds of digits") from None
    if not (least <= number <= most and number > above):
        raise ValidationError(f"{name} must be {expected}, not {value}")


async def within(seconds: float, what: str, work: Awaitable[T]) -> T:
    """Wait for something, for so long.

    Args:
        seconds: the bound.
        what: what is waited for, for the message.
        work: is cancelled at the bound.

    Raises:
        TimeoutError: it took longer.
        Exception: its error.
    """
    try:
        async with asyncio.timeout(seconds) as bound:
            return await work
    except TimeoutError as error:
        if not bound.expired():
            raise
        raise TimeoutError(f"{what}: not done within {seconds:g} s") from error
