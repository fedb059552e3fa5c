"""Durable at a power failure: the order in which both sinks have the file system keep files and folders.

A file's content is kept by fsync of the file, its name by fsync of the folder. Nobody pulls a plug here: the calls are
written down, and searched for the files that a commit names before it is made, and for the commit itself after that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import storage
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
        for name in ("make", "link", "rename"):
            self._note_paths(monkeypatch, name)
        stage = FakeWriter.parquet

        def staged(writer: FakeWriter, url: str) -> None:
            stage(writer, url)
            folder = Path(url.removeprefix("file://"))
            self.note("stage", folder)
            for file in sorted(folder.glob("*.parquet")):
                self.note("stage", file)

        monkeypatch.setattr(FakeWriter, "parquet", staged)

    def _note_paths(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        function = getattr(storage, name)

        def noted(*paths: Path) -> None:
            function(*paths)
            self.note(name, paths[-1])

        monkeypatch.setattr(storage, name, noted)

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
    commits = "_commits/" if sink is ParquetSink else "_delta_log/"
    for first in (1, 11):
        begun = len(calls.list)
        opened.write(rows(first, first + 9), SESSION)
        made = [path for what, path in calls.list[begun:] if what == "link" and path.startswith(commits)]
        if sink is DeltaSink and first == 1:
            assert made.pop(0) == "_delta_log/00000000000000000000.json"
        (commit,) = made
        at = calls.list.index(("link", commit))
        staged = [path for what, path in calls.list[begun:] if what == "stage"]
        assert len(staged) == 3  # a folder and two files
        for path in staged:
            assert calls.kept_between(calls.list.index(("stage", path)), at, path), path
        assert calls.kept_between(begun, at, parent(staged[0]))  # the name of the staging folder
        assert calls.kept_between(at, len(calls.list), parent(commit))  # the commit's name
        # The commit's content, under its temporary name.
        assert any(calls.kept_between(begun, at, path) for path in calls.paths("keep") if "/." in path)
        if sink is ParquetSink:
            published = [path for what, path in calls.list[at + 1 :] if what == "link"]
            assert len(published) == 2
            last = calls.list.index(("link", published[-1]))
            assert calls.kept_between(last, len(calls.list), parent(published[-1]))
    for index, (what, path) in enumerate(calls.list):  # folders on the way
        if what == "make" and path != ".":
            assert calls.kept_between(index, len(calls.list), parent(path)), path
