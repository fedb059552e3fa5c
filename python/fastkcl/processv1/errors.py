"""Errors of a stitch: its own mistakes, and a core that is gone."""

from __future__ import annotations


class LocalProtocolError(Exception):
    """This side did what the state does not allow. `str()` is ``not_allowed: <what>``.

    Args:
        what: what was done.
        state: state of the connection when it happened.
    """

    kind = "not_allowed"

    def __init__(self, what: str, state: str) -> None:
        super().__init__(what, state)
        self.what = what
        self.state = state

    def __str__(self) -> str:
        return f"{self.kind}: {self.what} is not allowed in state {self.state}"


class CoreGoneError(Exception):
    """There is no process of the id that the core gave as its own."""
