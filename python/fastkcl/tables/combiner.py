"""Commits a request together with those of this host's other children. `group` decides, this module acts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final

from fastkcl.stdio.log import logger
from fastkcl.tables.group import PATIENCE, Answer, Committer, Member, Outcome, Request, Turn
from fastkcl.tables.group_folder import Folder, FolderError, Meeting

__all__ = ["Combiner"]

_TRIES: Final = 100  # of a child that has the lock, and meets other hosts
_FIRST_PAUSE: Final = 0.002  # seconds, between two looks at the lock
_MOST_PAUSE: Final = 0.02
_COLLISION_PAUSE: Final = 0.02


class Combiner:
    """Of one table's writer.

    Args:
        folder: where this host's children meet.
        table: its URL, for the log.
    """

    def __init__(self, folder: Folder, table: str) -> None:
        self._folder = folder
        self._table = table
        self._warned = False
        self.clock: Callable[[], float] = time.monotonic
        self.pause: Callable[[float], None] = time.sleep

    def commit(self, request: Request, committer: Committer, waited: Callable[[], None]) -> bool:
        """Have a request committed, by this child or by another one.

        Args:
            request: this child's.
            committer: of its format.
            waited: called before this child commits after others may have.

        Returns:
            True: look at the table's position, which decides. False: commit alone.

        Raises:
            Exception: the committer's: nobody knows whether the request was committed.
        """
        try:
            with self._folder.opened() as meeting:
                return self._meet(meeting, request, committer, waited)
        except FolderError as error:
            self._warn(error)
            return False

    def _meet(self, meeting: Meeting, request: Request, committer: Committer, waited: Callable[[], None]) -> bool:
        member = Member(self.clock())
        left = False
        pause = _FIRST_PAUSE
        try:
            while True:
                answer = meeting.answer(request.id) if left else None
                held = meeting.lock() if answer is None else None
                if held is None:
                    turn = member.turn(self.clock(), answer, locked=False)
                else:
                    with held:
                        answer = meeting.answer(request.id) if left else None  # it came before the lock was free
                        turn = member.turn(self.clock(), answer, locked=True)
                        if turn is Turn.COMMIT:
                            if left:
                                waited()
                            return self._commit_all(meeting, member, request, committer)
                if turn is not Turn.WAIT:
                    return turn is Turn.LOOK
                if left:
                    self.pause(random.uniform(pause / 2, pause))
                    pause = min(_MOST_PAUSE, pause * 1.5)
                else:
                    meeting.leave(request)
                    left = True
        finally:
            if left:
                meeting.withdraw(request.id)

    def _commit_all(self, meeting: Meeting, member: Member, request: Request, committer: Committer) -> bool:
        """Commit this child's request, and all that are there with it."""
        for _ in range(_TRIES):
            others = [each for each in meeting.requests() if each.id != request.id]
            answers = {answer.id: answer for answer in committer.commit([request, *others])}
            own = answers.pop(request.id)
            self._reply(meeting, [answer for answer in answers.values() if answer.outcome is not Outcome.AGAIN])
            if own.outcome is not Outcome.AGAIN:
                return own.outcome is not Outcome.REFUSED
            if self.clock() - member.since >= 2 * PATIENCE:
                break
            self.pause(random.uniform(0, _COLLISION_PAUSE))
        return False

    def _reply(self, meeting: Meeting, answers: list[Answer]) -> None:
        """Leave answers. Who gets none looks at the table after a while."""
        try:
            for answer in answers:
                meeting.reply(answer)
        except FolderError as error:
            self._warn(error)

    def _warn(self, error: FolderError) -> None:
        if not self._warned:
            self._warned = True
            logger().warning(
                "%s: the folder in which this host's workers combine their commits cannot be used (%s): this worker"
                " commits alone. With many shards of one table that costs time",
                self._table,
                error,
            )
