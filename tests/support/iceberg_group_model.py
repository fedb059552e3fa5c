"""The model of chain_model under IcebergTables that share their commits: three that believe they own a shard.

The catalog is a line of versions. A commit creates the next one after the version that it was made on, exclusively, so
that its request goes astray as any creation of the model does. The append loop, the choice of requests, and the meeting
are the product's; the work of pyiceberg is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import pytest
from chain_model import SHARD, ModelStore, Rows, World
from fastkcl import Position
from fastkcl.tables import IcebergTable
from fastkcl.tables.base import Shard
from fastkcl.tables.combiner import Combiner
from fastkcl.tables.folders import shard_folders
from fastkcl.tables.group import Request
from fastkcl.tables.iceberg.group import IcebergCommitter
from fastkcl.tables.iceberg.state import POSITION, Seen, position_value
from group_model import SECONDS_A_TURN, ModelFolder

_PROPERTY: Final = f"{POSITION}{shard_folders(SHARD)}"


def versions(world: World) -> list[dict[str, Any]]:
    """What each commit has left, the newest last."""
    return [json.loads(world.objects[key]) for key in sorted(world.objects)]


def visible(world: World) -> list[int]:
    """Numbers that readers see, in order."""
    return sorted(number for version in versions(world) for number in version["rows"])


class ModelHead:
    """The verbs of `IcebergHead`.

    Args:
        store: of one writer.
    """

    commit_seconds = 0.01

    def __init__(self, store: ModelStore) -> None:
        self._store = store
        self.seen: Seen | None = None

    @property
    def table(self) -> object:
        return self

    def load(self) -> Seen:
        self._store.claimed("")  # a request that can fail
        found = versions(self._store.world)
        count = len(found)
        properties = {} if not found else {_PROPERTY: found[-1]["position"]}
        parents = {number: number - 1 or None for number in range(1, count + 1)}
        self.seen = Seen("db.clicks", "u", properties, count or None, parents)
        return self.seen

    def commit(
        self, positions: Mapping[Shard, Position], files: Sequence[int], _about: object, _evolve: object = None
    ) -> bool:
        assert self.seen is not None
        number = (self.seen.main or 0) + 1
        body = {"position": position_value(positions[SHARD], number), "rows": list(files)}
        if not self._store.create(f"{number:06}", json.dumps(body).encode()):
            return False
        parents = {**self.seen.parents, number: self.seen.main}
        self.seen = Seen("db.clicks", "u", {_PROPERTY: str(body["position"])}, number, parents)
        return True


class LoadsInTheCommit(ModelHead):
    """Spoiled: the commit is made on metadata that is newer than the positions that were compared."""

    def commit(self, *arguments: Any) -> bool:
        self.load()
        return super().commit(*arguments)


class SharedIcebergTable(IcebergTable):
    """An IcebergTable without pyiceberg, whose catalog and whose meeting are the schedule's."""

    head_kind: Callable[[ModelStore], ModelHead] = ModelHead

    def __init__(self, _url: str) -> None:
        super().__init__("db.clicks", {"type": "sql", "uri": "sqlite://"})

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_store":
            world: World = value.world
            self._model = self.head_kind(value)
            combiner = Combiner(ModelFolder(world, value.turn), "model")
            combiner.clock = lambda: world.turns * SECONDS_A_TURN
            combiner.pause = lambda _: value.turn()
            self._model_combiner = combiner
        object.__setattr__(self, name, value)

    @property
    def _head(self) -> Any:
        return self._model

    @property
    def _combiner(self) -> Combiner:
        return self._model_combiner

    def _storable(self, table: Any) -> Any:
        return SimpleNamespace(schema=None, numbers=table.numbers)

    def _columns(self, _schema: Any) -> Any:
        return 0, ()

    def _lacks(self, _schema: Any) -> list[str]:
        return []

    def _stage(self, rows: Any, table: Any, _columns: Any) -> Request:
        world: World = self._model._store.world
        self._model._store.turn()
        number = world.__dict__["staged"] = world.__dict__.get("staged", 0) + 1
        assert isinstance(rows, Rows)
        return Request(f"{number:024x}", "u", SHARD, self._position, rows.last_position, rows.num_rows, table.numbers)


def without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files of a request be its numbers."""

    def files(_: IcebergCommitter, requests: Sequence[Request]) -> Any:
        return {each.id: each.files for each in requests}, []

    monkeypatch.setattr(IcebergCommitter, "_files", files)
    monkeypatch.setattr(IcebergCommitter, "gone", lambda *_: [])
