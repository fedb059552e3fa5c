"""A checkpointer without a daemon."""

from __future__ import annotations

from collections.abc import Callable

from fastkcl import CheckpointError, Position


class FakeCheckpointer:
    """Takes down what is asked for; answers with the errors given, one a request, then with success.

    Args:
        errors: their names; None for success.
        kind: what is raised for a name.
    """

    def __init__(self, *errors: str | None, kind: Callable[[str], Exception] = CheckpointError) -> None:
        self.kind = kind
        self.errors = list(errors)
        self.calls: list[tuple[Position | str | None, int | None]] = []
        """Every request: its position, and a sub-sequence number beside it."""
        self.stored: list[Position | str | None] = []
        """The positions of the requests that had success."""
        self.retries: list[int] = []
        """What each call of `checkpoint` allowed: a call makes one request or more."""

    @property
    def asked(self) -> list[Position | str | None]:
        """The positions of all requests."""
        return [at for at, _ in self.calls]

    def checkpoint(
        self,
        at: Position | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        retries: int = 0,
        backoff: float = 1.0,
    ) -> None:
        assert sub_sequence_number is None or isinstance(at, str), "a position has a sub-sequence number of its own"
        self.retries.append(retries)
        for attempt in range(retries + 1):
            self.calls.append((at, sub_sequence_number))
            name = self.errors.pop(0) if self.errors else None
            if name is None:
                self.stored.append(at)
                return
            if attempt == retries or not CheckpointError(name).retryable:
                raise self.kind(name)
