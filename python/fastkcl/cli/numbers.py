"""The type of options with fractions: a finite number, between two bounds.

click's own takes ``nan``, which is neither below nor above anything, and ``1e308``, which no timer can wait for.
"""

from __future__ import annotations

import math
from typing import Any, Final

import click

__all__ = ["MOST_RATE", "MOST_SECONDS", "FiniteRange"]

MOST_SECONDS: Final = 1e9
"""Three decades: every timer, and every date, can have so many."""
MOST_RATE: Final = 1e12
"""Of records, or bytes, a second."""


class FiniteRange(click.FloatRange):
    """A number between two bounds, which are in it unless they are open.

    Args:
        least: the lower bound.
        most: the upper bound.
        least_open: it must be above `least`.
        most_open: it must be below `most`.
    """

    def __init__(self, least: float, most: float, *, least_open: bool = False, most_open: bool = False) -> None:
        super().__init__(least, most, min_open=least_open, max_open=most_open)

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click declares it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """The number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number in the range {self._describe_range()}.", param, ctx)
        return number
