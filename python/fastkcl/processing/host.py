"""The duties of the source of the records: the host of a processor.

    Checkpointer  ── checkpoint, back_off, not_allowed ──▶ ┐
                                                           ├ Host: a KCL dialogue, a shard of a stream
    FailurePolicy ── check, may_retry ───────────────────▶ ┘

A host also calls the processor, and ends the run when `FailurePolicy.call` raises `ProcessorError`. Only type checkers
import this module: a child of a daemon starts without `typing`.
"""

from __future__ import annotations

from typing import NoReturn, Protocol


class Host(Protocol):
    """The host of one processor. Each method but `not_allowed` is called in the thread that calls the processor.

    Any of them may raise SystemExit where the process has to end, for example after a second signal.
    """

    def check(self) -> None:
        """Return if the processor may continue with its shard.

        Raises:
            ProtocolError: the dialogue with the source is broken, also where user code has swallowed the error.
        """

    def checkpoint(self, sequence_number: str | None, sub_sequence_number: int | None) -> str | None:
        """Store a position.

        Args:
            sequence_number: None for the end of everything delivered.
            sub_sequence_number: None for 0.

        Returns:
            Why it is not stored, a name that `CheckpointError` knows; None on success.

        Raises:
            ValueError: the source cannot store such a position; nothing has happened.
            ProtocolError: no checkpoint is possible here, or the source has gone.
        """

    def not_allowed(self, what: str) -> NoReturn:
        """Refuse something that user code may not do; in the thread that does it.

        Raises:
            LocalProtocolError: always.
        """

    def back_off(self, seconds: float, attempt: int) -> None:
        """Wait before a checkpoint is tried again: `seconds` before attempt 0, doubled before each further one."""

    def may_retry(self, method: str, seconds: float, attempt: int) -> bool:
        """Wait as `back_off` does before a failed method is called again.

        Returns:
            False if it must not be called again: the run is about to end, and its records are delivered again.
        """
