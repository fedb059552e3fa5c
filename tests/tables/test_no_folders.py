"""Something else in the place of a table's folder: named by everybody who looks there, and never taken for absence."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delta_table_helpers import delta_posix
from delta_table_helpers import written as delta_written
from fastkcl import Position
from fastkcl.cli.main import cli
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import Shard, SinkError, storage
from fastkcl.tables.base import RECOVERY
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import find_orphans
from sink_helpers import SHARD, FakeSession, rows
from table_helpers import arrived, as_they_are, posix_place

KINDS: dict[str, Callable[[Path], Any]] = {
    "a file": Path.touch,
    "a link that leads in a circle": lambda path: path.symlink_to(path.name),
    "a link that leads nowhere": lambda path: path.symlink_to("nowhere"),
}
SESSION: Any = FakeSession()
DAY, DATA, NAMES = "date=2026-11-22", "stream=clicks/shard=shardId-000000000000", "clicks/shardId-000000000000"
PLACES = {
    "ParquetTable": ("_fastkcl", "_fastkcl/table", "stream=clicks", DATA, f"{DATA}/{DAY}", "_fastkcl/given_up"),
    "DeltaTable": ("_delta_log", DAY, "_given_up", "_given_up/clicks"),
    "ParquetSink": ("_commits", "_commits/clicks", f"_commits/{NAMES}", "_staging", "stream=clicks", DATA, "_given_up"),
    "DeltaSink": ("_delta_log", "_given_up", DATA),
}


def opened(form: str, folder: Path) -> tuple[Any, Callable[[], Any]]:
    """A table with a shard, opened; and its next write."""
    url = str(folder / "table")
    if form.endswith("Table"):
        place = posix_place(folder) if form == "ParquetTable" else delta_posix(folder)
        table: Any = place.table()
        return table, lambda: table.append(arrived(range(4, 7)), as_they_are)
    sink: Any = ParquetSink(url) if form == "ParquetSink" else DeltaSink(url)
    return sink, lambda: sink.write(rows(4, 6), SESSION)


def made(form: str, folder: Path) -> None:
    """A table with a commit, and a note of records given up."""
    if form == "DeltaTable":
        delta_written(delta_posix(folder), (1, 3))
    table, _ = opened(form, folder)
    table.open(SHARD)
    if form == "ParquetTable":
        table.append(arrived(range(1, 4)), as_they_are)
    elif form != "DeltaTable":
        table.write(rows(1, 3), SESSION)
    table.give_up(Position("9", 0))


@pytest.mark.parametrize("kind", ["a file", "a link that leads in a circle"])
@pytest.mark.parametrize(("form", "name"), [(form, name) for form, names in PLACES.items() for name in names])
def test_each_caller_names_it(tmp_path: Path, form: str, name: str, kind: str) -> None:
    """A writer, who is refused or goes on; inspection, and the look for orphans. None of them raises an OSError."""
    made(form, tmp_path)
    root = tmp_path / "table"
    shutil.rmtree(root / name, ignore_errors=True)
    KINDS[kind](root / name)
    said = []

    def look(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except SinkError as error:
            said.append(str(error))
            return None

    table, write = opened(form, tmp_path)
    look(lambda: table.open(SHARD))
    if not said:
        look(table.given_up)
        look(write)
    assert said
    assert all("in the place of a f" in each and "recovery.md" in each for each in said), said
    state = look(lambda: inspect_table(root))
    assert state is None or not state.ok
    look(lambda: find_orphans(str(root)))
    shown = CliRunner().invoke(cli, ["sink", "inspect", str(root)])
    assert shown.exit_code in (1, 2), shown.output
    assert shown.exception is None or isinstance(shown.exception, SystemExit)


def made_long_ago(path: Path) -> None:
    ago = time.time() - 9 * 86_400
    os.utime(path, (ago, ago))


@pytest.mark.parametrize("name", ["_fastkcl", "_fastkcl/writing"])
@pytest.mark.parametrize("form", ["ParquetTable", "DeltaTable", "DeltaSink"])
def test_nothing_is_removed_through_a_link(tmp_path: Path, form: str, name: str) -> None:
    """Writers remove what lies in `_fastkcl/writing`: there, and nowhere else."""
    made(form, tmp_path)
    path, elsewhere = tmp_path / "table" / name, tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    witness = (elsewhere if name == "_fastkcl/writing" else elsewhere / "writing") / f".{'0' * 16}"
    witness.write_bytes(b"the only copy")
    made_long_ago(witness)
    told = f"{path}: leads elsewhere, and writers remove files there: make it a folder; {RECOVERY}"
    with pytest.raises(SinkError, match=told):
        opened(form, tmp_path)[0].open(SHARD)
    if form == "ParquetTable":
        with pytest.raises(SinkError, match=told):
            find_orphans(str(tmp_path / "table"))
    state = inspect_table(tmp_path / "table")
    assert not state.ok
    assert told in state.damage
    assert witness.read_bytes() == b"the only copy"


@pytest.mark.parametrize("form", ["ParquetTable", "DeltaTable"])
def test_among_unfinished_files_only_those_of_writers_are_removed(tmp_path: Path, form: str) -> None:
    made(form, tmp_path)
    aside = tmp_path / "table" / "_fastkcl" / "writing"
    dead, young, link, folder, fifo = (aside / f".{digit * 16}" for digit in "01234")
    others = [aside / name for name in ("thesis.tex", ".hidden", f"{'0' * 16}", f".{'0' * 15}", f".{'0' * 16}.parquet")]
    for file in (dead, young, *others):
        file.write_bytes(b"12")
    (tmp_path / "elsewhere").write_bytes(b"the only copy")
    link.symlink_to(tmp_path / "elsewhere")
    folder.mkdir()
    (aside / "copy").mkdir()
    os.mkfifo(fifo)
    made_long_ago(tmp_path / "elsewhere")
    for path in (dead, folder, aside / "copy", fifo, *others):
        made_long_ago(path)
    if form == "ParquetTable":
        assert [each.key for each in find_orphans(str(tmp_path / "table")).files] == [f"_fastkcl/writing/{dead.name}"]
    table, write = opened(form, tmp_path)
    table.open(SHARD)
    write()
    assert sorted(aside.iterdir()) == sorted([young, link, folder, fifo, aside / "copy", *others])
    assert (tmp_path / "elsewhere").read_bytes() == b"the only copy"
    assert inspect_table(tmp_path / "table").ok


@pytest.mark.parametrize("name", ["stream=clicks", DATA, f"{DATA}/{DAY}"])
def test_inspection_shows_a_link_that_leads_nowhere(tmp_path: Path, name: str) -> None:
    made("ParquetTable", tmp_path)
    shutil.rmtree(tmp_path / "table" / name)
    KINDS["a link that leads nowhere"](tmp_path / "table" / name)
    assert not inspect_table(tmp_path / "table").ok


@pytest.mark.parametrize("kind", ["a file", "a link that leads in a circle"])
@pytest.mark.parametrize("call", [storage.names, storage.status, storage.file_status, storage.read])
def test_the_folder_is_named_that_is_none(tmp_path: Path, call: Callable[[Path], object], kind: str) -> None:
    KINDS[kind](tmp_path / "a")
    with pytest.raises(SinkError, match=f"{tmp_path}/a: {kind} is in the place of a folder: move it away") as raised:
        call(tmp_path / "a" / "b" / "c")
    assert "recovery.md" in str(raised.value)


def test_a_folder_is_not_absent_that_is_a_link_to_nowhere(tmp_path: Path) -> None:
    """As where a file system is not mounted."""
    KINDS["a link that leads nowhere"](tmp_path / "a")
    with pytest.raises(SinkError, match=f"{tmp_path}/a: a link that leads nowhere is in the place of a folder"):
        storage.names(tmp_path / "a")


@pytest.mark.parametrize("form", PLACES)
def test_a_name_that_no_folder_can_have(tmp_path: Path, form: str) -> None:
    """It is refused at once: the error of a file system would be an outage, and tried again for a day."""
    table, _ = opened(form, tmp_path)
    for shard in (Shard("\u00fc" * 100, "s"), Shard("s", "x" * 249)):
        with pytest.raises(ValueError, match=rf"{form}: the name .* bytes as a folder is spelled, and may have 248"):
            table.open(shard)
    with pytest.raises(ValueError, match=r"'\\ud800' is no name: half of a pair of surrogates"):
        table.open(Shard("\ud800", "s"))
    assert table.open(Shard("1" * 128, "x" * 128)) is None
