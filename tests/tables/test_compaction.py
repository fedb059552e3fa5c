"""Compaction of a Delta table beside programs that clean up its log."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import delta_posix
from fastkcl.tables import compaction
from fastkcl.tables.compaction import compact_delta
from fastkcl.tables.delta.log import LOG
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import StoreError
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are

TODAY = date(2027, 1, 1)


@pytest.mark.parametrize("times", [1, 100])
def test_entries_that_go_between_the_look_and_the_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    place = delta_posix(tmp_path)
    table = place.table()
    table.open(SHARD)
    for number in range(8):
        table.append(arrived([number]), as_they_are)
    place.handle().create_checkpoint()
    looks = 0
    real = PosixStore.files

    def files(store: PosixStore, folder: str, after: str = "") -> Any:
        """What a clean-up removes, and what it seems to remove again and again."""
        nonlocal looks
        found = real(store, folder, after)
        if folder == LOG and compacts:
            looks += 1
            Path(place.url, LOG, f"{min(looks, times) - 1:020d}.json").unlink(missing_ok=True)
        return found

    compacts = False
    monkeypatch.setattr(PosixStore, "files", files)
    keep = compaction._Kept._keep_log

    def keep_log(kept: Any, handle: Any) -> None:
        nonlocal compacts
        compacts = True
        try:
            keep(kept, handle)
        finally:
            compacts = False

    monkeypatch.setattr(compaction._Kept, "_keep_log", keep_log)
    if times == 1:
        (done,) = compact_delta(place.url, today=TODAY)
        assert done.removed == 8
        assert inspect_table(place.url).ok
    else:
        monkeypatch.setattr(compaction, "_PAUSE", 0)
        with pytest.raises(StoreError, match="files go while they are synced: is it cleaned up"):
            compact_delta(place.url, today=TODAY)
        assert looks == compaction._LOOKS
