"""Types and statistics of an Iceberg table's files, beside pyiceberg's own, which a writer does not import."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastkcl.replay import ReplayOptions, generate, replay
from fastkcl.tables.iceberg.statistics import statistics
from fastkcl.tables.iceberg.types import arrow_field, iceberg_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_helpers import sql_posix
from paths import PROGRAMS
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    pyarrow_to_schema,
    schema_to_pyarrow,
)
from pyiceberg.schema import Schema
from pyiceberg.types import GeometryType, NestedField, TimestampNanoType, UnknownType
from sink_replay import STREAM

PLAIN = [
    pa.bool_(), pa.int8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.float16(), pa.float32(), pa.float64(),
    pa.decimal128(9, 2), pa.decimal128(38, 0), pa.string(), pa.large_string(), pa.string_view(), pa.binary(),
    pa.large_binary(), pa.binary(16), pa.date32(), pa.time64("us"), pa.timestamp("s"), pa.timestamp("us"),
    pa.timestamp("us", "UTC"), pa.timestamp("ms", "+00:00"), pa.uuid(), pa.dictionary(pa.int32(), pa.string()),
]  # fmt: skip
ABSENT = [
    pa.timestamp("ns"), pa.timestamp("us", "Europe/Paris"), pa.time32("s"), pa.time64("ns"), pa.date64(), pa.null(),
    pa.duration("s"), pa.list_view(pa.int32()), pa.decimal256(50, 1), pa.month_day_nano_interval(),
]  # fmt: skip
NAMES = st.text("abcé.", min_size=1, max_size=4)


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    """A field of one of these types."""
    return st.builds(pa.field, NAMES.map(lambda name: name.replace(".", "_")), kinds, st.booleans())


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    """A type that has such types within."""
    within = fields(kinds)
    structs = st.lists(within, min_size=1, max_size=3, unique_by=lambda field: field.name).map(pa.struct)
    maps = st.builds(lambda key, item: pa.map_(key.with_nullable(False), item), within, within)
    return st.one_of(structs, within.map(pa.list_), within.map(pa.large_list), maps)


TYPES = st.recursive(st.sampled_from(PLAIN), nested, max_leaves=6)
SCHEMAS = st.lists(fields(TYPES), min_size=1, max_size=4, unique_by=lambda field: field.name).map(pa.schema)


def numbered(field: pa.Field, count: Iterator[int]) -> pa.Field:
    """A field with the ids that pyiceberg asks for, also within it."""
    kind, number = field.type, next(count)
    if pa.types.is_struct(kind):
        kind = pa.struct([numbered(kind.field(index), count) for index in range(kind.num_fields)])
    elif pa.types.is_list(kind):
        kind = pa.list_(numbered(kind.value_field, count))
    elif pa.types.is_large_list(kind):
        kind = pa.large_list(numbered(kind.value_field, count))
    elif pa.types.is_map(kind):
        kind = pa.map_(numbered(kind.key_field, count), numbered(kind.item_field, count))
    return pa.field(field.name, kind, field.nullable, {b"PARQUET:field_id": str(number).encode()})


def small(field: pa.Field) -> pa.Field:
    """A field without large types: in a Parquet file they are the same."""
    kind = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(field.type, field.type)
    if pa.types.is_struct(kind):
        kind = pa.struct([small(kind.field(index)) for index in range(kind.num_fields)])
    elif pa.types.is_large_list(kind):
        kind = pa.list_(small(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(small(kind.key_field), small(kind.item_field))
    return field.with_type(kind)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS)
def test_types_are_those_of_pyiceberg(schema: pa.Schema) -> None:
    count = iter(range(1, 1 << 30))
    made = Schema(*iceberg_fields(schema))
    assert made == pyarrow_to_schema(pa.schema([numbered(field, count) for field in schema]))
    back = pa.schema([arrow_field(field) for field in made.fields])
    wanted = pa.schema([small(field) for field in schema_to_pyarrow(made)])
    assert back.equals(wanted, check_metadata=True)


@pytest.mark.parametrize("kind", ABSENT, ids=str)
@pytest.mark.parametrize("deep", [False, True])
def test_a_type_that_iceberg_does_not_have(kind: pa.DataType, *, deep: bool) -> None:
    field = pa.field("price", pa.struct([pa.field("net", kind)]) if deep else kind)
    with pytest.raises(TypeError, match=rf"column {'price.net' if deep else 'price'}: Iceberg has no type for "):
        iceberg_fields(pa.schema([field]))


@pytest.mark.parametrize("kind", [TimestampNanoType(), UnknownType(), GeometryType()], ids=str)
def test_types_of_later_formats(kind: Any) -> None:
    found = arrow_field(NestedField(7, "seen", kind, doc="of the eye"))
    wanted = schema_to_pyarrow(Schema(NestedField(7, "seen", kind, doc="of the eye")))
    assert found.type == small(wanted.field(0)).type
    assert found.metadata == {b"PARQUET:field_id": b"7", b"doc": b"of the eye"}


# ---- statistics -------------------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("aZ9é\ud7ff\U0010ffff"), max_size=70)
VALUES = {
    "sequenceNumber": (pa.string(), st.one_of(st.none(), TEXTS)),
    "subSequenceNumber": (pa.int64(), st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))),
    "arrived": (pa.timestamp("us", "UTC"), st.one_of(st.none(), st.integers(-(10**16), 10**17))),
    "price": (pa.float64(), st.one_of(st.none(), st.floats())),
    "tags": (pa.list_(pa.string()), st.one_of(st.none(), st.lists(TEXTS, max_size=2))),
    "by": (pa.map_(pa.string(), pa.int32()), st.just([("a", 1)])),
}
NAMED = ("sequenceNumber", "subSequenceNumber", "arrived", "tags")


def theirs(footer: pq.FileMetaData, schema: Schema) -> dict[str, Any]:
    """As pyiceberg has them."""
    modes = {"write.metadata.metrics.default": "none"}
    modes |= {f"write.metadata.metrics.column.{name}": "truncate(64)" for name in NAMED if name != "tags"}
    found = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, modes), parquet_path_to_id_mapping(schema)
    )
    return found.to_serialized_dict()


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 3))
def test_statistics_are_those_of_pyiceberg(data: st.DataObject, groups: int) -> None:
    rows = data.draw(st.integers(1, 6))
    columns = [
        pa.array(data.draw(st.lists(values, min_size=rows, max_size=rows)), kind) for kind, values in VALUES.values()
    ]
    schema = Schema(*iceberg_fields(pa.schema([(name, kind) for name, (kind, _) in VALUES.items()])))
    table = pa.table(columns, schema=pa.schema([arrow_field(field) for field in schema.fields]))
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema) as writer:
        for _ in range(groups):
            writer.write_table(table)
    footer = pq.read_metadata(file)
    found = statistics(footer, schema, NAMED)
    try:
        expected = theirs(footer, schema)
    except UnicodeEncodeError:  # pyiceberg counts on from U+D7FF to a surrogate
        assert found["upper_bounds"].get(1) is None
        return
    assert found == expected


@pytest.mark.parametrize("time", [-70_000_000_000_000_000, 300_000_000_000_000_000], ids=["before 1", "after 9999"])
def test_a_time_that_python_does_not_have_has_no_bounds(time: int) -> None:
    schema = Schema(*iceberg_fields(pa.schema([("arrived", pa.timestamp("us")), ("shard", pa.string())])))
    table = pa.table(
        [[0, None, time], ["a", "a", "b"]], schema=pa.schema([arrow_field(each) for each in schema.fields])
    )
    file = io.BytesIO()
    pq.write_table(table, file)
    found = statistics(pq.read_metadata(file), schema, ("arrived", "shard"))
    assert (found["lower_bounds"], found["upper_bounds"]) == ({2: b"a"}, {2: b"b"})
    assert (found["value_counts"], found["null_value_counts"]) == ({1: 3, 2: 3}, {1: 1, 2: 0})


def test_a_writer_does_not_import_pandas(tmp_path: Path) -> None:
    """It has no use for it, and pyarrow.dataset imports it wherever it is installed: 50 MB in each child."""
    told: list[str] = []
    place = sql_posix(tmp_path)
    report = replay(
        [sys.executable, str(PROGRAMS / "table_memory.py")],
        generate("clickstream", records=50),
        ReplayOptions(
            stream=STREAM,
            environment={"OPTIONS": "{}", **place.environment},
            on_stderr=lambda _shard, line: told.append(line.decode()),
            restarts=0,
        ),
    )
    assert [problem for shard in report.shards for problem in shard.problems] == [], told
    assert len(place.numbers()) == 50
    (modules,) = (set(line.split()[1:]) for line in told if line.startswith("modules "))
    assert {"pyarrow.parquet", "pyiceberg.table"} <= modules
    assert not {"pandas", "pyarrow.dataset", "pyiceberg.io.pyarrow"} & modules
