"""A table of Parquet files that a worker writes itself: each file a commit; on POSIX and on S3."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl import Position
from fastkcl.local_aws import LocalAws
from fastkcl.spark.sinks import ParquetSink
from fastkcl.tables import ParquetTable, S3Storage, Shard, SinkError, WriteCancelledError
from fastkcl.tables.formats import inspect_table
from fastkcl.tables.parquet import table as module
from fastkcl.tables.parquet.chain import Footer, State, name_after, position_in
from fastkcl.tables.parquet_file import FOOTER_KEY, footer_of, parquet_bytes
from fastkcl.tables.store import StoreError
from sink_helpers import SHARD, FakeSession
from sink_helpers import rows as sink_rows
from table_helpers import DAY, NOON, Place, arrived, as_they_are, posix_place, s3_place
from waiting import PATIENCE

FOLDER = "stream=clicks/shard=shardId-000000000000"


def written(place: Place, *runs: tuple[int, int], **options: Any) -> ParquetTable:
    """A table that a writer has opened, and has given these runs."""
    table = place.table(**options)
    table.open(SHARD)
    for first, last in runs:
        table.append(arrived(range(first, last + 1)), as_they_are)
    return table


# ---- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "name"),
    [
        (None, "after-000.parquet"),
        (Position("7", 0), "after-001.7.01.0.parquet"),
        (Position("4959", 1234567890), "after-004.4959.10.1234567890.parquet"),
        (Position("4959", None), "after-004.4959.zz.parquet"),
        (Position("9" * 129, 7), f"after-129.{'9' * 129}.01.7.parquet"),
    ],
)
def test_a_name_and_its_position(position: Position | None, name: str) -> None:
    assert name_after(position) == name
    assert position_in(name) == position


def test_names_sort_as_positions_do() -> None:
    subs = [0, 1, 9, 10, 11, 99, 100]
    numbers = ["7", "8", "10", "99", "100", "9" * 55, "1" + "0" * 55]
    names = [name_after(Position(number, sub)) for number in numbers for sub in subs]
    assert names == sorted(names)
    assert name_after(Position("10", 10**9)) < name_after(Position("10", None)) < name_after(Position("11", 0))
    assert name_after(None) < names[0]


@pytest.mark.parametrize(
    "name", ["after-001.7.parquet", "after-002.7.01.0.parquet", "after-001.7.02.7.parquet", "after-.parquet", "x"]
)
def test_names_of_others(name: str) -> None:
    with pytest.raises(ValueError, match="no file of this table"):
        position_in(name)


# ---- one writer -------------------------------------------------------------------------------------------------


def test_runs_are_files_named_by_what_they_continue_from(place: Place) -> None:
    table = place.table()
    assert table.open(SHARD) is None
    assert table.append(arrived(range(1, 4)), as_they_are) == Position("3", 0)
    assert table.append(arrived(range(4, 11)), as_they_are) == Position("10", 0)
    assert place.numbers() == list(range(1, 11))
    assert place.files() == [
        f"{FOLDER}/date=1970-01-01/after-000.parquet",
        f"{FOLDER}/date=2026-11-22/after-000.parquet",
        f"{FOLDER}/date=2026-11-22/after-001.3.01.0.parquet",
    ]


def test_what_comes_again_is_dropped(place: Place) -> None:
    table = written(place, (1, 10))
    assert table.append(arrived(range(5, 11)), as_they_are) == Position("10", 0)
    assert table.append(arrived(range(5, 16)), as_they_are) == Position("15", 0)
    assert place.numbers() == list(range(1, 16))


def test_the_next_one_goes_on(place: Place) -> None:
    written(place, (1, 10))
    table = place.table()
    assert table.open(SHARD) == Position("10", 0)
    table.append(arrived(range(8, 13)), as_they_are)
    assert place.numbers() == list(range(1, 13))


def test_a_shard_and_a_stream_each_have_their_own_chain(place: Place) -> None:
    shards = [Shard(stream, shard) for stream in ("clicks", "007", "ü-1") for shard in ("shardId-0", "shardId-1")]
    for shard in shards:
        table = place.table()
        assert table.open(shard) is None
        table.append(arrived(range(1, 4)), as_they_are)
    for shard in shards:
        assert place.table().open(shard) == Position("3", 0)
    assert {record[:2] for record in place.records()} == {(shard.stream, shard.shard_id) for shard in shards}
    assert place.records().total() == 18


def test_legacy_positions_are_those_of_whole_numbers(place: Place) -> None:
    table = written(place)
    assert table.append(arrived([1, 1, 2], legacy=True), as_they_are) == Position("2", None)
    again = place.table()
    assert again.open(SHARD) == Position("2", None)
    again.append(arrived([2, 3], legacy=True), as_they_are)
    assert place.numbers() == [1, 1, 2, 3]


def test_sub_sequence_numbers(place: Place) -> None:
    table = written(place)
    table.append(arrived([7] * 12, subs=range(12)), as_they_are)
    assert place.table().open(SHARD) == Position("7", 11)
    table.append(arrived([7] * 14, subs=range(14)), as_they_are)
    assert place.numbers() == [7] * 14


def test_rows_that_a_transformation_leaves_nothing_of_move_the_position(place: Place) -> None:
    table = written(place, (1, 3))
    table.append(arrived(range(4, 7)), lambda rows: rows.table().slice(0, 0))
    assert place.table().open(SHARD) == Position("6", 0)
    assert place.numbers() == [1, 2, 3]


def test_what_is_not_wanted_is_not_written(place: Place) -> None:
    table = written(place, (1, 3))
    rows = arrived(range(4, 7))
    rows._cancelled = lambda: True
    with pytest.raises(WriteCancelledError):
        table.append(rows, as_they_are)
    assert place.numbers() == [1, 2, 3]


def test_two_requests_a_commit(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(place, (1, 3))
    calls: list[str] = []
    for name in ("create", "claimed", "claim", "tail", "files", "folders", "replace", "remove", "read", "prove"):
        function = getattr(table._store, name)
        monkeypatch.setattr(
            table._store, name, lambda *values, name=name, function=function: (calls.append(name), function(*values))[1]
        )
    table.append(arrived(range(4, 7)), as_they_are)
    assert calls == ["claimed", *(["tail"] if place.storage is None else []), "create"]


# ---- days -------------------------------------------------------------------------------------------------------


def test_a_run_over_midnight_is_two_files(place: Place) -> None:
    table = written(place)
    table.append(arrived([1, 2, 3, 4], [NOON, NOON, NOON + DAY, NOON + DAY]), as_they_are)
    assert place.days() == {"2026-11-22": [1, 2], "2026-11-23": [3, 4]}
    assert place.table().open(SHARD) == Position("4", 0)


def test_days_never_go_back(place: Place) -> None:
    table = written(place)
    table.append(arrived([1, 2], [NOON + DAY, NOON]), as_they_are)
    table.append(arrived([3, 4], [NOON, None]), as_they_are)
    table.append(arrived([5], NOON + 3 * DAY), as_they_are)
    assert place.days() == {"2026-11-23": [1, 2, 3, 4], "2026-11-25": [5]}
    assert [name.split("/")[-2:] for name in place.files()] == [
        ["date=1970-01-01", "after-000.parquet"],
        ["date=2026-11-23", "after-000.parquet"],
        ["date=2026-11-23", "after-001.2.01.0.parquet"],
        ["date=2026-11-23", "after-001.4.01.0.parquet"],
        ["date=2026-11-25", "after-001.4.01.0.parquet"],
    ]


def test_two_writers_at_the_beginning_with_other_first_rows(place: Place) -> None:
    """The day is the chain's, so their files have one name."""
    early, late = place.table(), place.table()
    early.open(SHARD)
    late.open(SHARD)
    early.append(arrived([1, 2, 3], NOON), as_they_are)
    late.append(arrived([2, 3, 4], [NOON, NOON, NOON + DAY]), as_they_are)
    assert place.numbers() == [1, 2, 3, 4]


def test_an_aggregate_is_not_parted_at_midnight(place: Place) -> None:
    table = written(place)
    table.append(arrived([1, 2, 2, 2], [NOON, NOON, NOON + DAY, NOON + DAY], legacy=True), as_they_are)
    assert place.days() == {"2026-11-22": [1], "2026-11-23": [2, 2, 2]}


def test_without_days(place: Place) -> None:
    table = written(place, partition="none")
    table.append(arrived([1, 2], [NOON, NOON + DAY]), as_they_are)
    assert place.files() == [f"{FOLDER}/after-000.parquet"]
    assert place.table(partition="none").open(SHARD) == Position("2", 0)
    with pytest.raises(SinkError, match=r"has partition='none', and is opened with 'date'"):
        place.table().open(SHARD)


# ---- two writers ------------------------------------------------------------------------------------------------


def test_a_zombie_is_refused(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    zombie = written(place, (1, 3))
    written(place, (1, 3), (4, 8))
    assert zombie.append(arrived(range(4, 7)), as_they_are) == Position("8", 0)
    assert "another writer has continued from 3.0 up to 8.0" in caplog.text
    assert zombie.append(arrived(range(7, 11)), as_they_are) == Position("10", 0)
    assert place.numbers() == list(range(1, 11))


def test_six_writers_at_once(place: Place) -> None:
    """Each believes that it owns the shard."""
    errors: list[BaseException] = []

    def live(who: int) -> None:
        try:
            table = place.table()
            table.open(SHARD)
            first = 1
            barrier.wait(PATIENCE)
            while first <= 40:
                last = min(40, first + (who + first) % 5)
                table.append(arrived(range(first, last + 1)), as_they_are)
                first = last + 1
        except BaseException as error:
            errors.append(error)

    barrier = threading.Barrier(6)
    threads = [threading.Thread(target=live, args=(who,)) for who in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert errors == []
    assert place.numbers() == list(range(1, 41))


def test_an_answer_that_was_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client repeats the request, and is told that there is something: its own file."""
    table = written(place, (1, 3))
    create = table._store.create
    monkeypatch.setattr(table._store, "create", lambda key, body: create(key, body) and create(key, body))
    table.append(arrived(range(4, 7)), as_they_are)
    assert place.numbers() == list(range(1, 7))


def test_a_refusal_of_nothing_is_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """409: another request for it was under way, and has failed."""
    table = written(place, (1, 3))
    create, refusals, pauses = table._store.create, [False] * 3, []
    monkeypatch.setattr(table._store, "create", lambda key, body: refusals.pop() if refusals else create(key, body))
    table._pause = pauses.append
    table.append(arrived(range(4, 7)), as_they_are)
    assert place.numbers() == list(range(1, 7))
    assert len(pauses) == 3


def test_but_not_for_ever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = written(place, (1, 3))
    monkeypatch.setattr(table._store, "create", lambda key, body: False)
    table._pause = lambda seconds: None
    with pytest.raises(StoreError, match="refuses to create it 30 times, and there is nothing"):
        table.append(arrived(range(4, 7)), as_they_are)


def test_who_has_not_looked_for_an_hour_looks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users may delete files that are older than a day: a zombie of yesterday would find its place free."""
    zombie = written(place, (1, 3))
    written(place, (1, 3), (4, 5), (6, 8))
    if place.storage is None:
        Path(place.url, FOLDER, "date=2026-11-22", "after-001.3.01.0.parquet").unlink()
    else:
        store: Any = zombie._store
        store._store().delete(store._key(f"{FOLDER}/date=2026-11-22/after-001.3.01.0.parquet"))
    now = module.running_seconds()
    monkeypatch.setattr(module, "running_seconds", lambda: now + 3601)
    assert zombie.append(arrived(range(4, 7)), as_they_are) == Position("8", 0)
    assert place.numbers() == [1, 2, 3, 6, 7, 8]


# ---- identity and damage ----------------------------------------------------------------------------------------


def test_another_table_in_its_place(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    table = written(place, (1, 3))
    Path(place.url).rename(tmp_path / "before")
    written(place, (1, 3))
    for call in (lambda: table.append(arrived(range(4, 7)), as_they_are), lambda: table.open(SHARD)):
        with pytest.raises(SinkError, match=r"is another table now \(id .*, was .*\): start again"):
            call()
    assert place.numbers() == [1, 2, 3]


def test_a_table_that_went_back(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    table = written(place, (1, 3), (4, 6))
    Path(place.url, FOLDER, "date=2026-11-22", "after-001.3.01.0.parquet").unlink()
    with pytest.raises(SinkError, match=r"its position was 6\.0, and now is 3\.0: files are gone"):
        table.open(SHARD)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], r"its position was 6\.0, and now is 3\.0: files are gone"),
        ([(4, 5)], r"after-001\.3\.01\.0\.parquet: is another file than the one that this writer has seen"),
        ([(4, 5), (6, 8)], "is another file than the one that this writer has seen"),
    ],
)
def test_an_older_copy_in_its_place(tmp_path: Path, runs: list[tuple[int, int]], said: str) -> None:
    """It has the table's id. Others may have continued it meanwhile."""
    place = posix_place(tmp_path)
    table = written(place, (1, 3))
    shutil.copytree(place.url, tmp_path / "copy")
    table.append(arrived(range(4, 7)), as_they_are)
    shutil.rmtree(place.url)
    (tmp_path / "copy").rename(place.url)
    written(place, *runs)
    before = place.files()
    for _ in range(2):
        with pytest.raises(SinkError, match=said):
            table.append(arrived(range(7, 10)), as_they_are)
        with pytest.raises(SinkError, match=said):
            table.open(SHARD)
    assert place.files() == before
    assert inspect_table(place.url).ok


def test_a_file_that_is_gone_from_s3_is_left_to_inspect(aws: LocalAws) -> None:
    """The writer reads the claim only, as each look is a request; who opens the table again notices it."""
    place = s3_place(aws)
    table, other = written(place, (1, 3), (4, 6)), written(place)
    store: Any = table._store
    store._store().delete(store._key(f"{FOLDER}/date=2026-11-22/after-001.3.01.0.parquet"))
    with pytest.raises(SinkError, match=r"its position was 6\.0, and now is 3\.0: files are gone"):
        other.open(SHARD)
    table.append(arrived(range(7, 10)), as_they_are)
    state = inspect_table(place.url, place.storage)
    assert not state.ok
    assert state.shards[0].gaps == [(Position("6", 0), Position("9", 0))]


def test_a_zombie_whose_newest_file_was_deleted_goes_on_after_its_successor(tmp_path: Path) -> None:
    """As users may, when the file is a day old and not the shard's newest."""
    place = posix_place(tmp_path)
    zombie = written(place, (1, 3))
    written(place, (1, 3), (4, 8))
    Path(place.url, FOLDER, "date=2026-11-22", "after-000.parquet").unlink()
    assert zombie.append(arrived(range(4, 11)), as_they_are) == Position("10", 0)
    assert place.numbers() == list(range(4, 11))


@pytest.mark.parametrize(("folder", "what"), [("_commits", "a ParquetSink"), ("_delta_log", "a Delta table")])
def test_a_folder_of_another_format(tmp_path: Path, folder: str, what: str) -> None:
    (tmp_path / folder).mkdir()
    with pytest.raises(SinkError, match=f"has a folder {folder}, so it is {what}: give ParquetTable another folder"):
        ParquetTable(tmp_path).open(SHARD)
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_a_real_table_of_a_parquet_sink(tmp_path: Path) -> None:
    sink: Any = ParquetSink(tmp_path)
    sink.open(SHARD)
    sink.write(sink_rows(1, 3), FakeSession())
    with pytest.raises(SinkError, match="a ParquetSink"):
        ParquetTable(tmp_path).open(SHARD)


def footer(**changes: Any) -> bytes:
    value = {
        "table": "x",
        "stream": "clicks",
        "shard": "shardId-000000000000",
        "after": ["3", 0],
        "upto": ["6", 0],
        "rows": 3,
        "next": "2026-11-22",
        "writer": "w",
    }
    return json.dumps(value | changes).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no Parquet file"),
        (b"PAR1 no more PAR1", "cut off|damaged"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), b"{}"))[:-1], "no Parquet file"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), b"no JSON")), "damaged"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), footer())), "it says of itself"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), footer(rows="x"))), "damaged"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), footer(upto=["1", 0]))), "end before they begin"),
        (bytes(parquet_bytes(pa.table({"a": [1]}), footer(rows=0))), "end before they begin"),
    ],
)
def test_a_file_that_is_not_ours_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    place = posix_place(tmp_path)
    table = written(place, (1, 3))
    path = Path(place.url, FOLDER, "date=2026-11-22", "after-001.3.01.0.parquet")
    path.write_bytes(content)
    with pytest.raises(SinkError, match=f"after-001.3.01.0.parquet: not written by this table's writers.*({said})"):
        place.table().open(SHARD)
    with pytest.raises(SinkError, match="not written by this table's writers"):
        table.append(arrived(range(4, 7)), as_they_are)


def test_a_file_without_a_footer_of_ours(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    written(place, (1, 3))
    pq.write_table(pa.table({"a": [1]}), Path(place.url, FOLDER, "date=2026-11-22", "after-001.3.01.0.parquet"))
    with pytest.raises(SinkError, match="a file without a footer of this table's writers"):
        place.table().open(SHARD)


def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    place = posix_place(tmp_path)
    written(place, (1, 3))
    Path(place.url, FOLDER, "date=2026-11-22", ".hidden").touch()
    Path(place.url, FOLDER, "date=2026-11-22", "zzz").touch()
    Path(place.url, FOLDER, "other").mkdir()
    assert place.table().open(SHARD) == Position("3", 0)


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"format":2,"id":"x","partition":"date"}', '{"format":1,"id":7}'])
def test_a_claim_of_another_version(place: Place, text: str) -> None:
    place.store.claim("_fastkcl/table", text)
    with pytest.raises(SinkError, match="which is not of this version: of a newer one, or damaged"):
        place.table().open(SHARD)


def test_a_large_footer_is_read_as_a_whole(place: Place) -> None:
    table = written(place)
    wide = {f"column_{number:04}": pa.array([1.5, 2.5, 3.5]) for number in range(1500)}
    table.append(arrived([1, 2, 3]), lambda rows: pa.table({n: c.slice(0, rows.num_rows) for n, c in wide.items()}))
    assert place.table().open(SHARD) == Position("3", 0)
    tail = place.store.tail(f"{FOLDER}/date=2026-11-22/after-000.parquet", 1000)
    assert tail is not None
    assert isinstance(footer_of(tail), int)


def test_the_footer_says_all(place: Place) -> None:
    table = written(place, (1, 3))
    tail = place.store.tail(f"{FOLDER}/date=2026-11-22/after-000.parquet", 10**6)
    assert tail is not None
    text = footer_of(tail)
    assert isinstance(text, bytes)
    said = Footer.parse(text)
    assert (said.after, said.upto, said.rows, said.shard, said.table) == (None, Position("3", 0), 3, SHARD, table._id)
    assert said.state == State(Position("3", 0), table._state.day if table._state else None)
    assert Footer.parse(said.text()) == said


# ---- notes ------------------------------------------------------------------------------------------------------


def test_what_was_given_up_is_noted(place: Place) -> None:
    table = written(place, (1, 3))
    assert table.given_up() is None
    for upto in ("9", "10", "7"):
        table.give_up(Position(upto, 0))
    again = place.table()
    again.open(SHARD)
    assert again.given_up() == Position("10", 0)
    assert place.numbers() == [1, 2, 3]


# ---- Parquet ----------------------------------------------------------------------------------------------------


def test_encodings_and_statistics() -> None:
    data = bytes(parquet_bytes(arrived(range(1000)).table(), b"{}"))
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    columns = {group.column(index).path_in_schema: group.column(index) for index in range(group.num_columns)}
    assert {column.compression for column in columns.values()} == {"ZSTD"}
    assert "DELTA_BYTE_ARRAY" in columns["sequenceNumber"].encodings
    assert "DELTA_BINARY_PACKED" in columns["approximateArrivalTimestamp"].encodings
    assert {name for name, column in columns.items() if column.has_dictionary_page} == {"subSequenceNumber"}
    assert {name for name, column in columns.items() if column.is_stats_set} == {
        *("sequenceNumber", "subSequenceNumber", "approximateArrivalTimestamp")
    }
    assert pq.read_metadata(pa.BufferReader(data)).metadata[FOOTER_KEY] == b"{}"


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.large_string()])
def test_columns_of_a_transformation_of_any_type(kind: pa.DataType) -> None:
    table = pa.table({"sequenceNumber": pa.array([1, 2]).cast(kind), "approximateArrivalTimestamp": [1, 2]})
    assert pq.read_table(pa.BufferReader(bytes(parquet_bytes(table, b"{}")))).num_rows == 2


# ---- options ----------------------------------------------------------------------------------------------------


def test_options_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="partition='hour': must be 'date' or 'none'"):
        ParquetTable(tmp_path, partition="hour")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"storage= is for s3:// URLs"):
        ParquetTable(tmp_path, storage=S3Storage())
    with pytest.raises(ValueError, match="ParquetTable needs a folder on a POSIX file system, not gs://"):
        ParquetTable("gs://lake/clicks")
    with pytest.raises(ValueError, match="ParquetTable needs the name of a stream"):
        ParquetTable(tmp_path).open(Shard("", "x"))
