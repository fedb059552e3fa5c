"""The models of chain_model and delta_model with shared commits: the writers of two shards meet in one folder.

Between any two steps in the folder another writer goes on, dies, or sleeps: with the lock, with its request left, with
an answer that it has not read. Answers get lost, requests of the dead stay, a waiting writer runs out of patience.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from chain_model import ModelStore, World
from delta_model import ModelDeltaTable
from fastkcl.tables import group
from fastkcl.tables.combiner import Combiner
from fastkcl.tables.group import Answer, Request
from fastkcl.tables.group_folder import FolderError, Meeting, bytes_of, request_of

SECONDS_A_TURN = 0.15


class ModelFolder:
    """A folder of one host, as one writer sees it."""

    def __init__(self, world: World, turn: Callable[[], None]) -> None:
        self.world = world
        self._turn = turn
        self._dead = False

    @property
    def files(self) -> dict[str, bytes]:
        return self.world.__dict__.setdefault("folder", {})

    @property
    def answers(self) -> dict[str, Answer]:
        return self.world.__dict__.setdefault("answers", {})

    def turn(self) -> None:
        try:
            self._turn()
        except BaseException:
            self._dead = True
            raise
        if self.world.faults and self.world.chance.random() < self.world.rate / 10:
            raise FolderError("no space left")

    @contextmanager
    def opened(self) -> Iterator[Meeting]:
        yield self

    def lock(self) -> ExitStack | None:
        self.turn()
        if self.world.__dict__.get("locked"):
            return None
        self.world.__dict__["locked"] = True
        with ExitStack() as stack:
            stack.callback(self.world.__dict__.pop, "locked")
            self.turn()
            return stack.pop_all()

    def leave(self, request: Request) -> None:
        self.turn()
        self.files[request.id] = bytes_of(request)

    def withdraw(self, request_id: str) -> None:
        if self._dead or (self.world.faults and self.world.chance.random() < self.world.rate):
            return
        self.files.pop(request_id, None)
        self.answers.pop(request_id, None)

    def requests(self) -> Sequence[Request]:
        self.turn()
        found = sorted((request_of(body) for body in self.files.values()), key=lambda each: each[0])
        self.world.__dict__["most"] = max(self.world.__dict__.get("most", 0), len(found))
        return [request for _, request in found]

    def reply(self, answer: Answer) -> None:
        self.turn()
        if not self.world.faults or self.world.chance.random() >= self.world.rate:
            self.answers[answer.id] = answer
        self.files.pop(answer.id, None)

    def answer(self, request_id: str) -> Answer | None:
        self.turn()
        return self.answers.get(request_id)


class SharedDeltaTable(ModelDeltaTable):
    """A DeltaTable that shares its commits with the schedule's other writers."""

    @property
    def _store(self) -> Any:
        return self._given

    @_store.setter
    def _store(self, store: Any) -> None:
        ModelDeltaTable._store.fset(self, store)  # type: ignore[attr-defined]
        if isinstance(store, ModelStore):
            world = store.world
            self._combiner = Combiner(ModelFolder(world, store.turn), "model")
            self._combiner.clock = lambda: world.turns * SECONDS_A_TURN
            self._combiner.pause = lambda _: store.turn()


def two_of_a_shard(
    requests: Sequence[Request], table: str, position: Callable[[Any], Any]
) -> tuple[list[Request], list[Answer]]:
    """Spoiled: all requests that continue from the position, two of a shard too."""
    chosen, answers = group.choose(requests, table, position)
    again = {answer.id for answer in answers if answer.outcome is group.Outcome.AGAIN}
    chosen += [request for request in requests if request.id in again]
    return chosen, [answer for answer in answers if answer.id not in again]


def not_compared(
    requests: Sequence[Request], table: str, position: Callable[[Any], Any]
) -> tuple[list[Request], list[Answer]]:
    """Spoiled: one request a shard, wherever it continues from."""
    shards = {request.shard: request for request in reversed(requests)}
    chosen = list(shards.values())
    return chosen, [Answer(each.id, group.Outcome.AGAIN) for each in requests if each not in chosen]
