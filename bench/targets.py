"""The targets of this project's speed, as data: the two sides of each comparison, and the value to reach.

A value is a ratio of medians of one run, or a median; its spread is that of the same ratio round by round.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from results import Result, Results

__all__ = ["TARGETS", "Outcome", "Side", "Target"]

PROFILES = ("iot", "clickstream", "logs", "blob")


@dataclass(frozen=True)
class Side:
    """Of what a figure is taken. Without `profile` the one that the bound is for."""

    suite: str
    peer: str
    profile: str | None = None


@dataclass(frozen=True)
class Target:
    """One line of the table.

    Attributes:
        what: for people; ends with what the number is.
        ours: what is measured.
        figure: a key of `results.FIGURES`.
        bounds: by profile.
        at_least: or at most.
        against: what it is divided by; with `difference` what is taken off.
        scale: of the value, e.g. 1e3 for milliseconds.
        unit: written after the value.
    """

    what: str
    ours: Side
    figure: str
    bounds: dict[str, float]
    at_least: bool = True
    against: Side | None = None
    difference: bool = False
    scale: float = 1.0
    unit: str = ""

    def outcomes(self, results: Results) -> dict[str, Outcome]:
        """By profile; the result is None where something was not measured."""
        return {profile: Outcome(self, bound, self._result(results, profile)) for profile, bound in self.bounds.items()}

    def _figures(self, results: Results, side: Side, profile: str) -> list[float]:
        row = results.rows.get((side.suite, side.profile or profile))
        return [] if row is None else row.figures(side.peer, self.figure)

    def _result(self, results: Results, profile: str) -> Result | None:
        ours = [value * self.scale for value in self._figures(results, self.ours, profile)]
        if self.against is None or not ours:
            return Result.of(ours) if ours else None
        others = [value * self.scale for value in self._figures(results, self.against, profile)]
        if not others:
            return None
        pairs = list(zip(ours, others, strict=False))
        if self.difference:
            return Result.of([a - b for a, b in pairs], median(ours) - median(others))
        return Result.of([a / b for a, b in pairs], median(ours) / median(others))


@dataclass(frozen=True)
class Outcome:
    """A target for one profile, and what was measured."""

    target: Target
    bound: float
    result: Result | None

    @property
    def met(self) -> bool | None:
        """None where nothing was measured."""
        if self.result is None:
            return None
        return self.result.median >= self.bound if self.target.at_least else self.result.median <= self.bound


def _all(*bounds: float) -> dict[str, float]:
    return dict(zip(PROFILES, bounds, strict=True))


def _paced(bound: float) -> dict[str, float]:
    return dict.fromkeys(("3 KB", *PROFILES), bound)


_DECODE = Side("decode", "fastkcl")
_TWO = "pipe, two cores, 8 KiB writes"
_ONE = "pipe, one core, 1 MiB writes"
_WARM, _COLD = "codec, warm", "codec, cold"
_CODEC = "codec avx512"
_ANY_ORDER = dict.fromkeys(("iot-shuffled", "clickstream-shuffled", "iot-spaced", "clickstream-spaced"), 1.0)
_MARKERS = ("EOM of 1 byte", "EOM of 3 bytes")
_CONSUMER, _PRODUCER = "consumer, stub", "producer, stub"
_CONSUMER_LOCAL = "consumer, local AWS"
_PROCESSORS = ("StringProcessor", "JsonLineProcessor", "KPLStringProcessor")
_LOOP = Side("payloads, one core", "fastkcl.kclpy")
_SOURCE, _SOURCE_JSON = Side("source, Parquet", "fastkcl"), Side("source, JSON of 500 B", "payload=json")
_SOURCE_AVRO = "source, Avro, clicks of 300 B"
_SIZES = ("100 B", "500 B", "12.5 kB")
_SIMDJSON, _SIMDJSON_ANY = "simdjson, fixed order", "simdjson, any order"

_SCHEMA = "payloads with a schema"
_CONNECT = "SparkProcessor and ParquetSink over Connect"
_MANY = Side("tables, many writers", "fastkcl")
_TABLES = tuple(f"{kind}, {where}" for where in ("disk", "S3") for kind in ("ParquetTable", "DeltaTable"))

TARGETS = (
    Target(
        "line to pyarrow.RecordBatch: speed, of msgspec's",
        _DECODE, "speed", _all(18, 18, 20, 22), against=Side("decode", "msgspec"),
    ),
    Target(
        "line to pyarrow.RecordBatch: speed, of amazon_kclpy's",
        _DECODE, "speed", _all(60, 80, 80, 80), against=Side("decode", "amazon_kclpy"),
    ),
    Target(
        "GetRecords answer to pyarrow.RecordBatch: speed, of botocore's parser's",
        Side("get_records", "fastkcl"), "speed", {"iot": 100, "logs": 20}, against=Side("get_records", "botocore"),
    ),
    Target(
        "codec alone: speed, of simdjson On-Demand (fixed order) + simdutf",
        Side(_WARM, _CODEC), "speed", _all(2, 2, 2, 2.5), against=Side(_WARM, _SIMDJSON),
    ),
    Target(
        "codec alone, input not in cache: speed, of memcpy's",
        Side(_COLD, _CODEC), "speed", _all(0.4, 0.7, 0.9, 1.0), against=Side(_COLD, "memcpy"),
    ),
    Target(
        "codec alone: speed, of a scanner that checks nothing",
        Side(_WARM, _CODEC), "speed", _all(0.8, 0.85, 0.9, 0.9), against=Side(_WARM, "unchecked"),
    ),
    Target(
        "child on a pipe, two cores, 8 KiB writes: speed, of the bare reader's",
        Side(_TWO, "fastkcl"), "speed", _all(0.5, 0.7, 0.9, 0.9), against=Side(_TWO, "bare reader"),
    ),
    Target(
        "child on a pipe, one core, 1 MiB writes: speed, of the bare reader's",
        Side(_ONE, "fastkcl"), "speed", _all(0.53, 0.67, 0.75, 0.75), against=Side(_ONE, "bare reader"),
    ),
    Target(
        "CPU for a GB in that child, of the bare reader's",
        Side(_ONE, "fastkcl"), "cpu", _all(2.4, 1.9, 1.6, 1.6), at_least=False, against=Side(_ONE, "bare reader"),
    ),
    Target(
        "CPU for a GB: amazon_kclpy's, of that child's",
        Side(_ONE, "amazon_kclpy"), "cpu", _all(30, 25, 18, 18), against=Side(_ONE, "fastkcl"),
    ),
    Target(
        "codec alone, escaped and non-ASCII keys: speed, of clickstream's",
        Side(_WARM, _CODEC), "speed", {"keys": 0.4}, against=Side(_WARM, _CODEC, "clickstream"),
    ),
    Target("codec alone, tiny records", Side(_WARM, _CODEC), "nanoseconds", {"tiny": 40}, at_least=False, unit=" ns"),
    Target(
        "codec alone, other key orders and white space: speed, of simdjson (any order) + simdutf",
        Side(_WARM, _CODEC), "speed", _ANY_ORDER, against=Side(_WARM, _SIMDJSON_ANY),
    ),
    Target(
        "codec alone, AVX2: speed, of AVX-512's",
        Side(_WARM, "codec avx2"), "speed", {"clickstream": 0.5}, against=Side(_WARM, _CODEC),
    ),
    Target(
        "codec alone, portable: speed, of AVX-512's",
        Side(_WARM, "codec portable"), "speed", {"clickstream": 0.12}, against=Side(_WARM, _CODEC),
    ),
    Target(
        "last byte of a 15 MB line to its status, two cores",
        Side("last byte to status, two cores", "fastkcl"), "seconds", _all(0.3, 0.3, 0.3, 0.3), at_least=False,
        scale=1e3, unit=" ms",
    ),
    Target(
        "last byte of a 15 MB line to its status, one core",
        Side("last byte to status, one core", "fastkcl"), "seconds", _all(0.3, 0.3, 0.3, 0.3), at_least=False,
        scale=1e3, unit=" ms",
    ),
    Target(
        "exec to the answer to initialize: time, of amazon_kclpy's",
        Side("start-up", "fastkcl"), "seconds", {"until initialized": 1.5}, at_least=False,
        against=Side("start-up", "amazon_kclpy"),
    ),
    Target(
        "the same for the drop-in",
        Side("start-up", "fastkcl.kclpy"), "seconds", {"until initialized": 1.5}, at_least=False,
        against=Side("start-up", "amazon_kclpy"),
    ),
    Target(
        "memory after a 15 MB batch and 5 s idle: more than amazon_kclpy's",
        Side("memory", "fastkcl"), "idle_resident_bytes", _all(2, 2, 2, 2), at_least=False,
        against=Side("memory", "amazon_kclpy"), difference=True, scale=1e-6, unit=" MB",
    ),
    *(
        Target(
            f"import of {module}: time, of amazon_kclpy's",
            Side("install", module), "seconds", {"import": bound}, at_least=False,
            against=Side("install", "amazon_kclpy"),
        )
        for module, bound in (("fastkcl", 0.4), ("fastkcl.kclpy", 0.75))
    ),
    Target(
        "the wheel for this machine", Side("install", "fastkcl"), "wheel_bytes", {"import": 3.5}, at_least=False,
        scale=1e-6, unit=" MB",
    ),
    Target(
        "CPU of 200 idle children together over 60 s, of one core",
        Side("idle children", "fastkcl"), "core_share", {"200 children": 0.1}, at_least=False, scale=1e2, unit=" %",
    ),
    *(
        Target(
            f"a line every {pace:g} s: {what}, of a child's that gives memory back after 0.1 s",
            Side(f"paced, a line every {pace:g} s", "memory back after 2.5 s"), figure, _paced(bound), at_least=False,
            against=Side(f"paced, a line every {pace:g} s", "memory back after 0.1 s"),
        )
        for pace, cpu, latency in ((0.2, 0.5, 0.6), (1, 0.5, 0.6), (5, 1.05, 1.05))
        for what, figure, bound in (("CPU", "cpu_of_line", cpu), ("first byte to status", "seconds", latency))
    ),
    *(
        Target(
            f"a line every {pace:g} s: CPU, of amazon_kclpy's",
            Side(f"paced, a line every {pace:g} s", name), "cpu_of_line", _paced(bound), at_least=False,
            against=Side(f"paced, a line every {pace:g} s", "amazon_kclpy"),
        )
        for pace in (0.2, 1, 5)
        for name, bound in (("fastkcl", 1.0),)
    ),
    Target(
        "drop-in, per-record loop on one core: speed, of amazon_kclpy's",
        _LOOP, "speed", {"iot": 10, "clickstream": 10}, against=Side("payloads, one core", "amazon_kclpy"),
    ),
    *(
        Target(
            f"drop-in, {program} on one core: speed, of amazon_kclpy's",
            Side(f"{program}, one core", "fastkcl.kclpy"), "speed", {"clickstream": 4},
            against=Side(f"{program}, one core", "amazon_kclpy"),
        )
        for program in ("version 1, get and b64decode", "version 2, get and b64decode")
    ),
    Target(
        "drop-in, per-record loop on one core: speed, of the bare reader's",
        _LOOP, "speed", {"logs": 0.8, "blob": 0.8}, against=Side("payloads, one core", "bare reader"),
    ),
    Target(
        "DKB messages of 1 KiB to Arrow columns: speed, of a framer in pure Python",
        Side("framing in Python", "fastkcl, columns"), "speed", dict.fromkeys(_MARKERS, 50.0),
        against=Side("framing in Python", "pure Python"),
    ),
    *(
        Target(
            f"daemon's line to a committed file, {table}: CPU s of all processes for a GB of payloads",
            Side("tables", table), "cpu_per_gb", dict(zip(_SIZES, (8, 4, 3), strict=True)), at_least=False,
        )
        for table in _TABLES
    ),
    *(
        Target(
            f"the same: CPU of Connect, of {table}'s",
            Side("tables", _CONNECT), "cpu_per_gb", dict.fromkeys(_SIZES, 8.0), against=Side("tables", table),
        )
        for table in _TABLES
    ),
    *(
        Target(
            f"start-up of a child of {table.removesuffix(', disk')} to {status}: time, of SparkProcessor's",
            Side("tables, start-up", table), figure, {"until initialized": 1.2}, at_least=False,
            against=Side("tables, start-up", _CONNECT),
        )
        for table in _TABLES if table.endswith("disk")
        for status, figure in (("the answer to initialize", "seconds"), ("its first batch", "first_batch_seconds"))
    ),
    Target(
        "32 writers of one table: writes a second",
        _MANY, "writes_a_second", {"Delta, one host": 20, "Iceberg, one host": 10, "Parquet": 100},
    ),
    Target(
        "32 writers of one Delta or Iceberg table: 95 of 100 writes within",
        _MANY, "seconds_of_95_percent", {"Delta, one host": 3, "Iceberg, one host": 3}, at_least=False, unit=" s",
    ),
    Target(
        "two hosts of 16 writers of one Delta or Iceberg table: the slowest write",
        _MANY, "longest_seconds", {"Delta, two hosts": 60, "Iceberg, two hosts": 60}, at_least=False, unit=" s",
    ),
    Target(
        "Avro payloads to columns: time, of fastavro's, dictionaries and pyarrow",
        Side(_SCHEMA, "fastkcl"), "seconds", {"avro": 1 / 15}, at_least=False,
        against=Side(_SCHEMA, "fastavro, dictionaries, pyarrow"),
    ),
    Target(
        "Protobuf payloads to columns: time, of protobuf's, dictionaries and pyarrow",
        Side(_SCHEMA, "fastkcl"), "seconds", {"protobuf": 1 / 20}, at_least=False,
        against=Side(_SCHEMA, "protobuf, dictionaries, pyarrow"),
    ),
    Target(
        "payloads with a schema, half of all cut short: time, of none",
        Side(_SCHEMA, "fastkcl, half of all cut short"), "seconds", {"avro": 3, "protobuf": 3}, at_least=False,
        against=Side(_SCHEMA, "fastkcl"),
    ),
    Target(
        "consumer of GetRecords, calls answered at once: items a second, of async-kinesis'",
        Side(_CONSUMER, "fastkcl, items"), "speed", {"iot": 20}, against=Side(_CONSUMER, "async-kinesis"),
    ),
    Target(
        "the same in batches: records a second, of async-kinesis'",
        Side(_CONSUMER, "fastkcl, batches"), "speed", {"iot": 200}, against=Side(_CONSUMER, "async-kinesis"),
    ),
    Target(
        "consumer over local AWS: items a second, of async-kinesis'",
        Side(_CONSUMER_LOCAL, "fastkcl, items"), "speed", {"iot": 20}, against=Side(_CONSUMER_LOCAL, "async-kinesis"),
    ),
    Target(
        "producer, calls answered at once: items a second, of async-kinesis'",
        Side(_PRODUCER, "fastkcl"), "speed", dict.fromkeys(_PROCESSORS, 1.0), against=Side(_PRODUCER, "async-kinesis"),
    ),
    Target(
        "Spark source to Parquet: CPU s of a GB more",
        _SOURCE, "cpu_per_gb", dict(zip(_SIZES, (18, 6, 3), strict=True)), at_least=False,
    ),
    Target(
        "the same, more than Spark given ready batches",
        _SOURCE, "cpu_per_gb", dict(zip(_SIZES, (4, 1.5, 1.2), strict=True)), at_least=False,
        against=Side("source, Parquet", "ready batches"), difference=True,
    ),
    Target(
        "the same, of run_processors' and Connect's",
        _SOURCE, "cpu_per_gb", dict.fromkeys(_SIZES, 1 / 3), at_least=False,
        against=Side("source, Parquet", "run_processors and Connect"),
    ),
    Target(
        "the same, of boto3's in mapInPandas",
        _SOURCE, "cpu_per_gb", dict(zip(_SIZES, (1 / 5, 1 / 5, 1 / 4), strict=True)), at_least=False,
        against=Side("source, Parquet", "boto3 in mapInPandas"),
    ),
    Target(
        "the same, of awslabs' connector's",
        _SOURCE, "cpu_per_gb", dict(zip(_SIZES, (1 / 2.5, 1 / 2, 1 / 1.3), strict=True)), at_least=False,
        against=Side("source, Parquet", "awslabs' connector"),
    ),
    Target(
        "Spark source, JSON to typed columns in noop: CPU, of from_json's",
        _SOURCE_JSON, "cpu_per_gb", {"noop": 0.5}, at_least=False,
        against=Side("source, JSON of 500 B", "from_json"),
    ),
    Target(
        "Spark source, Avro to typed columns in noop: CPU, of from_avro's",
        Side(_SOURCE_AVRO, "payload=avro"), "cpu_per_gb", {"noop": 0.5}, at_least=False,
        against=Side(_SOURCE_AVRO, "from_avro"),
    ),
    *(
        Target(
            f"Spark source, a small batch of 16 shards {way}: CPU, of the rate source's with two tasks",
            Side("source, batch", way), "cpu_per_batch", {"16 shards": bound}, at_least=False,
            against=Side("source, batch", "rate, 2 tasks"),
        )
        for way, bound in (("inline", 1.3), ("by range", 1.6))
    ),
    Target(
        "Spark source: s from a put to its row",
        Side("source, latency", "fastkcl"), "put_to_row_seconds", {"4 shards": 0.6}, at_least=False,
    ),
    Target(
        "Spark source, idle: % of a core",
        Side("source, idle", "fastkcl"), "core_share", {"8 shards": 4.0}, at_least=False, scale=1e2,
    ),
    *(
        Target(
            f"Spark source, the {which} plan: {what}",
            Side("source, plan", "fastkcl"), figure, {"1000 shards": bound}, at_least=False,
        )
        for which, what, figure, bound in (
            ("first", "s", "first_plan_seconds", 2.0),
            ("next", "s", "next_plan_seconds", 1.0),
            ("first", "GetRecords a shard", "first_calls_a_shard", 2.0),
            ("next", "GetRecords a shard", "next_calls_a_shard", 2.0),
        )
    ),
)  # fmt: skip
"""All of them, in the order of the table."""
