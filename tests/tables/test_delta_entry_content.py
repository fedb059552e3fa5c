"""An entry of a Delta log is refused where deltalake refuses the table for it, whichever member has another type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from fastkcl.tables.delta.entry_content import fault
from fastkcl.tables.delta.log import entry

VALUES: Final = [
    *(None, True, False, 0, -1, 5, 5.5, 5e300, 2**63 - 1, 2**63, 2**70, float("nan"), float("inf")),
    *("", "x", "5", "-5", "5.5", " 5", "1_0", "nan", "true", "\u0665"),
    *([], ["x"], {}, {"x": "y"}, {"x": 5}, {"x": None}, {"x": {}}, {"x": ["y"]}, {"storageType": "u"}),
]
VECTOR: Final = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 1, "cardinality": 1}
ADD: Final = {"path": "b", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
SOUND: Final[Mapping[str, Mapping[str, Any]]] = {
    "add": {**ADD, "stats": "{}", "tags": {}, "baseRowId": 1, "defaultRowCommitVersion": 1, "clusteringProvider": "x"},
    "remove": {
        "path": "a",
        "deletionTimestamp": 1,
        "dataChange": True,
        "extendedFileMetadata": True,
        "size": 1,
        "partitionValues": {},
        "tags": {},
        "baseRowId": 1,
        "defaultRowCommitVersion": 1,
    },
    "txn": {"appId": "fastkcl/x", "version": 1, "lastUpdated": 1},
    "metaData": {
        "id": "x",
        "name": "x",
        "description": "x",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": "",
        "partitionColumns": [],
        "createdTime": 1,
        "configuration": {},
    },
}
STRICTER: Final = {
    ("add", "path"): "a name that is no text",
    ("txn", "appId"): "deltalake reads transactions when it is asked for one",
    ("txn", "version"): "the same",
    ("txn", "lastUpdated"): "the same",
    ("metaData", "id"): "an id that is no text",
    ("metaData", "configuration"): "a property that is no text",
}
"""Members whose values are refused here and not by deltalake."""
LOOSER: Final = {("metaData", "partitionColumns"): "a column that the schema does not have"}
"""Members whose values deltalake alone refuses; `sink inspect` says so."""


def entry_of(action: Mapping[str, Any]) -> bytes:
    return f"{json.dumps({'commitInfo': {}})}\n{json.dumps(action)}\n".encode()


MEMBERS: Final = [(kind, name) for kind, action in SOUND.items() for name in action]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("table")
    deltalake.write_deltalake(root, pa.table({"a": [1]}))
    return root


def refusal(table: Path, text: bytes) -> str | None:
    """deltalake's, of a table with an entry."""
    entry(table / "_delta_log", 1).write_bytes(text)
    try:
        deltalake.DeltaTable(table).get_add_actions()
    except DeltaError as error:
        return str(error)
    return None


def check(table: Path, text: bytes, member: tuple[str, str]) -> bool:
    """See that an entry is refused as by deltalake; whether it is."""
    ours, theirs = fault(text), refusal(table, text)
    if ours is None:
        assert theirs is None or member in LOOSER, (text, theirs)
    else:
        assert theirs is not None or member in STRICTER, (text, ours)
    return ours is not None


@pytest.mark.parametrize(("kind", "name"), MEMBERS, ids=lambda part: part)
def test_a_member_of_another_type(table: Path, kind: str, name: str) -> None:
    schema = {"schemaString": deltalake.DeltaTable(table, version=0).schema().to_json()}
    action = {**SOUND[kind], **(schema if kind == "metaData" else {})}
    assert not check(table, entry_of({kind: action}), (kind, name))
    refused = [check(table, entry_of({kind: {**action, name: value}}), (kind, name)) for value in VALUES]
    assert any(refused)
    assert not all(refused) or name in ("schemaString", "format")
    check(table, entry_of({kind: {key: value for key, value in action.items() if key != name}}), (kind, name))


@pytest.mark.parametrize("name", VECTOR)
@pytest.mark.parametrize("kind", ["add", "remove"])
def test_a_member_of_a_deletion_vector(table: Path, kind: str, name: str) -> None:
    member = (kind, "deletionVector")
    for vector in ({**VECTOR, name: value} for value in VALUES):
        check(table, entry_of({kind: {**SOUND[kind], "deletionVector": vector}}), member)
    assert not check(table, entry_of({kind: {**SOUND[kind], "deletionVector": VECTOR}}), member)
