"""Several writers of an Iceberg table, answers that are lost, shared commits; and versions that are spoiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import counted
from fastkcl import Position
from fastkcl.local_aws import LocalAws
from fastkcl.tables import IcebergTable, Shard, SinkError
from fastkcl.tables.group import Answer, Outcome, Request
from fastkcl.tables.iceberg.group import IcebergCommitter
from fastkcl.tables.iceberg.head import IcebergHead
from fastkcl.tables.iceberg.io import MissingError
from fastkcl.tables.store import StoreError
from iceberg_helpers import IcebergPlace, every_place, sql_posix, sql_s3, written
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from sink_helpers import SHARD
from table_helpers import arrived, as_they_are

OTHER = Shard("clicks", "shardId-000000000001")


@pytest.fixture(params=["sql", "sql-s3", "glue", "rest"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IcebergPlace]:
    """Somewhere for a table: each catalog, a folder and a bucket."""
    with every_place(request, tmp_path) as made:
        yield made


@pytest.fixture
def local(tmp_path: Path) -> IcebergPlace:
    """The cheapest one."""
    return sql_posix(tmp_path)


# ---- several writers, and answers that are lost -------------------------------------------------------------------


def test_a_zombie_is_fenced_off(place: IcebergPlace) -> None:
    """Both continue from one position: one commit succeeds, and the other writer drops what is there."""
    zombie = written(place, (1, 3))
    successor = place.table()
    successor.open(SHARD)
    successor.append(arrived(range(4, 8)), as_they_are)
    assert zombie.append(arrived(range(4, 10)), as_they_are) == Position("9", 0)
    assert successor.append(arrived(range(6, 12)), as_they_are) == Position("11", 0)
    assert place.numbers() == list(range(1, 12))


def test_files_that_others_have_removed_meanwhile(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a snapshot that is not the newest any more: by the catalog's word, and while a commit is made."""
    slow, quick = written(local, (1, 3)), written(local, (1, 3), shard=OTHER)
    load, commit = slow._head._catalog.load_table, slow._head._commit

    def late_load(name: str) -> Any:
        monkeypatch.setattr(slow._head._catalog, "load_table", load)
        raise MissingError("v1.metadata.json: a file of the table's metadata is gone")

    def late_commit(table: Any, *arguments: Any) -> Any:
        monkeypatch.setattr(slow._head, "_commit", commit)
        quick.append(arrived(range(4, 7)), as_they_are)
        Path(table.current_snapshot().manifest_list.removeprefix("file://")).unlink()
        return commit(table, *arguments)

    monkeypatch.setattr(slow._head._catalog, "load_table", late_load)
    monkeypatch.setattr(slow._head, "_commit", late_commit)
    assert slow.append(arrived(range(4, 7)), as_they_are) == Position("6", 0)
    assert local.numbers() == sorted([*range(1, 7)] * 2)


def test_a_file_that_the_catalog_still_names(local: IcebergPlace) -> None:
    table = written(local, (1, 3))
    Path(table._head.table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(SinkError, match=r"metadata\.json: a file of the table's metadata is gone"):
        table.append(arrived(range(4, 7)), as_they_are)


def test_writers_of_other_shards_go_on(local: IcebergPlace) -> None:
    one, other = written(local, (1, 3)), written(local, (1, 3), shard=OTHER)
    for first in (4, 7):
        one.append(arrived(range(first, first + 3)), as_they_are)
        other.append(arrived(range(first, first + 3)), as_they_are)
    assert local.numbers() == sorted([*range(1, 10)] * 2)


def test_who_finds_the_table_made_meanwhile_drops_its_rows(local: IcebergPlace) -> None:
    first, second = local.table(), local.table()
    assert (first.open(SHARD), second.open(SHARD)) == (None, None)
    assert first.append(arrived(range(1, 4)), as_they_are) == Position("3", 0)
    assert second.append(arrived(range(2, 6)), as_they_are) == Position("5", 0)
    assert local.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("made", [True, False])
def test_the_namespace_is_made_by_two_at_once(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch, made: bool) -> None:
    """A SQL catalog refuses the second one by an error of the database."""
    table = local.table()
    table.open(SHARD)
    create = table._head._catalog.create_namespace

    def refuse(name: str) -> None:
        if made:
            create(name)
        raise RuntimeError("UNIQUE constraint failed")

    monkeypatch.setattr(table._head._catalog, "create_namespace", refuse)
    if made:
        assert table.append(arrived([1, 2]), as_they_are) == Position("2", 0)
    else:
        with pytest.raises(StoreError, match=r"make the namespace db: .*UNIQUE"):
            table.append(arrived([1, 2]), as_they_are)


class _Lost:
    """A catalog whose answers to commits are lost, before or after the commit."""

    def __init__(
        self, head: IcebergHead, monkeypatch: pytest.MonkeyPatch, *, committed: bool, error: Exception
    ) -> None:
        commit = head._catalog.commit_table

        def lose(*arguments: Any) -> Any:
            monkeypatch.setattr(head._catalog, "commit_table", commit)
            if committed:
                commit(*arguments)
            raise error

        monkeypatch.setattr(head._catalog, "commit_table", lose)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    "error", [CommitStateUnknownException("?"), TimeoutError("no answer")], ids=["unknown", "hang"]
)
def test_a_lost_answer_is_looked_for(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch, committed: bool, error: Exception
) -> None:
    table = written(local, (1, 3))
    _Lost(table._head, monkeypatch, committed=committed, error=error)
    with pytest.raises(StoreError, match=r"commit to db\.clicks"):
        table.append(arrived(range(4, 7)), as_they_are)
    assert table.open(SHARD) == Position("6" if committed else "3", 0)
    assert table.append(arrived(range(4, 8)), as_they_are) == Position("7", 0)
    assert local.numbers() == list(range(1, 8))


def test_a_repeated_commit_that_is_refused_leaves_the_table_readable(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Glue's client repeats a commit whose answer was lost, and the catalog refuses it: its files are the table's."""
    table = written(local, (1, 3))
    table._pause = lambda _: None
    _Lost(table._head, monkeypatch, committed=True, error=CommitFailedException("another version"))
    assert table.append(arrived(range(4, 7)), as_they_are) == Position("6", 0)
    assert local.numbers() == list(range(1, 7))


def test_spoiled_a_transaction_that_commits_itself_doubles_rows(
    local: IcebergPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why `commit_table` alone is called: pyiceberg's own commit is repeated on a newer snapshot."""

    def send(head: IcebergHead, table: Any, transaction: Any, more: Any) -> Any:
        return transaction.commit_transaction()

    zombie = written(local, (1, 3))
    written(local, (4, 6))
    monkeypatch.setattr(IcebergHead, "_send", send)
    zombie.append(arrived(range(4, 7)), as_they_are)
    assert local.numbers() == [1, 2, 3, 4, 4, 5, 5, 6, 6]


def test_spoiled_without_the_comparison_rows_are_doubled(local: IcebergPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    zombie = written(local, (1, 3))
    other = written(local)
    other.append(arrived(range(4, 7)), as_they_are)
    monkeypatch.setattr("fastkcl.tables.iceberg.group.choose", lambda requests, *_: (list(requests), []))
    monkeypatch.setattr(zombie, "_move_to", lambda _: None)  # it believes its own position
    zombie._head.load()
    request = _request(zombie, range(4, 7))
    assert _commit(zombie, [request])[0].outcome is Outcome.COMMITTED
    assert local.numbers() == [1, 2, 3, 4, 4, 5, 5, 6, 6]


def test_spoiled_a_commit_of_properties_alone_fences_nothing(local: IcebergPlace) -> None:
    """Two of them from one base are both accepted; an empty append is not."""
    one, two = written(local, (1, 3)), written(local)
    for name, table in (("one", one), ("two", two)):
        assert table._head.set_property("position", name)
    assert local.handle().properties["position"] == "two"
    one.open(SHARD)
    two.open(SHARD)
    requests = [_request(each, range(4, 7), empty=True) for each in (one, two)]
    assert _commit(one, requests[:1])[0].outcome is Outcome.COMMITTED
    assert _commit(two, requests[1:])[0].outcome is Outcome.AGAIN


def _commit(table: IcebergTable, requests: Sequence[Request]) -> Sequence[Answer]:
    return IcebergCommitter(table._head, lambda: None).commit(requests)


def _request(table: IcebergTable, numbers: range, *, empty: bool = False) -> Request:
    rows = arrived(numbers)
    made = table._storable(rows.table().slice(0, 0) if empty else rows.table())
    return table._stage(rows, made, table._columns(made.schema))


# ---- shared commits ---------------------------------------------------------------------------------------------


def test_a_commit_takes_one_request_of_each_shard(local: IcebergPlace) -> None:
    one, other = written(local, (1, 3)), written(local, (1, 3), shard=OTHER)
    one.open(SHARD)
    late = Shard("clicks", "shardId-000000000009")
    third = written(local, shard=late)
    requests = [_request(one, range(4, 7)), _request(other, range(4, 6)), _request(one, range(4, 9))]
    requests.append(_request(third, range(1, 3), empty=True))
    before = len(local.handle().metadata.snapshots)
    answers = _commit(one, requests)
    assert [each.outcome for each in answers] == [
        Outcome.COMMITTED,
        Outcome.COMMITTED,
        Outcome.AGAIN,
        Outcome.COMMITTED,
    ]
    assert _commit(one, requests[2:3])[0].outcome is Outcome.PASSED
    assert len(local.handle().metadata.snapshots) == before + 1
    assert local.numbers() == sorted([*range(1, 7), *range(1, 6)])
    assert [local.table().open(shard) for shard in (SHARD, OTHER, late)] == [
        Position("6", 0),
        Position("5", 0),
        Position("2", 0),
    ]


def test_a_request_with_columns_of_another_schema_is_refused(local: IcebergPlace) -> None:
    one, other = written(local, (1, 3)), written(local, (1, 3), shard=OTHER)
    one.open(SHARD)
    request = _request(other, range(4, 6))
    for spoiled in (
        {"columns": [[99, "x", "string"]]},
        {"spec": 7},
        {"files": [{"path": 3}]},
        {"files": "x"},
    ):
        object.__setattr__(request, "files", {**request.files, **spoiled})
        assert _commit(one, [request])[0].outcome is Outcome.REFUSED
    assert local.numbers() == sorted([1, 2, 3] * 2)


# ---- requests of a commit ---------------------------------------------------------------------------------------


def test_a_commit_is_eight_requests_at_the_most(aws: LocalAws, tmp_path: Path) -> None:
    """Of the store, with the removal of an old metadata file (a POST); the catalog is a file here."""
    place = sql_s3(aws, tmp_path)
    with counted(aws.url) as (address, requests):
        table = IcebergPlace({**place.catalog, "s3.endpoint": address}).table()
        table.open(SHARD)
        for number in range(1, 25):
            table.append(arrived([number]), as_they_are)
        requests.clear()
        for number in range(25, 29):
            table.append(arrived([number]), as_they_are)
        assert Counter(each.partition(" ")[0] for each in requests) == {"PUT": 16, "GET": 8, "POST": 4}
