"""Errors around a stitch: its command line, a core that is gone. Its own mistakes are `LocalProtocolError`s."""

from __future__ import annotations

from fastkcl import ConfigurationError


class ArgumentError(ConfigurationError):
    """A command line that no stitch can start with. `str()` is ``<kind>: <what>``.

    Args:
        kind: ``duplicate_argument`` or ``channel``.
        what: what is wrong.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(kind, what)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.args[1]}"


class CoreGoneError(ConfigurationError):
    """There is no process of the id that the core gave as its own."""
