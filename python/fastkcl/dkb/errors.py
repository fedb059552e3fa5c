"""Errors around a stage: its arguments, its markers, its files."""

from __future__ import annotations

from fastkcl import ConfigurationError


class StageError(ConfigurationError):
    """A stage cannot serve its arguments. `str()` has the problem and the remedy.

    Args:
        kind: ``arguments``, ``mode``, ``empty_eom``, ``marker_prefix``, ``marker_length``, ``config``, ``file``,
            ``message`` or ``result``.
        what: what is wrong, and what to do.
        exit_code: of the stage.
    """

    def __init__(self, kind: str, what: str, exit_code: int = 1) -> None:
        super().__init__(what)
        self.kind = kind
        self.exit_code = exit_code
