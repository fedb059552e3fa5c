"""Values that cannot change. `dataclasses` would do the same, but is slow to import; a child does without it.

A subclass names its values in `__slots__`, in the order of its positional `_freeze`, and calls that in `__init__`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class Frozen:
    """Base of immutable values that compare, hash, show and pickle by their content."""

    __slots__: tuple[str, ...] = ()

    def _freeze(self, *values: object) -> None:
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _restore, (type(self), *self._values())

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in zip(self.__slots__, self._values(), strict=True))
        return f"{type(self).__name__}({values})"


def _restore(kind: type[Frozen], *values: object) -> Frozen:
    restored = object.__new__(kind)
    restored._freeze(*values)
    return restored
