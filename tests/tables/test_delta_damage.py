"""`fastkcl sink inspect` names damage of a Delta table's log by the same words on a disk and on S3.

The table has the entries 0 to 8, and checkpoints of the versions 3 and 6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from delta_table_helpers import DeltaPlace, calls_of, delta_posix, delta_s3, without_digest, written
from deltalake.exceptions import DeltaError
from fastkcl import Position
from fastkcl.cli.main import cli
from fastkcl.local_aws import LocalAws
from fastkcl.tables.base import SinkError
from fastkcl.tables.delta import checkpoint_damage
from fastkcl.tables.delta.inspection import inspect_delta_objects
from fastkcl.tables.delta.log import KEPT, LAST_CHECKPOINT, LOG, LOST, entry_key
from fastkcl.tables.object_store import ObjectStore
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are

OLD, NEW = (f"{LOG}/{version:020d}.checkpoint.parquet" for version in (3, 6))
PARTS: Final = [f"{LOG}/{6:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
LAST: Final = f"{LOG}/{LAST_CHECKPOINT}"
IN_PARTS: Final = b'{"version": 6, "size": 9, "parts": 2}'
JSON: Final = "damaged, its JSON is cut off or overwritten"
DAY: Final = "date=????-??-??"
MEMBERS: Final = '"partitionValues":{},"size":1,"modificationTime":1,"dataChange":true'
METADATA: Final = '"format": {"provider": "x"}, "configuration": {}, "id": "x", "partitionColumns": []'
MAGIC: Final = "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file."

Content = dict[str, bytes]
Damage = Callable[[Content], object]


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """The files of a sound table."""
    root = tmp_path_factory.mktemp("sound")
    place = delta_posix(root)
    for first in (1, 4, 7):
        written(place, *((number, number) for number in range(first, min(first + 3, 9))))
        if first < 7:
            place.handle().create_checkpoint()
    files = [path for path in Path(place.url).rglob("*") if path.is_file()]
    return {str(path.relative_to(place.url)): path.read_bytes() for path in files}


def filled(place: DeltaPlace, content: Content) -> DeltaPlace:
    for key, body in content.items():
        place.store.replace(key, body)
    return place


def inspect(place: DeltaPlace) -> tuple[int, str]:
    """Exit code and text, of a table at ``URL``."""
    command = ["sink", "inspect", place.url]
    if place.storage is not None:
        command += ["--endpoint-url", str(place.storage.endpoint)]
    environment = {name: value for name, value in place.environment.items() if name.startswith("AWS_")}
    done = CliRunner(env=environment).invoke(cli, command)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output.replace(place.url, "URL")


def entry(version: int, change: Callable[[bytes], bytes]) -> Damage:
    """Change the entry of a version, which has no digest."""
    return lambda content: content.update({entry_key(version): change(without_digest(content[entry_key(version)]))})


def line(version: int, text: str) -> Damage:
    """Add a second line to the entry of a version."""
    return entry(version, lambda body: body.replace(b"\n", f"\n{text}\n".encode(), 1))


def file(key: str, change: Callable[[bytes], bytes] | bytes | None) -> Damage:
    """Change a file of the log; None removes it."""

    def damage(content: Content) -> None:
        body = content.pop(key, b"")
        if change is not None:
            content[key] = change if isinstance(change, bytes) else change(body)

    return damage


def parts(*bodies: bytes | None) -> Damage:
    """The newest checkpoint in two parts, which have this content; None for that of the whole one, b"-" for no part."""

    def damage(content: Content) -> None:
        whole = content.pop(NEW)
        content[LAST] = IN_PARTS
        for key, body in zip(PARTS, bodies, strict=True):
            if body != b"-":
                content[key] = whole if body is None else body

    return damage


def without(beginning: bytes, body: bytes) -> bytes:
    """An entry's content without the lines that begin so."""
    return b"".join(each for each in body.splitlines(keepends=True) if not each.startswith(beginning))


def in_entry(version: int, why: str, consequence: str = LOST) -> str:
    return f"{entry_key(version)}: {why}: {consequence}"


def in_checkpoint(key: str, why: str) -> str:
    return f"{key}: a damaged checkpoint: {why}"


def named(key: str) -> str:
    return in_checkpoint(LAST, f"it names {key.removeprefix(f'{LOG}/')}, which is damaged or missing")


def overwritten(body: bytes) -> bytes:
    return body[:400] + bytes(200) + body[600:]


def copied(version: int, of: int) -> str:
    return f"{entry_key(version)}: damaged, it is a copy of {entry_key(of)}: its own content is lost"


COPY: Final = (
    "continues clicks, shardId-000000000000 from {}.0, and the entries before it end at {}.0: it is a copy of another"
    " entry"
)


def doubted(why: str) -> str:
    return f"{LOG}: the newest checkpoint is damaged, or the log before it: {why}"


def rows_of_newest(change: Callable[[list[dict[str, Any]]], object]) -> Damage:
    """Change the actions of the newest checkpoint."""

    def damage(body: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(body))
        rows = table.to_pylist()
        change(rows)
        out = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(rows, table.schema), out)
        return out.getvalue().to_pybytes()

    return file(NEW, damage)


def member(kind: str, name: str, change: Callable[[Any], Any]) -> Damage:
    """Change a member of the newest checkpoint's actions of a kind."""

    def each(rows: list[dict[str, Any]]) -> None:
        for action in filter(None, (row[kind] for row in rows)):
            action[name] = change(action[name])

    return rows_of_newest(each)


def without_oldest_file(rows: list[dict[str, Any]]) -> None:
    (row,) = [row for row in rows if row["add"] and "/after-start-" in row["add"]["path"]]
    rows.remove(row)


DAMAGES: Final[dict[str, tuple[Damage, Sequence[str]]]] = {
    "nothing": (lambda content: None, []),
    "a newest entry of 0 bytes": (entry(8, lambda body: b""), [in_entry(8, "damaged, 0 bytes")]),
    "an entry of 0 bytes": (entry(7, lambda body: b""), [in_entry(7, "damaged, 0 bytes")]),
    "an old entry of 0 bytes": (entry(2, lambda body: b""), [in_entry(2, "damaged, 0 bytes", KEPT)]),
    "an entry that is cut off": (entry(8, lambda body: body[: len(body) // 2]), [in_entry(8, JSON)]),
    "an entry of nothing": (entry(8, lambda body: b"{}\n"), [in_entry(8, "damaged, it has no action")]),
    "an old entry of nothing": (entry(2, lambda body: b"{}\n"), [in_entry(2, "damaged, it has no action", KEPT)]),
    "a page of HTML": (entry(7, lambda body: b"{html}\n"), [in_entry(7, f"{JSON} (line 1)")]),
    "an overwritten line": (line(7, "{garbage}"), [in_entry(7, f"{JSON} (line 2)")]),
    "an overwritten line of an old one": (line(2, "{garbage}"), [in_entry(2, f"{JSON} (line 2)", KEPT)]),
    "two actions in a line": (
        entry(7, lambda body: body.replace(b"\n{", b" {", 1)),
        [in_entry(7, f"{JSON} (line 1)")],
    ),
    "a BOM": (entry(7, lambda body: b"\xef\xbb\xbf" + body), [in_entry(7, JSON)]),
    "NUL bytes": (entry(8, lambda body: body + bytes(100)), [in_entry(8, JSON)]),
    "another encoding": (
        entry(8, lambda body: body.replace(b"fastkcl:", b"fastkcl\xfc:")),
        [in_entry(8, f"{JSON} (line 1)")],
    ),
    "a value in place of an action": (line(7, '{"add": 5}'), [in_entry(7, "damaged, its add is no object (line 2)")]),
    "a file without a path": (
        line(7, f'{{"add": {{{MEMBERS}}}}}'),
        [in_entry(7, "damaged, its add has no path (line 2)")],
    ),
    "a transaction without a name": (line(7, '{"txn": {}}'), [in_entry(7, "damaged, its txn has no appId (line 2)")]),
    "a schema that cannot be read": (
        line(7, f'{{"metaData": {{{METADATA}, "schemaString": "{{}}"}}}}'),
        [in_entry(7, "damaged, its metaData: KeyError('fields') (line 2)")],
    ),
    "a size that is no number": (
        entry(7, lambda body: re.sub(rb'"size": [0-9]+', b'"size": "x"', body)),
        [in_entry(7, "damaged, its add has no size (line 2)")],
    ),
    "a size that is none in JSON": (
        entry(7, lambda body: re.sub(rb'"size": [0-9]+', b'"size": NaN', body)),
        [in_entry(7, f"{JSON} (line 2)")],
    ),
    "another size": (
        entry(7, lambda body: re.sub(rb'"size": [0-9]+', b'"size": 5', body)),
        [f"{DAY}/after-6.0-*.parquet: it has * bytes, and the log says 5"],
    ),
    "a vector of another type": (
        entry(7, lambda body: body.replace(b'"dataChange"', b'"deletionVector": 5, "dataChange"')),
        [in_entry(7, "damaged, its add has another deletionVector than readers take (line 2)")],
    ),
    "a date that is none": (
        entry(7, lambda body: re.sub(rb'{"date": "[0-9-]+"}', b'{"date": "yesterday"}', body)),
        [in_entry(7, "damaged, deltalake cannot read it: *yesterday*")],
    ),
    "a column that there is not": (
        entry(7, lambda body: body.replace(b'{"date":', b'{"day":')),
        [in_entry(7, "damaged, deltalake cannot read it: *day*")],
    ),
    "another date": (
        entry(7, lambda body: re.sub(rb'{"date": "[0-9-]+"}', b'{"date": "2001-02-03"}', body)),
        [f"{DAY}/after-6.0-*.parquet: its date in the log is 2001-02-03"],
    ),
    "no date": (
        entry(7, lambda body: re.sub(rb'{"date": "[0-9-]+"}', b"{}", body)),
        [f"{DAY}/after-6.0-*.parquet: its date in the log is None"],
    ),
    "an action of an unknown name": (
        entry(7, lambda body: body.replace(b'{"add":', b'{"aed":')),
        [in_entry(7, "damaged, it has the unknown action 'aed' (line 2)")],
    ),
    "a transaction of an unknown name": (
        entry(7, lambda body: body.replace(b'{"txn":', b'{"txo":', 1)),
        [in_entry(7, "damaged, it has the unknown action 'txo' (line 3)")],
    ),
    "a description of an unknown name": (
        entry(7, lambda body: body.replace(b'{"commitInfo":', b'{"commitInfn":')),
        [in_entry(7, "damaged, it has the unknown action 'commitInfn' (line 1)")],
    ),
    "an old entry without its file": (
        entry(2, lambda body: without(b'{"add":', body)),
        [in_entry(2, "damaged, it names 0 of 1 files", KEPT)],
    ),
    "an entry without its file": (
        entry(7, lambda body: without(b'{"add":', body)),
        [in_entry(7, "damaged, it names 0 of 1 files")],
    ),
    "a missing entry": (file(entry_key(7), None), [f"{entry_key(7)}: missing, and there are later ones"]),
    "a newest checkpoint of 0 bytes": (
        file(NEW, b""),
        [in_checkpoint(NEW, "Parquet file size is 0 bytes"), named(NEW)],
    ),
    "a newest checkpoint of garbage": (file(NEW, b"garbage" * 9), [in_checkpoint(NEW, MAGIC), named(NEW)]),
    "a newest checkpoint that is cut off": (
        file(NEW, lambda body: body[: len(body) // 2]),
        [in_checkpoint(NEW, MAGIC), named(NEW)],
    ),
    "an overwritten page": (
        file(NEW, overwritten),
        [in_checkpoint(NEW, "*"), named(NEW)],
    ),
    "a missing newest checkpoint": (file(NEW, None), [named(NEW)]),
    "an older checkpoint of 0 bytes": (file(OLD, b""), [in_checkpoint(OLD, "Parquet file size is 0 bytes")]),
    "an older checkpoint of garbage": (file(OLD, b"garbage" * 9), [in_checkpoint(OLD, MAGIC)]),
    "an overwritten page of an older one": (
        file(OLD, overwritten),
        [in_checkpoint(OLD, "*")],
    ),
    "an older checkpoint by a newer name": (
        lambda content: content.update({NEW: content[OLD]}),
        [doubted("the position of clicks, shardId-000000000000 is 3.0 in it, and 6.0 in the log before it")],
    ),
    "a last checkpoint of 0 bytes": (file(LAST, b""), [in_checkpoint(LAST, "it names no version")]),
    "a last checkpoint of garbage": (file(LAST, b"garbage"), [in_checkpoint(LAST, "it names no version")]),
    "a last checkpoint of another version": (
        file(LAST, b'{"version": 9, "size": 3}'),
        [named(f"{LOG}/{9:020d}.checkpoint.parquet")],
    ),
    "a checkpoint without a file of the older one": (
        rows_of_newest(without_oldest_file),
        [doubted("it has 5 files, and the log before it 6")],
    ),
    "a checkpoint with another name of a column": (
        member("metaData", "schemaString", lambda text: text.replace('"data"', '"dada"')),
        [doubted("its schemaString is another one than in the log before it")],
    ),
    "a checkpoint without partition columns": (
        member("metaData", "partitionColumns", lambda columns: []),
        [doubted("its partitionColumns is another one than in the log before it")],
    ),
    "a checkpoint with another name of a file": (
        member("add", "path", lambda path: path.replace("after-start", "aftes-start")),
        [
            doubted("some of its 6 files have other names than in the log before it"),
            f"{DAY}/aftes-start-*.parquet: the log names it, and it is missing",
        ],
    ),
    "a checkpoint that deltalake refuses": (
        member("protocol", "minReaderVersion", lambda version: -1),
        [in_checkpoint(NEW, "deltalake cannot read it: *min_reader_version*")],
    ),
    "another name of a file in an old entry": (
        entry(5, lambda body: body.replace(b"after-", b"aftes-")),
        [doubted("it lacks 1 files that the log has, *aftes-*")],
    ),
    "a copy of an older entry in the place of an old one": (
        lambda content: content.update({entry_key(6): content[entry_key(2)]}),
        [copied(6, 2), doubted(f"{entry_key(6)} {COPY.format(1, 5)}")],
    ),
    "a copy of a newer entry in the place of an old one": (
        lambda content: content.update({entry_key(5): content[entry_key(8)]}),
        [copied(8, 5), doubted(f"{entry_key(5)} {COPY.format(7, 4)}")],
    ),
    "a second first entry": (
        lambda content: content.update({entry_key(8): content[entry_key(0)]}),
        ["*: no entry of a Delta log: *it makes the table, and is not its first one*", copied(8, 0)],
    ),
    "a copy of an older entry in the place of a new one": (
        lambda content: content.update({entry_key(8): content[entry_key(7)]}),
        [copied(8, 7)],
    ),
    "another name of a transaction": (
        entry(7, lambda body: body.replace(b'"fastkcl/clicks/', b'"fastkcl/cmicks/', 1)),
        ["*: the position of clicks, shardId-000000000000 in its application transactions is damaged: *"],
    ),
    "a missing part": (parts(None, b"-"), [named(PARTS[1])]),
    "a part of 0 bytes": (
        parts(None, b""),
        [in_checkpoint(PARTS[1], "Parquet file size is 0 bytes"), named(PARTS[1])],
    ),
    "two damages": (
        lambda content: content.update({entry_key(7): b"", OLD: b""}),
        [in_entry(7, "damaged, 0 bytes"), in_checkpoint(OLD, "Parquet file size is 0 bytes")],
    ),
}


BEFORE_ITS_CHECKPOINT: Final = {"a copy of an older entry in the place of a new one"}
"""The daemon's checkpoint lies after the position that such a table has, and the writer stops by that."""


@pytest.mark.parametrize("case", DAMAGES)
def test_damage_has_the_same_name_everywhere(content: Content, tmp_path: Path, aws: LocalAws, case: str) -> None:
    damage, expected = DAMAGES[case]
    damaged = dict(content)
    damage(damaged)
    code, said = inspect(filled(delta_posix(tmp_path), damaged))
    _, _, part = said.partition("Damage of the table as a whole (see docs/recovery.md):\n")
    lines = [each.strip().removeprefix("URL/") for each in part.partition("\n\n")[0].splitlines()]
    assert len(lines) == len(expected), lines
    assert all(map(fnmatchcase, lines, expected)), lines  # pyarrow's words depend on the bytes
    assert code == (1 if expected else 0)
    assert inspect(filled(delta_s3(aws), damaged)) == (code, said)


@pytest.mark.parametrize("case", [case for case in DAMAGES if case not in BEFORE_ITS_CHECKPOINT])
def test_a_writer_loses_no_record_of_a_damaged_table(content: Content, tmp_path: Path, case: str) -> None:
    """It refuses the table and leaves everything as it is; or goes on, and readers have all records, or refuse it."""
    damaged = dict(content)
    DAMAGES[case][0](damaged)
    place = filled(delta_posix(tmp_path), damaged)
    try:
        table = place.table()
        table.open(SHARD)
        table.append(arrived(range(9, 12)), as_they_are)
    except SinkError:
        there = {path.name for path in Path(place.url).rglob("*")}
        assert there >= {Path(key).name for key in damaged}
        return
    try:
        rows = place.handle().to_pyarrow_table()
    except (DeltaError, pa.ArrowException, OSError):
        assert inspect(place)[0] == 1
    else:
        assert sorted(map(int, rows["sequenceNumber"].to_pylist())) == list(range(1, 12))


def test_a_sound_table_is_read_once(content: Content, aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """One list of the log; each entry by itself, and once more those that are compared with the newest checkpoint."""
    store = filled(delta_s3(aws), content).store
    assert isinstance(store, ObjectStore)
    calls = calls_of(store, monkeypatch)
    assert inspect_delta_objects(store).ok
    entries, compared, checkpoints, last, note = 9, 3, 2, 1, 1
    assert (calls.count("files"), calls.count("read")) == (1, entries + compared + checkpoints + last + note)


def test_of_many_checkpoints_the_old_ones_are_read_by_their_ends(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in an older one interests nobody, and all of them can have many gigabytes."""
    monkeypatch.setattr(checkpoint_damage, "WHOLE_BYTES", 0)
    oldest = f"{LOG}/{1:020d}.checkpoint.parquet"
    place = filled(delta_posix(tmp_path), {**content, oldest: overwritten(content[OLD])})
    assert inspect(place)[0] == 0
    place.store.replace(oldest, content[OLD][:-9])
    assert f"URL/{oldest}: a damaged checkpoint" in inspect(place)[1]


CHANGES: Final[dict[str, Callable[[deltalake.DeltaTable], object]]] = {
    "delete": lambda handle: handle.delete("sequenceNumber = '3'"),
    "update": lambda handle: handle.update({"partitionKey": "'x'"}, predicate="sequenceNumber = '3'"),
    "merge": lambda handle: merge(handle).when_matched_update_all().execute(),
    "merge that deletes": lambda handle: merge(handle).when_matched_delete().execute(),
    "overwrite": lambda handle: overwrite(handle, handle.to_pyarrow_table(), None),
    "overwrite a row": lambda handle: overwrite(handle, row(handle), "sequenceNumber = '3'"),
}


def merge(handle: deltalake.DeltaTable) -> deltalake.table.TableMerger:
    same = "new.sequenceNumber = old.sequenceNumber"
    return handle.merge(handle.to_pyarrow_table().slice(2, 3), same, source_alias="new", target_alias="old")


def row(handle: deltalake.DeltaTable) -> pa.Table:
    return handle.to_pyarrow_dataset().to_table(filter=pc.field("sequenceNumber") == "3")


def overwrite(handle: deltalake.DeltaTable, rows: pa.Table, predicate: str | None) -> None:
    deltalake.write_deltalake(handle, rows, mode="overwrite", predicate=predicate)


@pytest.mark.parametrize("change", CHANGES)
def test_an_entry_with_a_change_feed_is_sound(tmp_path: Path, change: str) -> None:
    """deltalake counts the files of the feed among those that it adds, where it deletes and merges."""
    place = delta_posix(tmp_path)
    written(place, (1, 4), (5, 8))
    place.handle().alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    CHANGES[change](place.handle())
    assert inspect(place)[0] == 0
    newest = place.handle().version()
    written(place, (9, 12))
    body = place.store.read(entry_key(newest), 1 << 20)
    assert body is not None
    for beginning in (b'{"add":', b'{"remove":'):
        if (cut := without(beginning, body)) != body:
            place.store.replace(entry_key(newest), cut)
            code, said = inspect(place)
            assert (code, "cut off at the end of a line (it names 0 of " in said) == (1, True), said


def test_an_entry_of_which_no_file_was_made_is_sound(tmp_path: Path) -> None:
    """A transform may drop all rows."""
    place = delta_posix(tmp_path)
    table = written(place, (1, 4))
    table.append(arrived(range(5, 9)), lambda rows: as_they_are(rows).slice(0, 0))
    assert inspect(place)[0] == 0
    assert place.table().open(SHARD) == Position("8", 0)
