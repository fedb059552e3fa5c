"""``fastkcl put``: fills a stream of Kinesis, local or real."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastkcl.cli.aws import explain, kinesis_client
from fastkcl.cli.extras import check_extra, without_extra
from fastkcl.cli.numbers import MOST_RATE, FiniteRange
from fastkcl.cli.output import printable
from fastkcl.cli.payloads import encoded_source, write_options
from fastkcl.replay import Source, SourceError, from_records, generate
from fastkcl.replay.profiles import PROFILES

if TYPE_CHECKING:
    from fastkcl.kinesis import PutReport, UserRecord

__all__ = ["put"]

_BLOCK = 1000  # records that are made at a time


class _InputError(click.ClickException):
    """An argument or a record is wrong, or AWS failed. Exit code 1 is for records that the stream did not take."""

    exit_code = 2


@click.command()
@click.option(
    "--input",
    "records_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Put the records of a JSON lines or Parquet file.",
)
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Generate records of this kind.")
@click.option(
    "--records", type=click.IntRange(1), help="Number of generated records.  [default: ten batches of the profile]"
)
@click.option("--seed", type=int, help="Seed of the generated records.  [default: 0]")
@click.option(
    "--aggregate", is_flag=True, help="Put KPL aggregates, one shard's records in each; readers split them again."
)
@click.option("--ordered", is_flag=True, help="Keep the order within a key, even if the service refuses records.")
@click.option("--rate", type=FiniteRange(0, MOST_RATE, least_open=True), help="Records a second.  [default: no limit]")
@click.option(
    "--bytes-rate", type=FiniteRange(0, MOST_RATE, least_open=True), help="Bytes a second.  [default: no limit]"
)
@click.option(
    "--create",
    "create",
    type=click.IntRange(1, 10_000),
    metavar="SHARDS",
    help="Create the stream if it does not exist.",
)
@click.option("--endpoint-url", help="Endpoint instead of AWS.  [default: AWS_ENDPOINT_URL, or AWS]")
@click.option("--region", help="Region.  [default: as for every AWS SDK]")
@write_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@click.argument("stream")
@click.pass_context
def put(
    ctx: click.Context,
    /,
    records_file: Path | None,
    profile: str | None,
    records: int | None,
    seed: int | None,
    aggregate: bool,
    ordered: bool,
    rate: float | None,
    bytes_rate: float | None,
    create: int | None,
    endpoint_url: str | None,
    region: str | None,
    as_json: bool,
    stream: str,
    **payload: Any,  # noqa: ANN401 - the options of write_options
) -> None:
    """Put records into STREAM, from a file or generated.

    The file has the same format as for `fastkcl replay --input`: JSON lines (.gz) with data in base64 and partitionKey,
    or Parquet with these columns. Its sequence numbers and times are not used: the stream assigns new ones.

    Calls are as large as the service allows. Refused records are put again, in order and before any others, so every
    record is put at least once. Without --ordered, a record can overtake an earlier record of its key that was refused.

    \b
    Examples:
      fastkcl put orders --profile clickstream --create 4 --endpoint-url http://127.0.0.1:4567
      fastkcl put orders --input orders.jsonl --aggregate
      fastkcl put orders --profile iot --records 1000000 --rate 5000
      fastkcl put orders --input orders.jsonl --payload avro --schema order.avsc --framing glue --registry glue
        --schema-name shop/order

    Exits with 0 if all are in the stream, 1 if some are not, 2 if it could not begin, 130 if interrupted.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    check_extra("kinesis", "boto3")
    with without_extra("kinesis"):
        from botocore.exceptions import BotoCoreError, ClientError

        from fastkcl.kinesis import Filler, PutError, PutOptions, PutReport

    source = _source(records_file, profile, records, seed)
    filler: Filler | None = None
    code = 0
    try:
        source = encoded_source(source, payload, endpoint_url, region)
        client = kinesis_client(endpoint_url, region)
        max_record_bytes = _prepare(client, stream, create)
        count, users = _open(source)
        options = PutOptions(
            aggregate=aggregate,
            ordered=ordered,
            rate=rate,
            bytes_rate=bytes_rate,
            max_record_bytes=max_record_bytes,
        )
        with _progress(count) as on_progress:
            filler = Filler(client, stream, options, on_progress=on_progress)
            filler.put(users)
    except PutError as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        code = 1
    except SourceError as error:
        if filler is None or not filler.report.calls:
            raise _InputError(str(error)) from None
        click.echo(f"Error: {error}", err=True)
        code = 1
    except (BotoCoreError, ClientError, ConnectionError) as error:
        message = explain(error, stream, endpoint_url)
        if filler is None:
            raise _InputError(message) from None
        click.echo(f"Error: {message}", err=True)
        code = 1
    except KeyboardInterrupt:
        click.echo("fastkcl: interrupted", err=True)
        code = 130
    report = PutReport() if filler is None else filler.report
    if as_json:
        click.echo(json.dumps(_as_json(stream, report), indent=2))
    else:
        _show(stream, report)
    ctx.exit(code)


# Records.


def _source(records_file: Path | None, profile: str | None, records: int | None, seed: int | None) -> Source:
    if (records_file is None) == (profile is None):
        raise click.UsageError("records come from --input FILE or from --profile NAME: give one of them")
    if records_file is not None:
        for option, value in (("--records", records), ("--seed", seed)):
            if value is not None:
                raise click.UsageError(f"{option} is for generated records; the file brings its own")
        try:
            return from_records(records_file)
        except SourceError as error:
            raise _InputError(str(error)) from None
    assert profile is not None
    return generate(profile, records=10 * PROFILES[profile].records if records is None else records, seed=seed or 0)


def _open(source: Source) -> tuple[int, Iterator[UserRecord]]:
    """How many there are, and they."""
    from fastkcl.kinesis import UserRecord

    (shard,) = source.shards()
    count = len(shard.records)

    def users() -> Iterator[UserRecord]:
        for start in range(0, count, _BLOCK):
            columns = shard.records.columns(start, min(start + _BLOCK, count))
            for index, (key, data) in enumerate(zip(columns.partition_keys, columns.data, strict=True), start):
                if data is None:
                    raise SourceError(f"record {index}: its data is null; a stream cannot hold that")
                yield UserRecord(key, data)

    return count, users()


# The service.


def _prepare(client: Any, stream: str, create: int | None) -> int:  # noqa: ANN401
    """Check that the stream exists. Returns the size limit of its records in bytes."""
    try:
        summary = client.describe_stream_summary(StreamName=stream)
    except client.exceptions.ResourceNotFoundException:
        if create is None:
            raise
        client.create_stream(StreamName=stream, ShardCount=create)
    else:
        if summary["StreamDescriptionSummary"]["StreamStatus"] in ("ACTIVE", "UPDATING"):
            return _max_record_bytes(summary)
    client.get_waiter("stream_exists").wait(StreamName=stream, WaiterConfig={"Delay": 1, "MaxAttempts": 300})
    return _max_record_bytes(client.describe_stream_summary(StreamName=stream))


def _max_record_bytes(summary: dict[str, Any]) -> int:
    return int(summary["StreamDescriptionSummary"].get("MaxRecordSizeInKiB", 1024)) * 1024


# Output for people and tools.


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[PutReport], None]]:
    """A bar on standard error where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda report: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from fastkcl.cli.console import Console

    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TextColumn("{task.fields[megabytes]:,.1f} MB"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="yellow"),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=count, megabytes=0.0, note="")

    def on_progress(report: PutReport) -> None:
        refused = report.refused.total()
        note = f"{refused:,} refused at first" if refused else ""
        bar.update(task, completed=report.users, megabytes=report.bytes / 1e6, note=note)

    with bar:
        yield on_progress


def _as_json(stream: str, report: PutReport) -> dict[str, Any]:
    return {
        "stream": stream,
        "user_records": report.users,
        "records": report.records,
        "bytes": report.bytes,
        "calls": report.calls,
        "refused": dict(report.refused),
        "put_again_after_reshard": report.moved,
        "shards": dict(sorted(report.shards.items())),
        "seconds": round(report.seconds, 3),
    }


def _show(stream: str, report: PutReport) -> None:
    aggregates = f" in {report.records:,} of Kinesis" if report.records != report.users else ""
    rate = report.bytes / 1e6 / report.seconds if report.seconds else 0.0
    click.echo(
        f"{stream}: {report.users:,} records{aggregates}, {report.bytes / 1e6:,.1f} MB in {report.calls:,} calls and "
        f"{report.seconds:.2f} s ({rate:,.1f} MB/s)"
    )
    for shard_id, count in sorted(report.shards.items()):
        click.echo(f"  {shard_id}  {count:,}")
    for code, count in report.refused.most_common():
        click.echo(f"  refused at first, and put again: {count:,} by {code}")
    if report.moved:
        click.echo(f"  put again, as the stream was resharded under their aggregates: {report.moved:,}")
