"""The same records into a table on S3, written by the children themselves: no Spark, no JVM.

    replayer ═ pipe ═▶ child for each shard ──▶ Parquet on S3 (local AWS) ──▶ polars, DuckDB

A child is killed and a shard is split here, too. Each reader counts the records, and adds up the sales.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from fastkcl.demo import lake_child
from fastkcl.demo.parts import ChildrenSaid, DemoError
from fastkcl.demo.report import Lake, LakeReader, Step
from fastkcl.replay import ReplayOptions, Source, replay

if TYPE_CHECKING:
    from fastkcl.local_aws import LocalAws

__all__ = ["can_run", "run_lake"]

_BUCKET: Final = "lake"
_URL: Final = f"s3://{_BUCKET}/clicks"
_PACKAGES: Final = ("moto", "hypercorn", "boto3", "obstore", "pyarrow")
_KEY: Final = "concat(shard, '/', sequenceNumber, '/', subSequenceNumber)"
_QUERY: Final = f"""
SELECT count(*), count(DISTINCT {_KEY}), sum(CASE WHEN type = 'purchase' THEN item.price * item.quantity END)
FROM clicks
"""


def can_run() -> bool:
    """Whether the extras ``local`` and ``s3`` are installed."""
    return all(find_spec(package) is not None for package in _PACKAGES)


def run_lake(source: Source, options: ReplayOptions) -> tuple[Lake, list[Step]]:
    """Replay to children that write a table on S3, and read it.

    Args:
        source: of the records.
        options: with the faults.

    Raises:
        DemoError: local AWS does not start.
        ReplayError: the children can't be started.
    """
    from fastkcl.local_aws import LocalAws, LocalAwsError

    with ExitStack() as stack:
        begun = time.monotonic()
        try:
            aws = stack.enter_context(LocalAws())
        except LocalAwsError as error:
            raise DemoError(str(error)) from error
        aws.client("s3").create_bucket(Bucket=_BUCKET)
        said = ChildrenSaid()
        environment = {**aws.environment, lake_child.TABLE_VARIABLE: _URL}
        played = replay(
            [sys.executable, "-m", "fastkcl.demo.lake_child"],
            source,
            replace(options, environment=environment, on_stderr=said.line),
        )
        written = time.monotonic()
        readers = [LakeReader(name, *read(aws)) for name, read in _readers()]
        lake = Lake(
            url=_URL,
            sent=sum(shard.records_sent for shard in played.shards),
            readers=readers,
            problems=[f"{shard.label}: {problem}" for shard in played.shards for problem in shard.problems],
            output=said.last,
        )
        steps = [
            Step("local AWS, and children: Arrow → Parquet on S3", written - begun, said.total(None, "written_bytes")),
            Step("    and its readers", time.monotonic() - written),
        ]
    return lake, steps


def _readers() -> list[tuple[str, Callable[[LocalAws], tuple[int, int, float]]]]:
    """Those that are installed; pyarrow is."""
    found: list[tuple[str, Callable[[LocalAws], tuple[int, int, float]]]] = []
    if find_spec("polars") is not None:
        found.append(("polars", _by_polars))
    if find_spec("duckdb") is not None:
        found.append(("DuckDB", _by_duckdb))
    return found or [("pyarrow", _by_pyarrow)]


def _by_polars(aws: LocalAws) -> tuple[int, int, float]:
    import polars as pl

    reach = {
        "aws_endpoint_url": aws.environment["AWS_ENDPOINT_URL"],
        "aws_access_key_id": aws.environment["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": aws.environment["AWS_SECRET_ACCESS_KEY"],
        "aws_region": aws.environment["AWS_REGION"],
        "aws_allow_http": "true",
    }
    item = pl.col("item").struct
    sold = (item.field("price") * item.field("quantity")).filter(pl.col("type") == "purchase").sum()
    frame = (
        pl.scan_parquet(f"{_URL}/", hive_partitioning=True, storage_options=reach)
        .select(pl.len(), pl.struct("shard", "sequenceNumber", "subSequenceNumber").n_unique().alias("n"), sold)
        .collect()
    )
    rows, distinct, revenue = frame.row(0)
    return rows, distinct, revenue


def _by_duckdb(aws: LocalAws) -> tuple[int, int, float]:
    """Over pyarrow's dataset: its own extension for S3 would be fetched from the network."""
    import duckdb

    with duckdb.connect() as connection:
        connection.register("clicks", _dataset(aws))
        found: Any = connection.execute(_QUERY).fetchone()
    rows, distinct, revenue = found
    return rows, distinct, revenue


def _by_pyarrow(aws: LocalAws) -> tuple[int, int, float]:
    import pyarrow.compute as pc

    table = _dataset(aws).to_table()
    keys = table.group_by(["shard", "sequenceNumber", "subSequenceNumber"]).aggregate([([], "count_all")])
    bought = table.filter(pc.equal(table["type"], "purchase"))["item"].combine_chunks()
    sold = pc.sum(pc.multiply(bought.field("price"), bought.field("quantity"))).as_py()
    return len(table), len(keys), sold or 0.0


def _dataset(aws: LocalAws) -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow.dataset as ds
    from pyarrow import fs

    system = fs.S3FileSystem(
        endpoint_override=aws.environment["AWS_ENDPOINT_URL"],
        access_key=aws.environment["AWS_ACCESS_KEY_ID"],
        secret_key=aws.environment["AWS_SECRET_ACCESS_KEY"],
        region=aws.environment["AWS_REGION"],
    )
    return ds.dataset(_URL.removeprefix("s3://"), filesystem=system, partitioning="hive", format="parquet")
