"""The model of tests/support/chain_model.py under a DeltaTable: three that believe they own a shard, requests astray.

Readers see the log's files: one that no entry names does not count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import pytest
from chain_model import ModelStore, World
from fastkcl.tables import DeltaTable
from fastkcl.tables.delta import table as delta_table
from fastkcl.tables.delta.head import DeltaHead
from fastkcl.tables.delta.log import entry_key
from fastkcl.tables.store import Entry


class ModelLog(ModelStore):
    """A store with the verbs that a log needs."""

    def read(self, key: str, most: int) -> bytes | None:
        self._read()
        return self.world.objects.get(key)

    def files(self, folder: str, after: str = "") -> list[Entry]:
        return [each for each in super().files(folder) if each.key.rpartition("/")[2] > after]

    def sizes(self, keys: Sequence[str]) -> list[int | None]:
        self._read()
        found = map(self.world.objects.get, keys)
        return [None if body is None else len(body) for body in found]

    def settle(self, key: str, *others: str) -> None:
        pass


class ModelDeltaTable(DeltaTable):
    """A DeltaTable that is given its store."""

    _given: Any

    @property
    def _store(self) -> Any:
        return self._given

    @_store.setter
    def _store(self, store: Any) -> None:
        self._given = store
        if isinstance(store, ModelStore):
            self._given = ModelLog(store.world, store.turn)
            self._head = DeltaHead(self._given)
            self._combiner = None  # each alone; group_model has them together


class HeadAfterTheComparison(ModelDeltaTable):
    """Spoiled: the entry follows a head that is newer than the position that was compared."""

    def _commit(self, staged: Any, snapshot: Any) -> bool:
        self._head.move_on()
        return super()._commit(staged, snapshot)


class Rebases(ModelDeltaTable):
    """Spoiled: what is staged is committed wherever the position is now."""

    def _fits(self, staged: Any) -> bool:
        return True


def visible(world: World) -> list[int]:
    """Numbers that readers see, in order."""
    seen: list[int] = []
    version = 0
    while (text := world.objects.get(entry_key(version))) is not None:
        for line in text.splitlines():
            if (add := json.loads(line).get("add")) is not None:
                seen += json.loads(world.objects[unquote(add["path"])])
        version += 1
    return sorted(seen)


def without_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files be JSON."""
    monkeypatch.setattr(delta_table, "storable", lambda rows: (rows, []))
    monkeypatch.setattr(delta_table, "with_origin", lambda rows, *_: rows)
    monkeypatch.setattr(delta_table, "parquet_bytes", lambda rows, _: json.dumps(rows.numbers).encode())
