"""What survives a power failure: the order in which both sinks have the file system keep files and folders.

A file's content is kept by fsync of the file, its name by fsync of the folder. Nobody pulls a plug here: the calls are
written down, and looked through for what a commit names before it is made, and for the commit itself after that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from sink_helpers import SHARD, FakeSession, FakeWriter, rows

SESSION: Any = FakeSession()


class Calls:
    """What is done to files and folders, in order: (what, path); paths from the table's folder on."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.list: list[tuple[str, str]] = []
        fsync = os.fsync

        def kept(descriptor: int) -> None:
            self.note("keep", Path(f"/proc/self/fd/{descriptor}").readlink())
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", kept)
        for owner, name in ((Path, "mkdir"), (Path, "hardlink_to"), (Path, "rename")):
            self._note_paths(monkeypatch, owner, name)
        stage, commit = FakeWriter.parquet, DeltaTable.create_write_transaction

        def staged(writer: FakeWriter, url: str) -> None:
            stage(writer, url)
            folder = Path(url.removeprefix("file://"))
            self.note("stage", folder)
            for file in sorted(folder.glob("*.parquet")):
                self.note("stage", file)

        def committed(table: DeltaTable, *arguments: Any, **options: Any) -> None:
            commit(table, *arguments, **options)
            self.note("commit", root / "_delta_log" / f"{table.version() + 1:020d}.json")

        monkeypatch.setattr(FakeWriter, "parquet", staged)
        monkeypatch.setattr(DeltaTable, "create_write_transaction", committed)

    def _note_paths(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def noted(path: Path, *arguments: Any, **options: Any) -> Any:
            result = function(path, *arguments, **options)
            self.note(name, Path(arguments[0]) if name == "rename" else path)
            return result

        monkeypatch.setattr(owner, name, noted)

    def note(self, what: str, path: Path) -> None:
        if path == self.root or self.root in path.parents:
            self.list.append((what, str(path.relative_to(self.root))))

    def paths(self, what: str) -> list[str]:
        return [path for done, path in self.list if done == what]

    def kept_between(self, first: int, last: int, path: str) -> bool:
        return ("keep", path) in self.list[first:last]


def parent(path: str) -> str:
    return str(Path(path).parent)


@pytest.mark.parametrize("sink", [ParquetSink, DeltaSink])
def test_files_are_kept_before_their_commit_and_the_commit_before_the_write_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sink: Any
) -> None:
    calls = Calls(tmp_path / "table", monkeypatch)
    opened = sink(tmp_path / "table")
    opened.open(SHARD)
    how = "hardlink_to" if sink is ParquetSink else "commit"
    for first in (1, 11):
        begun = len(calls.list)
        opened.write(rows(first, first + 9), SESSION)
        (commit,) = [path for what, path in calls.list[begun:] if what == how]
        at = calls.list.index((how, commit))
        staged = [path for what, path in calls.list[begun:] if what == "stage"]
        assert len(staged) == 3  # a folder and two files
        for path in staged:
            assert calls.kept_between(calls.list.index(("stage", path)), at, path), path
        assert calls.kept_between(begun, at, parent(staged[0]))  # the name of the staging folder
        assert calls.kept_between(at, len(calls.list), parent(commit))  # the commit's name
        if sink is ParquetSink:  # the commit's content, under its temporary name
            assert any(calls.kept_between(begun, at, path) for path in calls.paths("keep") if "/." in path)
            renamed = [path for what, path in calls.list[at:] if what == "rename"]
            assert len(renamed) == 2
            last = calls.list.index(("rename", renamed[-1]))
            assert calls.kept_between(last, len(calls.list), parent(renamed[-1]))
        else:
            assert calls.kept_between(at, len(calls.list), commit)
    for index, (what, path) in enumerate(calls.list):  # folders on the way, but a staging's own
        if what == "mkdir" and "after-" not in path and path != ".":
            assert calls.kept_between(index, len(calls.list), parent(path)), path
