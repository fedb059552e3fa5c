"""A ParquetTable whose claim is gone: nobody gives it another id, and the error says how the claim is made again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from fastkcl import Position
from fastkcl.cli.main import cli
from fastkcl.local_aws import LocalAws
from fastkcl.tables import ParquetTable, Shard, SinkError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import find_orphans
from fastkcl.tables.parquet import claim as claim_module
from fastkcl.tables.parquet.claim import CLAIM
from sink_helpers import SHARD
from table_helpers import Place, arrived, as_they_are, posix_place, s3_place

LOST = (
    rf"{CLAIM}: the table's claim is gone, and its files are there \(stream=clicks/shard=.*\): restore it from a copy"
)
OTHER = Shard("clicks", "shardId-000000000001")


@pytest.fixture(params=["posix", "s3"])
def place(request: pytest.FixtureRequest, aws: LocalAws, tmp_path: Path) -> Place:
    return posix_place(tmp_path) if request.param == "posix" else s3_place(aws)


def made(place: Place, **options: Any) -> ParquetTable:
    """A table with two files of rows."""
    table = place.table(**options)
    table.open(SHARD)
    for number in (1, 2):
        table.append(arrived([number]), as_they_are)
    return table


def remove_claim(place: Place, aws: LocalAws) -> None:
    if place.storage is None:
        shutil.rmtree(Path(place.url, "_fastkcl"))
    else:
        place.store.remove(CLAIM)


def lose_metadata(place: Place, aws: LocalAws) -> None:
    """By an upload of a downloaded copy; on a disk the folder's file is lost."""
    if place.storage is None:
        (file,) = Path(place.url, CLAIM).iterdir()
        file.unlink()
    else:
        bucket, _, prefix = place.url.removeprefix("s3://").partition("/")
        aws.client("s3").put_object(Bucket=bucket, Key=f"{prefix}/{CLAIM}", Body=b"")


def follow(command: str, aws: LocalAws) -> None:
    """Do what an error says."""
    if command.startswith("mkdir"):
        subprocess.run(command, shell=True, check=True)  # noqa: S602 - as an operator does
        return
    _, _, _, _, bucket, _, key, _, metadata = shlex.split(command)
    aws.client("s3").put_object(Bucket=bucket, Key=key, Metadata=json.loads(metadata))


@pytest.mark.parametrize("lose", [remove_claim, lose_metadata])
@pytest.mark.parametrize("partition", ["date", "none"])
def test_a_lost_claim_is_named_and_made_again(
    place: Place, aws: LocalAws, partition: str, lose: Callable[[Place, LocalAws], None]
) -> None:
    table = made(place, partition=partition)
    before = place.store.claimed(CLAIM)
    files = place.files()
    lose(place, aws)
    for shard in (SHARD, OTHER):  # also one that the table has nothing of
        with pytest.raises(SinkError, match=LOST) as raised:
            place.table(partition=partition).open(shard)
    with pytest.raises(SinkError, match="is another table now|says ''"):
        table.append(arrived([3]), as_they_are)
    with pytest.raises(SinkError, match=LOST) as seen:
        inspect_table(place.url, place.storage)
    assert str(seen.value) == str(raised.value)
    assert not place.store.claimed(CLAIM)
    assert place.files() == files
    follow(str(raised.value).partition("(the remedy is in docs/recovery.md): ")[2], aws)
    assert place.store.claimed(CLAIM) == before
    again = place.table(partition=partition)
    assert again.open(SHARD) == Position("2", 0)
    again.append(arrived([3]), as_they_are)
    assert place.numbers() == [1, 2, 3]
    assert inspect_table(place.url, place.storage).ok


def test_orphans_and_inspect_say_the_same(place: Place, aws: LocalAws) -> None:
    made(place)
    remove_claim(place, aws)
    with pytest.raises(SinkError, match=LOST):
        find_orphans(place.url, place.storage)
    if place.storage is None:
        done = CliRunner().invoke(cli, ["sink", "inspect", place.url])
        assert done.exit_code == 2
        assert "the table's claim is gone" in done.output


def test_a_file_that_does_not_tell_the_table(tmp_path: Path) -> None:
    """A Delta table's that has lost its log, say."""
    place = posix_place(tmp_path)
    folder = Path(place.url, "stream=clicks/shard=shardId-000000000000/date=2026-11-22")
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), folder / f"after-start-{'0' * 24}.parquet")
    with pytest.raises(SinkError, match=f"{LOST}. This file does not tell the table's id: if it is no ParquetTable's"):
        place.table().open(SHARD)


def test_files_of_other_names_are_no_table(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    for name in (
        "stream=clicks/part-0.parquet",
        "date=2026-11-22/after-000.parquet",
        "stream=clicks/shard=a/x/y/after-0",
    ):
        Path(place.url, name).parent.mkdir(parents=True, exist_ok=True)
        Path(place.url, name).write_bytes(b"PAR1")
    assert place.table().open(SHARD) is None


def test_who_makes_the_table_at_the_same_time_is_joined(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claim comes after the look for one, and its first file before the look for files."""
    look = claim_module._newest_files

    def later(store: Any) -> Iterator[str]:
        monkeypatch.setattr(claim_module, "_newest_files", look)
        made(place)
        return look(store)

    monkeypatch.setattr(claim_module, "_newest_files", later)
    assert place.table().open(SHARD) == Position("2", 0)


def restored_over_a_new_table(tmp_path: Path) -> tuple[Path, list[Path]]:
    """A copy over a table that a child has begun meanwhile: the table, and the claims, that of its files first."""
    old, new = posix_place(tmp_path / "old"), posix_place(tmp_path / "new")
    made(old)
    new.table().open(SHARD)
    root = Path(new.url)
    shutil.copytree(old.url, root, dirs_exist_ok=True)
    (right,) = (path.name for path in Path(old.url, CLAIM).iterdir())
    return root, sorted((root / CLAIM).iterdir(), key=lambda path: path.name != right)


def test_two_claims(tmp_path: Path, aws: LocalAws) -> None:
    """The error's remedy leads to the command."""
    root, _ = restored_over_a_new_table(tmp_path)
    with pytest.raises(SinkError, match=r"must have one file, and has 2: remove this folder\. The next error says"):
        ParquetTable(root).open(SHARD)
    shutil.rmtree(root / CLAIM)
    with pytest.raises(SinkError, match=LOST) as raised:
        ParquetTable(root).open(SHARD)
    follow(str(raised.value).partition("recovery.md): ")[2], aws)
    assert ParquetTable(root).open(SHARD) == Position("2", 0)
    assert inspect_table(str(root)).ok


def test_the_claim_of_another_table(tmp_path: Path, aws: LocalAws) -> None:
    """A shard without files would be written under its id, beside the others."""
    root, (right, _) = restored_over_a_new_table(tmp_path)
    right.unlink()
    with pytest.raises(SinkError, match="the claim of another table, .* Remove the claim, and make it again") as raised:
        ParquetTable(root).open(OTHER)
    shutil.rmtree(root / CLAIM)
    follow(str(raised.value).partition("recovery.md): ")[2], aws)
    assert ParquetTable(root).open(OTHER) is None
    assert ParquetTable(root).open(SHARD) == Position("2", 0)


def with_a_shard_of_another(folder: Path) -> Place:
    """A table of one shard, beside which another table's shard was copied; its name comes first."""
    this, other = posix_place(folder / "this"), posix_place(folder / "other")
    table = ParquetTable(this.url)
    table.open(OTHER)
    table.append(arrived([1]), as_they_are)
    made(other)
    shutil.copytree(Path(other.url, "stream=clicks"), Path(this.url, "stream=clicks"), dirs_exist_ok=True)
    return this


def test_a_shard_of_another_table_beside_this_ones(tmp_path: Path) -> None:
    """It is named by itself; the claim is right."""
    this = with_a_shard_of_another(tmp_path)
    assert ParquetTable(this.url).open(Shard("clicks", "shardId-000000000002")) is None
    with pytest.raises(SinkError, match="not written by this table's writers, or damaged|of another table"):
        ParquetTable(this.url).open(SHARD)


def test_a_lost_claim_of_files_of_several_tables(tmp_path: Path, aws: LocalAws) -> None:
    """The first of them by name is not the one that the others are of."""
    this = with_a_shard_of_another(tmp_path)
    remove_claim(this, aws)
    for shard in (SHARD, OTHER):
        with pytest.raises(SinkError, match="gone, .* of several tables: .*shardId-000000000000.*shardId-000000000001"):
            ParquetTable(this.url).open(shard)
    shutil.rmtree(Path(this.url, "stream=clicks", f"shard={SHARD.shard_id}"))
    with pytest.raises(SinkError, match=LOST) as raised:
        ParquetTable(this.url).open(OTHER)
    follow(str(raised.value).partition("recovery.md): ")[2], aws)
    assert ParquetTable(this.url).open(OTHER) == Position("1", 0)


def test_what_another_shard_has_in_the_place_of_a_file_is_its_own_affair(tmp_path: Path) -> None:
    made(place := posix_place(tmp_path))
    folder = Path(place.files()[0]).parent
    os.mkfifo(Path(place.url, folder, f"after-9.0-{'0' * 24}.parquet"))
    assert ParquetTable(place.url).open(OTHER) is None


def test_a_file_of_the_finder_is_no_claim(tmp_path: Path) -> None:
    made(place := posix_place(tmp_path))
    Path(place.url, CLAIM, ".DS_Store").touch()
    assert ParquetTable(place.url).open(SHARD) == Position("2", 0)
    assert inspect_table(place.url).ok
