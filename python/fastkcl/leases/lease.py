"""A row of a lease table, as it was seen."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["Lease"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A row's content.

    Attributes:
        key: the shard.
        owner: who may write to it; None while it is free.
        version: another one after each renewal.
        heir: who gets it from its owner, while KCL 3 hands it over.
        finished: all of the shard is processed: nobody needs it any more.
        placed: it has a position, so a new owner goes on where the old one was. Without one it would begin anew.
        stream: the stream's name, where the row has it.
        expired: by a reliable clock its owner was not heard of for the failover time.
    """

    key: str
    owner: str | None = None
    version: Hashable = None
    heir: str | None = None
    finished: bool = False
    placed: bool = True
    stream: str | None = None
    expired: bool = False

    @property
    def holder(self) -> str | None:
        """Whose load it is: the heir's, while it is handed over."""
        return self.heir or self.owner
