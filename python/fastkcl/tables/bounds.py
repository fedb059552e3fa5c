"""Bounds of a write: when batches are written, how large one table may be, and how many bytes are held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from typing import Any, Final, TypedDict, TypeVar

from fastkcl.write_after import Batch, BatchBuffer, Fitted, Order, Run

__all__ = [
    "DEFAULT_HELD_TABLES",
    "DEFAULT_MAX_AGE",
    "DEFAULT_MAX_BYTES",
    "DEFAULT_MAX_RECORDS",
    "DEFAULT_MAX_TABLE_BYTES",
    "MAX_TABLE_BYTES",
    "Bounds",
    "SingleBounds",
    "bounds_of",
    "check_names",
]

MAX_TABLE_BYTES: Final = 120_000_000
"""Bytes of a table up to which Spark Connect sends it inside the plan; the client's limit is 128 MiB a message."""
DEFAULT_MAX_BYTES: Final = 16 * 1024 * 1024
"""A Connect server needs some five times this for each child that writes: four fit into 1 GB, Spark's default."""
DEFAULT_MAX_RECORDS: Final = 500_000
DEFAULT_MAX_TABLE_BYTES: Final = 112 * 1024 * 1024
"""Room is left below `MAX_TABLE_BYTES` for the additions of Arrow's stream format."""
DEFAULT_HELD_TABLES: Final = 4
"""`max_held_bytes` is this many times `max_bytes`: one being written, one that waits, one being collected, and room."""
DEFAULT_MAX_AGE: Final = 60.0

B = TypeVar("B", bound=Batch)
P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """When batches are written, how large a table may be, and how much is held.

    Raises:
        ValueError: `max_table_bytes` is out of range. The others are checked when they are used.
    """

    max_bytes: int = DEFAULT_MAX_BYTES
    """Write when the collected batches keep this many bytes allocated,"""
    max_records: int = DEFAULT_MAX_RECORDS
    """or when this many records are collected,"""
    max_age: float = DEFAULT_MAX_AGE
    """or when the first of them has waited for this many seconds."""
    max_table_bytes: int = DEFAULT_MAX_TABLE_BYTES
    """Cut tables so that none is larger; at most `MAX_TABLE_BYTES`."""
    max_held_bytes: int | None = None
    """Wait for the writer while all unwritten batches, the current one included, would keep more bytes allocated.
    `DEFAULT_HELD_TABLES` times `max_bytes` if None."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_table_bytes <= MAX_TABLE_BYTES:
            raise ValueError(
                f"max_table_bytes={self.max_table_bytes}: must be 1 to {MAX_TABLE_BYTES}, the maximum of Spark Connect"
            )

    def buffer(
        self,
        write: Callable[[Run[B, P]], None],
        order: Order[B, P],
        *,
        commit_interval: float,
        fit: Callable[[Sequence[B]], Fitted] | None = None,
    ) -> BatchBuffer[B, P]:
        """A buffer with these bounds.

        Raises:
            ValueError: one is out of range.
        """
        return BatchBuffer(
            write,
            order,
            max_bytes=self.max_bytes,
            max_records=self.max_records,
            max_run_bytes=self.max_table_bytes,
            max_held_bytes=(
                DEFAULT_HELD_TABLES * self.max_bytes if self.max_held_bytes is None else self.max_held_bytes
            ),
            max_age=self.max_age,
            commit_interval=commit_interval,
            fit=fit,
        )


class SingleBounds(TypedDict, total=False):
    """Bounds one by one, in the place of a `Bounds`."""

    max_bytes: int
    max_records: int
    max_age: float
    max_table_bytes: int
    max_held_bytes: int | None


def bounds_of(bounds: Bounds | None, single: Mapping[str, Any]) -> Bounds:
    """The bounds, given together or one by one.

    Raises:
        TypeError: both ways, or a name that does not exist.
        ValueError: one is out of range.
    """
    if bounds is None:
        return Bounds(**single)
    if single:
        raise TypeError(f"{next(iter(single))}= beside bounds=: give it as Bounds({next(iter(single))}=…)")
    return bounds


def check_names(owner: type, single: Iterable[str], options: type = SingleBounds) -> None:
    """Refuse options that a class does not have.

    Args:
        owner: the class.
        single: names that were given and are no parameters of its.
        options: a TypedDict of those that it takes in addition to its parameters.

    Raises:
        TypeError: there is one; the message has the nearest name.
    """
    known = [name for name in [*signature(owner).parameters, *options.__annotations__] if name != "single"]
    for name in single:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]}=?" if near else ""
            raise TypeError(f"{owner.__name__} has no option {name}={hint}")
