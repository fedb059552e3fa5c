"""Damaged checkpoints of a Delta table: no position and no file of it is taken for one that never was.

A table of two shards with versions 0 to 9 and checkpoints of 4 and 8 is damaged in one way. Then each shard is where it
was, and readers see each record once; or, where the log does not go back, the table is refused.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from delta_table_helpers import DELTA_TABLE, delta_s3
from fastkcl import Position
from fastkcl.local_aws import LocalAws
from fastkcl.tables import DeltaTable, Shard, SinkError
from fastkcl.tables.delta import checkpoint as checkpoint_module
from fastkcl.tables.delta import checkpoint_content
from fastkcl.tables.delta import sink as delta_module
from fastkcl.tables.delta.actions import lines
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.orphans import find_orphans
from sink_helpers import DELTA, SHARD, FakeSession, Kind

Damage: TypeAlias = Callable[[Path], object]
SESSION: Any = FakeSession()
OTHER = Shard("clicks", "shardId-000000000001")
ENDS = {SHARD: 3, OTHER: 6}
NEWEST, OLDER = f"{8:020d}.checkpoint.parquet", f"{4:020d}.checkpoint.parquet"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delta_module, "_CHECKPOINT_INTERVAL", 4)
        patch.setattr(checkpoint_module, "INTERVAL", 4)
        made = {}
        for name, kind in KINDS.items():
            made[name] = tmp_path_factory.mktemp(name) / "table"
            for shard, end in ENDS.items():
                sink = kind.sink(made[name])
                sink.open(shard)
                for number in range(1, end + 1):
                    sink.write(kind.rows(number, number), SESSION)
    return made


KINDS: dict[str, Kind] = {"sink": DELTA, "table": DELTA_TABLE}


def copied(sound: Path, folder: Path) -> tuple[Path, Path]:
    """A table of its own, and its log."""
    table = folder / "table"
    shutil.copytree(sound, table)
    return table, table / "_delta_log"


# ---- damage -----------------------------------------------------------------------------------------------------


def content(change: Callable[[bytes], bytes]) -> Damage:
    return lambda log: (log / NEWEST).write_bytes(change((log / NEWEST).read_bytes()))


def rows(change: Callable[[pa.Table], pa.Table]) -> Damage:
    return lambda log: pq.write_table(change(pq.read_table(log / NEWEST)), log / NEWEST)


def without(*names: str) -> Damage:
    return rows(lambda table: table.drop_columns(list(names)))


def lacks(kind: str, text: str = "") -> Damage:
    """Without the actions of a kind that have a text in them."""

    def change(table: pa.Table) -> pa.Table:
        actions = table[kind].to_pylist()
        return table.filter(pa.array([action is None or text not in str(action) for action in actions]))

    return rows(change)


def transactions(change: Callable[[dict[str, Any]], dict[str, Any] | int], kind: pa.DataType | None = None) -> Damage:
    def changed(table: pa.Table) -> pa.Table:
        index = table.schema.get_field_index("txn")
        made = [None if each is None else change(each) for each in table["txn"].to_pylist()]
        return table.set_column(index, "txn", pa.array(made, kind or table["txn"].type))

    return rows(changed)


def moved(by: int, where: str = "") -> Damage:
    def change(action: dict[str, Any]) -> dict[str, Any]:
        is_it = "/sequence-number/" in action["appId"] and where in action["appId"]
        return {**action, "version": action["version"] + by * is_it}

    return transactions(change)


def in_parts(change: Callable[[Path, Path], object], parts: int = 2) -> Damage:
    def damage(log: Path) -> None:
        table = pq.read_table(log / NEWEST)
        half = len(table) // 2
        paths = [log / f"{8:020d}.checkpoint.{number:010d}.{2:010d}.parquet" for number in (1, 2)]
        pq.write_table(table.slice(0, half), paths[0])
        pq.write_table(table.slice(half), paths[1])
        (log / NEWEST).unlink()
        (log / "_last_checkpoint").write_text(json.dumps({"version": 8, "size": len(table), "parts": parts}))
        change(*paths)

    return damage


def in_sidecars(change: Callable[[Path], object], kind: str = "parquet") -> Damage:
    """A checkpoint of version 2, whose files are in a sidecar that is changed."""

    def damage(log: Path) -> None:
        table = pq.read_table(log / NEWEST)
        (log / NEWEST).unlink()
        is_file = table["add"].is_valid()
        sidecar = log / "_sidecars" / "files of it.parquet"
        sidecar.parent.mkdir()
        pq.write_table(table.filter(is_file).select(["add"]), sidecar)
        rest = table.filter(pc.invert(is_file))
        named = {"path": "files%20of%20it.parquet", "sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
        path = log / f"{8:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.{kind}"
        if kind == "json":
            actions = [row for batch in rest.to_batches() for row in checkpoint_content._rows(batch)]
            path.write_bytes(lines([{"checkpointMetadata": {"version": 8}}, *actions, {"sidecar": named}]))
        else:
            rows = pa.concat_tables([rest, table.filter(is_file).slice(0, 1)])
            rows = rows.drop_columns([name for name in ("add", "remove", "sidecar") if name in rows.column_names])
            pq.write_table(rows.append_column("sidecar", pa.array([None] * len(rest) + [named])), path)
        last = {"version": 8, "size": 9, "v2Checkpoint": {"path": path.name, "sizeInBytes": 9, "modificationTime": 1}}
        (log / "_last_checkpoint").write_text(json.dumps(last))
        change(sidecar)

    return damage


def beside(
    version: int, change: Callable[[pa.Table], pa.Table] | None = None, *, count: int = 2, is_whole: bool = True
) -> Damage:
    """A checkpoint in parts beside that of one file, each part as a change has it; or without the last part."""

    def damage(log: Path) -> None:
        table = pq.read_table(log / f"{version:020d}.checkpoint.parquet")
        size = len(table) // count + 1
        for number in range(1, count + is_whole):
            part = table.slice((number - 1) * size, size)
            made = part if change is None else change(part)
            pq.write_table(made, log / f"{version:020d}.checkpoint.{number:010d}.{count:010d}.parquet")

    return damage


def flipped(seed: int) -> Damage:
    def change(body: bytes) -> bytes:
        chance, made = random.Random(seed), bytearray(body)
        for _ in range(chance.choice([1, 1, 3, 10])):
            made[chance.randrange(len(made))] ^= 1 << chance.randrange(8)
        return bytes(made)

    return content(change)


def no_files(table: pa.Table) -> pa.Table:
    return table.filter(table["add"].is_null())


def of_sidecar(change: Callable[[pa.Table], pa.Table]) -> Callable[[Path], object]:
    return lambda path: pq.write_table(change(pq.read_table(path)), path)


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def overwritten(path: Path, body: bytes) -> None:
    path.write_bytes(body)


FILES: dict[str, Damage] = {
    "0 bytes": content(lambda body: b""),
    "cut": content(lambda body: body[: len(body) // 2]),
    "cut by one": content(lambda body: body[:-1]),
    "zeros": content(lambda body: bytes(len(body))),
    "zeros within": content(lambda body: body[:100] + bytes(400) + body[500:]),
    "other bytes": content(lambda body: random.Random(1).randbytes(len(body))),
    "text": content(lambda body: b"hello"),
    "magic alone": content(lambda body: b"PAR1PAR1"),
    "gone": lambda log: (log / NEWEST).unlink(),
    "part gone": in_parts(lambda _, second: second.unlink()),
    "part of 0 bytes": in_parts(lambda first, _: overwritten(first, b"")),
    "part cut": in_parts(lambda _, second: overwritten(second, second.read_bytes()[:50])),
    "part of text": in_parts(lambda first, _: overwritten(first, b"hello")),
    "a part of three": in_parts(
        lambda first, _: shutil.copy(first, str(first).replace("1.0000000002", "3.0000000003"))
    ),
    **{f"flipped {seed}": flipped(seed) for seed in (5, 22, 31, 47)},
}
"""What deltalake refuses, or does not notice."""
SIDECARS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "of 0 bytes": bytes_of(lambda body: b""),
    "cut": bytes_of(lambda body: body[: len(body) // 2]),
    "garbled": bytes_of(lambda body: body[:8] + bytes(each ^ 255 for each in body[8:60]) + body[60:]),
    "without rows": of_sidecar(lambda table: table.slice(0, 0)),
    "without a file": of_sidecar(
        lambda table: table.filter(pa.array(["after-3" not in each["path"] for each in table["add"].to_pylist()]))
    ),
    "without columns": lambda path: pq.write_table(pa.table({"x": [1]}), path),
}
ACTIONS: dict[str, Damage] = {
    "no rows": rows(lambda table: table.slice(0, 0)),
    **{f"no column {name}": without(name) for name in ("txn", "add", "metaData", "protocol")},
    "transactions that are numbers": transactions(lambda _: 7, pa.int64()),
    "versions that are texts": transactions(
        lambda each: {"appId": each["appId"], "version": str(each["version"])},
        pa.struct([("appId", pa.string()), ("version", pa.string())]),
    ),
    "no versions": transactions(lambda each: {"appId": each["appId"]}, pa.struct([("appId", pa.string())])),
    "the older one's content": lambda log: shutil.copy(log / OLDER, log / NEWEST),
    "no transactions": lacks("txn"),
    "a shard's transactions gone": lacks("txn", SHARD.shard_id),
    "a part of a position gone": lacks("txn", f"{SHARD.shard_id}/sequence-number"),
    "no sub-sequence number": lacks("txn", f"{SHARD.shard_id}/sub-sequence-number"),
    "positions too early": moved(-1),
    "a position too late": moved(1, OTHER.shard_id),
    "no files": lacks("add"),
    "no files of a commit": lacks("add", "after-3"),
    "a part twice": in_parts(lambda first, second: shutil.copy(first, second)),
    "the other part twice": in_parts(lambda first, second: shutil.copy(second, first)),
    "no column txn in parts": in_parts(
        lambda *paths: [pq.write_table(pq.read_table(path).drop_columns(["txn"]), path) for path in paths]
    ),
}
"""What can be read as Parquet."""
TWO: dict[str, Damage] = {
    "parts without files beside it": beside(8, no_files),
    "no files, and sound parts beside it": lambda log: (beside(8)(log), lacks("add")(log)),
}
"""One of two checkpoints of the version."""
LAST: Sequence[object] = (
    *(b"", b"{", bytes(20), b"8"),
    *({"version": version, "size": 1} for version in (4, 9, 2**63, 10**30, -1, 8.0, True)),
    *({"version": 8, "size": size} for size in (10**30, "x")),
    *({"version": 8, "size": 1, "parts": parts} for parts in (0, 2, 10**6, 10**18)),
    {"version": 8, "size": 1, "v2Checkpoint": {"path": "../../x", "sizeInBytes": 1, "modificationTime": 1}},
    {"version": 8, "size": 1, "checkpointSchema": {"type": "struct", "fields": []}, "checksum": "x"},
)


def named_by(last: object) -> Damage:
    body = last if isinstance(last, bytes) else json.dumps(last).encode()
    return lambda log: (log / "_last_checkpoint").write_bytes(body)


CONTRADICTED = {
    *("the older one's content", "no transactions", "a shard's transactions gone", "positions too early"),
    *("a position too late", "no files", "no files of a commit", "the other part twice", *TWO),
}
"""What can be read, and has something else than the log: an entry may as well be damaged."""


# ---- what comes of it -------------------------------------------------------------------------------------------


# Both writers open a log in one way: a few of a kind are enough for one of them.
@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *(("table", damage) for damage in (*FILES, *ACTIONS, *TWO) if damage not in CONTRADICTED),
        *(("sink", damage) for damage in ("cut", "no column txn", "no column add", "part cut")),
    ],
)
def test_a_damaged_checkpoint_is_done_without(
    tmp_path: Path, sound: dict[str, Path], caplog: pytest.LogCaptureFixture, kind: str, damage: str
) -> None:
    table, log = copied(sound[kind], tmp_path)
    (FILES | ACTIONS | TWO)[damage](log)
    if damage not in FILES:
        assert any("checkpoint" in each for each in inspect_table(table).damage)
    goes_on(KINDS[kind], table)
    if damage not in FILES:
        assert "a damaged checkpoint" in caplog.text
        assert inspect_table(table).ok


@pytest.mark.parametrize(
    ("kind", "damage"), [*(("table", each) for each in sorted(CONTRADICTED)), ("sink", "no files")]
)
def test_a_checkpoint_that_the_log_contradicts_is_left_alone(
    tmp_path: Path, sound: dict[str, Path], kind: str, damage: str
) -> None:
    """Nobody knows which of them is damaged; a person moves the wrong one away."""
    table, log = copied(sound[kind], tmp_path)
    (ACTIONS | TWO)[damage](log)
    refused(KINDS[kind], table)
    for path in log.glob(f"{8:020d}.checkpoint*"):
        path.unlink()
    (log / "_last_checkpoint").unlink()
    goes_on(KINDS[kind], table)
    assert inspect_table(table).ok


def refused(kind: Kind, table: Path) -> None:
    """No writer opens the table, or changes anything."""
    log = table / "_delta_log"
    before = sorted(path.name for path in log.iterdir())
    assert any("checkpoint" in each for each in inspect_table(table).damage)
    for shard in ENDS:
        with pytest.raises(SinkError, match="a damaged checkpoint, or the log before it is"):
            kind.sink(table).open(shard)
    assert sorted(path.name for path in log.iterdir()) == before


@pytest.mark.parametrize("last", LAST, ids=range(len(LAST)))
def test_a_last_checkpoint_that_names_another(tmp_path: Path, sound: dict[str, Path], last: object) -> None:
    table, log = copied(sound["table"], tmp_path)
    named_by(last)(log)
    goes_on(DELTA_TABLE, table)


def goes_on(kind: Kind, table: Path) -> None:
    """Each shard is opened where it was, and writes on; readers see each record once."""
    for shard, end in ENDS.items():
        sink = kind.sink(table)
        assert sink.open(shard) == Position(str(end), 0)
        assert sink.write(kind.rows(end - 1, end + 2), SESSION) == Position(str(end + 2), 0)
    there = sorted((record[1], int(record[2])) for record in kind.records(table).elements())
    assert there == [(shard.shard_id, number) for shard, end in ENDS.items() for number in range(1, end + 3)]


@pytest.mark.parametrize("damage", ACTIONS)
def test_a_damaged_checkpoint_that_the_log_does_not_replace(
    tmp_path: Path, sound: dict[str, Path], damage: str
) -> None:
    table, log = copied(sound["sink"], tmp_path)
    ACTIONS[damage](log)
    for version in range(8):
        (log / f"{version:020d}.json").unlink()
    (log / OLDER).unlink(missing_ok=True)
    before = sorted(path.name for path in log.iterdir())
    for shard, end in ENDS.items():
        found: object
        try:
            found = DELTA.sink(table).open(shard)
        except SinkError as error:
            found = "checkpoint" in str(error)
        assert found in (True, Position(str(end), 0))
    assert sorted(path.name for path in log.iterdir()) == before  # nothing is set aside


def test_two_checkpoints_of_which_one_is_wrong(tmp_path: Path, sound: dict[str, Path]) -> None:
    """Nobody knows which, as no entry between them has the shard."""
    table, log = copied(sound["table"], tmp_path)
    moved(1, SHARD.shard_id)(log)
    with pytest.raises(
        SinkError, match=r"a damaged checkpoint, or the log before it is \(the position of clicks, .* is 4"
    ):
        DELTA_TABLE.sink(table).open(SHARD)
    assert any("the newest checkpoint is damaged, or the log before it" in each for each in inspect_table(table).damage)


def test_an_opening_reads_each_checkpoint_once(
    tmp_path: Path, sound: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = copied(sound["table"], tmp_path)
    read: list[str] = []
    actions = checkpoint_content._actions
    monkeypatch.setattr(checkpoint_content, "_actions", lambda store, key: read.append(key) or actions(store, key))
    DELTA_TABLE.sink(table).open(SHARD)
    assert sorted(read) == [f"_delta_log/{OLDER}", f"_delta_log/{NEWEST}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_log_is_left_alone(tmp_path: Path, sound: dict[str, Path], kind: str) -> None:
    """Also where it was cleaned up, or a checkpoint is in parts."""
    table, log = copied(sound[kind], tmp_path)
    for change in (lambda: None, lambda: in_parts(lambda *_: None)(log), lambda: (log / OLDER).unlink()):
        change()
        before = sorted(path.name for path in log.iterdir())
        for shard, end in ENDS.items():
            assert KINDS[kind].sink(table).open(shard) == Position(str(end), 0)
        assert KINDS[kind].sink(table).open(Shard("clicks", "another")) is None
        assert sorted(path.name for path in log.iterdir()) == before
        assert inspect_table(table).ok


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("damage", SIDECARS)
def test_a_checkpoint_with_a_damaged_sidecar_is_done_without(
    tmp_path: Path, sound: dict[str, Path], caplog: pytest.LogCaptureFixture, kind: str, damage: str
) -> None:
    table, log = copied(sound["table"], tmp_path)
    in_sidecars(SIDECARS[damage], kind)(log)
    if damage.startswith("without"):
        refused(DELTA_TABLE, table)
        return
    assert any("checkpoint" in each for each in inspect_table(table).damage)
    goes_on(DELTA_TABLE, table)
    assert "a damaged checkpoint" in caplog.text
    assert inspect_table(table).ok


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_sound_sidecar_is_left_alone(tmp_path: Path, sound: dict[str, Path], kind: str) -> None:
    table, log = copied(sound["table"], tmp_path)
    in_sidecars(lambda _: None, kind)(log)
    before = sorted(path.name for path in log.iterdir())
    for shard, end in ENDS.items():
        assert DELTA_TABLE.sink(table).open(shard) == Position(str(end), 0)
    assert sorted(path.name for path in log.iterdir()) == before
    assert inspect_table(table).ok


@pytest.mark.parametrize("kind", ["json", "parquet"])
@pytest.mark.parametrize("damage", ["missing", "of 0 bytes", "cut"])
def test_a_damaged_sidecar_on_an_object_store_is_refused(
    tmp_path: Path, sound: dict[str, Path], aws: LocalAws, kind: str, damage: str
) -> None:
    """No reader opens such a table."""
    table, log = copied(sound["table"], tmp_path)
    place = delta_s3(aws)
    in_sidecars(SIDECARS[damage], kind)(log)
    for path in sorted(path for path in table.rglob("*") if path.is_file()):
        place.store.create(str(path.relative_to(table)), path.read_bytes())
    with pytest.raises(SinkError, match=r"a damaged checkpoint \(its _sidecars/files of it.parquet"):
        DeltaTable(place.url, storage=place.storage).open(SHARD)
    assert any("_sidecars/files of it.parquet" in each for each in inspect_table(place.url, place.storage).damage)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("version", [4, 8])
def test_several_sound_checkpoints_of_a_version_are_left_alone(
    tmp_path: Path, sound: dict[str, Path], version: int, is_whole: bool
) -> None:
    """The files of an older one, in one file and in parts, are not twice as many; nor those of parts that were left."""
    table, log = copied(sound["table"], tmp_path)
    for count in (2, 3, 4):
        beside(version, count=count, is_whole=is_whole)(log)
    assert inspect_table(table).ok
    goes_on(DELTA_TABLE, table)
    assert not list(log.glob("*.damaged"))


def test_on_an_object_store_it_is_refused(tmp_path: Path, sound: dict[str, Path], aws: LocalAws) -> None:
    """Nothing cuts off an object, and nothing is set aside there."""
    table, log = copied(sound["table"], tmp_path)
    place = delta_s3(aws)
    ACTIONS["a shard's transactions gone"](log)
    for path in sorted(path for path in table.rglob("*") if path.is_file()):
        place.store.create(str(path.relative_to(table)), path.read_bytes())
    with pytest.raises(SinkError, match="a damaged checkpoint"):
        DeltaTable(place.url, storage=place.storage).open(SHARD)
    assert any("checkpoint is damaged" in each for each in inspect_table(place.url, place.storage).damage)


@pytest.mark.parametrize("damage", ["no files", "the older one's content", "the other part twice"])
def test_nothing_is_an_orphan_of_such_a_checkpoint(tmp_path: Path, sound: dict[str, Path], damage: str) -> None:
    """The files that it lacks are the table's."""
    table, log = copied(sound["table"], tmp_path)
    for version in range(8):
        (log / f"{version:020d}.json").unlink()
    assert find_orphans(str(table)).files == ()
    ACTIONS[damage](log)
    (log / OLDER).unlink()
    with pytest.raises(SinkError, match="a damaged checkpoint: .*: nothing is called an orphan"):
        find_orphans(str(table))
