"""Shared commits: children of one host that write the same table share one commit. No I/O; for any format.

    child      stages its files, and wants to commit a Request
    lock       free: the child takes it, and commits its own request together with all that the others have left
               taken: the child leaves its request, and waits for an answer or for the lock
    answer     makes the child read the table. It is only a hint: the table's position decides, whoever committed
    3 seconds  without an answer: the child commits alone

The lock only saves work. Correctness comes from the table's compare-and-set: a request continues from a position, and
is committed only on exactly the version of the table that has this position. So any child may commit a request, once
or never, even after the death of the child that made it: the rows are still correct.

Rules: a commit takes one request from each shard. A zombie and its successor continue from the same position, and both
compare equal to the table's; the next commit refuses the second one. Requests older than an hour are never committed.
A child may have died long before its request is committed, and its files may be gone: by VACUUM, or as the table was
restored from a copy. So the files of others' requests are looked for. A child looks for its own before it commits alone
what was not committed with others.
`Committer.commit` answers each request that it gets; `Outcome.AGAIN` means that it did nothing for the request.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError

__all__ = ["MOST_AGE", "PATIENCE", "Answer", "Committer", "Member", "Outcome", "Request", "Turn", "choose", "gone"]

PATIENCE: Final = 3.0
"""Seconds that a child waits for an answer, or for the lock."""
MOST_AGE: Final = 3600.0
"""Seconds; an older request is not committed."""

Json: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Request:
    """Files that a child has staged, and that a commit is to add together with a shard's position."""

    id: str
    """Random: 24 hexadecimal digits."""
    table: str
    """The table's id."""
    shard: Shard
    after: Position | None
    """Position that the rows continue from."""
    upto: Position
    """Position of the last row, before any transformation."""
    rows: int
    """Records that it stands for, before any transformation."""
    files: Json
    """The files, as the table's format has them: as JSON, whose numbers are whole. The committer checks them."""


class Outcome(enum.Enum):
    """What became of a request."""

    COMMITTED = "committed"
    """The table has its rows."""
    PASSED = "passed"
    """The table's position is another one now: look."""
    AGAIN = "again"
    """Nothing was done, or somebody else's commit came first: it stays for the next commit."""
    REFUSED = "refused"
    """Not one for a shared commit: its child commits alone, and sees its own error."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request."""

    id: str
    """The request's."""
    outcome: Outcome
    why: str = ""
    """Of a refusal, for people."""


class Committer(Protocol):
    """What a format has for shared commits: one try."""

    def commit(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """Commit as many requests as belong into one commit, as `choose` says.

        Args:
            requests: the committing child's own first. Others' come from a folder: they have the right types, and
                `files` is as another process has written it.

        Returns:
            One answer for each request.

        Raises:
            Exception: nobody knows whether they were committed: look.
        """


class Turn(enum.Enum):
    """What a child does next."""

    WAIT = "wait"
    LOOK = "look"
    COMMIT = "commit"
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class Member:
    """A child that wants a request committed."""

    since: float
    """When it began, in seconds of a clock that never goes back."""

    def turn(self, now: float, answer: Answer | None, *, locked: bool) -> Turn:
        """What it does next.

        Args:
            now: by the clock of `since`.
            answer: that somebody has left.
            locked: whether the child has the lock.
        """
        if answer is not None and answer.outcome is not Outcome.AGAIN:
            return Turn.ALONE if answer.outcome is Outcome.REFUSED else Turn.LOOK
        if locked:
            return Turn.COMMIT
        return Turn.ALONE if now - self.since >= PATIENCE else Turn.WAIT


def choose(
    requests: Sequence[Request], table: str, position: Callable[[Shard], Position | None]
) -> tuple[list[Request], list[Answer]]:
    """The requests of one commit, and answers for those that are not in it.

    Args:
        requests: in the order in which they are preferred.
        table: the id of the table at a version.
        position: of a shard at that version. What follows is committed on that very version, or not at all.
    """
    chosen: dict[Shard, Request] = {}
    answers: list[Answer] = []
    for request in requests:
        if request.table != table:
            answers.append(Answer(request.id, Outcome.REFUSED, f"the table's id is {table}, not {request.table}"))
            continue
        try:
            there = position(request.shard)
        except SinkError as error:
            answers.append(Answer(request.id, Outcome.REFUSED, str(error)))
            continue
        if there != request.after:
            answers.append(Answer(request.id, Outcome.PASSED))
        elif request.shard in chosen:
            answers.append(Answer(request.id, Outcome.AGAIN))
        else:
            chosen[request.shard] = request
    return list(chosen.values()), answers


def gone(
    requests: Sequence[Request],
    files: Callable[[Request], Mapping[str, int]],
    sizes: Callable[[Sequence[str]], Sequence[int | None]],
) -> list[Answer]:
    """Refusals of the requests of which a file is not there, or not whole.

    Args:
        requests: checked.
        files: those of a request, with their bytes.
        sizes: the bytes of files now, None for each that is not there.
    """
    named = [(request, path, size) for request in requests for path, size in files(request).items()]
    if not named:
        return []
    found = sizes([path for _, path, _ in named])
    why = {
        request.id: f"{path}: it has {'no' if there is None else there} bytes now, and had {size}"
        for (request, path, size), there in zip(named, found, strict=True)
        if there != size
    }
    return [Answer(request_id, Outcome.REFUSED, reason) for request_id, reason in why.items()]
