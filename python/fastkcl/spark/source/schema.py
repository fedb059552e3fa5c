"""The rows of the source: their schema as Spark declares it and as Arrow has it, and records made into them.

    RecordBatch ──▶ deaggregate ──▶ PayloadReader, where payloads are opened ──▶ pyarrow.RecordBatch, exactly of `arrow`

Payloads that are opened: the schema that the query declares has the columns of the objects, any columns of the record,
and ``_corrupt``, which has the payloads that do not fit. An object that needs a rule of Spark's ``from_json`` goes
there, too, unless ``_unparsed`` and ``_packed`` are declared: `fastkcl.spark.kinesis_json` parses them. Payloads with a
schema have its columns; a schema that the query declares, or that Spark has kept from an earlier plan, takes some of
them.

Rules: Spark compares the first batch of a task with the declared schema literally, so both are made from one table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from fastkcl._core import CANONICAL_COLUMNS, PayloadReader, RecordBatch, deaggregate
from fastkcl.payloads.options import SCHEMA_FORMATS
from fastkcl.spark.source.options import EXTRA_COLUMNS, TYPES, OptionError, SourceOptions
from fastkcl.spark.source.payloads import PayloadSource, check_without_payload

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField, StructType

__all__ = ["LEFT", "Rows"]

LEFT: Final = ("_corrupt", "_unparsed", "_packed")
"""Binary columns of payloads that are opened; the last two come together."""
MAX_USER_BYTES: Final = 512 << 20
"""Of the user records of an answer; one that has more is taken apart in halves."""
MAX_PAYLOAD_BYTES: Final = 32 << 20
MAX_OPENED_BYTES: Final = 64 << 20
"""Of a batch of opened payloads; one record may have more."""


class Rows:
    """How records become rows.

    Args:
        options: of the query.
        names: of the columns that are called otherwise, by ours; what is not there keeps its name.
        declared: the schema that the query gives, for payloads that are opened; None for the source's own.

    Raises:
        OptionError: a schema that cannot be, or none where one is needed.
    """

    def __init__(
        self, options: SourceOptions, names: dict[str, str] | None = None, declared: StructType | None = None
    ) -> None:
        self._names = names or {}
        self._deaggregate = options["deaggregate"]
        self._json = options["payload"] == "json"
        self._source: PayloadSource | None = None
        if options["payload"] in SCHEMA_FORMATS:
            self._source = PayloadSource(options)
        elif not self._json or options["framing"] == "none":
            check_without_payload(options)
        self._compression = options["compression"]
        if self._json and declared is None:
            raise OptionError('payload=json needs the columns of the objects: .schema("id bigint, …, _corrupt binary")')
        self.spark = declared if self._json and declared is not None else self._own(options)
        if self._source is not None:
            self.spark = _declared_of(self._with_schema(self._source), declared)
        self._fields = self._payload_fields() if self._json else None
        if self._fields is not None and not self._reader.typed and "_unparsed" not in self.spark.names:
            if any(field.name.casefold() == "data" and field.dataType.typeName() == "binary" for field in self._fields):
                raise OptionError(
                    "column data binary of the schema: payload=json has no payload beside its columns, and keeps in "
                    "_corrupt those that do not fit; for both read payload=binary, and parse data by from_json"
                )
            raise OptionError(
                "the schema has a type that only from_json parses: use fastkcl.spark.kinesis_json(spark, schema, …)"
            )
        if self._fields is not None and options["framing"] != "none":
            from pyspark.sql.types import StructType

            from fastkcl.spark.payload import arrow_schema

            columns = arrow_schema(StructType(self._fields)).serialize().to_pybytes()
            self._source = PayloadSource(options, columns)

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs; it makes the rest."""
        made = ("_reader", "arrow")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema as Arrow has it."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if "timezone" in signature(to_arrow_schema).parameters:
            return to_arrow_schema(self.spark, timezone="UTC")
        return to_arrow_schema(self.spark)  # PySpark 4.0, which takes UTC

    def of(
        self,
        batch: RecordBatch,
        stream: str,
        shard_id: str,
        hash_range: tuple[int, int] | None,
        *,
        max_bytes: int = MAX_USER_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some records of a shard.

        Args:
            batch: as GetRecords gave them.
            stream: its name.
            shard_id: which.
            hash_range: of the shard: aggregates with keys of another one are dropped.
            max_bytes: of the user records that are made at once.

        Raises:
            OverflowError: an aggregate has more.
        """
        import pyarrow as pa

        constants = {"stream": stream, "shardId": shard_id}
        for part in self._taken_apart(batch, hash_range, min(max_bytes, MAX_USER_BYTES)):
            if not len(part):
                continue
            if self._json or self._source is not None or self._compression != "none":
                for opened in self._opened(part, min(max_bytes, MAX_OPENED_BYTES)):
                    yield self._row_batch(opened, constants)
            else:
                yield self._row_batch(pa.record_batch(part), constants)

    # Schemas.

    def _own(self, options: SourceOptions) -> StructType:
        from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

        types = {"binary": BinaryType(), "string": StringType(), "bigint": LongType(), "timestamp": TimestampType()}
        fields = [StructField(self._names.get(name, name), types[TYPES[name]]) for name in options.columns]
        if self._compression != "none":
            fields.append(StructField("_corrupt", BinaryType()))
        return StructType(fields)

    def _with_schema(self, source: PayloadSource) -> StructType:
        """The columns of payloads with a schema, and those of the record."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.types import StructType

        own = {field.name: field for field in self.spark.fields}
        made = pa.schema(source.reader.columns)
        last = [*CANONICAL_COLUMNS, "_corrupt"]
        typed = [field for field in from_arrow_schema(made).fields if field.name not in last]
        kept = {name: own[name] for name in own if name != "data" or "data" in made.names}
        kept.pop("_corrupt", None)
        corrupt = [field for field in from_arrow_schema(made).fields if field.name == "_corrupt"]
        _check_apart([field.name for field in typed], [field.name for field in (*kept.values(), *corrupt)])
        return StructType([*typed, *kept.values(), *corrupt])

    def _payload_fields(self) -> list[StructField]:
        """The columns of the objects."""
        of_record = {name for name in TYPES if name != "data"}
        found = []
        for field in self.spark.fields:
            if not field.nullable:
                raise OptionError(f"column {field.name} of the schema must be nullable")
            kind = "binary" if field.name in LEFT else TYPES[field.name] if field.name in of_record else None
            if kind is None:
                found.append(field)
            elif field.dataType.simpleString() != kind:
                raise OptionError(f"column {field.name} of the schema must be {kind}: it is the record's, or is kept")
        if "_corrupt" not in self.spark.names:
            raise OptionError("the schema needs the column _corrupt binary: payloads that do not fit are kept there")
        if ("_unparsed" in self.spark.names) != ("_packed" in self.spark.names):
            raise OptionError("the columns _unparsed and _packed come together")
        folded = [field.name.casefold() for field in self.spark.fields]
        if not found or len(set(folded)) < len(folded):
            raise OptionError("the schema must have columns of the objects, each once")
        return found

    @cached_property
    def _reader(self) -> PayloadReader:
        from pyspark.sql.types import StructType

        from fastkcl.spark.payload import arrow_schema

        fields = None if self._fields is None else StructType(self._fields)
        return PayloadReader(
            json=self._json,
            schema=None if fields is None else arrow_schema(fields).serialize().to_pybytes(),
            compression=self._compression,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
        )

    # Records.

    def _taken_apart(
        self, batch: RecordBatch, hash_range: tuple[int, int] | None, max_bytes: int
    ) -> Iterator[RecordBatch]:
        if not self._deaggregate:
            yield batch
            return
        try:
            yield deaggregate(batch, hash_range, max_batch_bytes=max_bytes).batch
        except OverflowError:
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            yield from self._taken_apart(batch.slice(0, half), hash_range, max_bytes)
            yield from self._taken_apart(batch.slice(half), hash_range, max_bytes)

    def _opened(self, batch: RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        import pyarrow.compute as pc

        offset = 0
        while offset < len(batch):
            reader = self._reader if self._source is None else self._source
            opened = pa.record_batch(reader.open(batch, offset, max_bytes))
            for name in EXTRA_COLUMNS:
                if name in self.spark.names and name in (whole := pa.record_batch(batch)).schema.names:
                    opened = opened.append_column(name, whole.column(name).slice(offset, opened.num_rows))
            offset += opened.num_rows
            if "_unparsed" not in self.spark.names and "_unparsed" in opened.schema.names:
                kept = pc.coalesce(*(opened.column(name) for name in ("_corrupt", "_packed", "_unparsed")))
                opened = opened.set_column(opened.schema.get_field_index("_corrupt"), "_corrupt", kept)
            yield opened

    def _row_batch(self, table: pa.RecordBatch, constants: dict[str, str]) -> pa.RecordBatch:
        import pyarrow as pa

        ours = {theirs: name for name, theirs in self._names.items()}
        present = set(table.schema.names)
        columns: list[Any] = []
        for field in self.arrow:
            name = ours.get(field.name, field.name)
            if name in present:
                column = table.column(name)
                columns.append(column if column.type.equals(field.type) else column.cast(field.type))
            elif name in constants:
                columns.append(pa.repeat(pa.scalar(constants[name], field.type), table.num_rows))
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)


def _check_apart(typed: list[str], own: list[str]) -> None:
    """Refuse columns of payloads that Spark takes for one, as it does not distinguish case.

    Args:
        typed: of the payloads' schema.
        own: of the record.

    Raises:
        OptionError: there are such.
    """
    of_record = {name.casefold() for name in own}
    seen: dict[str, str] = {}
    for name in typed:
        folded = name.casefold()
        way = f"rename the field, or leave it out by casts={name}=drop"
        if folded in of_record:
            raise OptionError(f"the schema of the payloads has a column {name!r}, which is the record's: {way}")
        if folded in seen:
            both = f"{seen[folded]!r} and {name!r}"
            raise OptionError(f"the schema of the payloads has columns {both}, which differ by case only: {way}")
        seen[folded] = name


def _declared_of(made: StructType, declared: StructType | None) -> StructType:
    """The columns that a query over payloads with a schema has: all, or those that it declares.

    Spark asks for the columns first and for a reader later, in another process. A version registered in between
    adds columns, which this query leaves out.

    Raises:
        OptionError: a declared column is not there, has another type, or `_corrupt` is not among them.
    """
    if declared is None:
        return made
    types = {field.name: field.dataType.simpleString() for field in made.fields}
    for field in declared.fields:
        kind, there = field.dataType.simpleString(), types.get(field.name, "not there")
        if kind != there:
            raise OptionError(
                f"column {field.name} {kind} of the query: by the option schema it is {there}. "
                "Leave .schema(…) out; with latest:NAME start the query again, as there may be a newer version"
            )
        if not field.nullable:
            raise OptionError(f"column {field.name} of the schema must be nullable")
    if "_corrupt" not in declared.names:
        raise OptionError("the schema needs the column _corrupt binary: payloads that cannot be opened are kept there")
    return declared
