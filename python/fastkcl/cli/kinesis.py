"""``fastkcl kinesis``: a look at streams, and records in and out of them by hand.

People get columns and a summary; `--json` and the formats of `tail` are for programs. A record that cannot be read or
put, or a service that cannot be reached, is one line on standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import click

from fastkcl.cli.aws import aio_session, explain, kinesis_client
from fastkcl.cli.console import show_columns
from fastkcl.cli.extras import check_extra
from fastkcl.cli.kinesis_groups import groups
from fastkcl.cli.kinesis_put import Putting
from fastkcl.cli.output import json_text, printable

if TYPE_CHECKING:
    from fastkcl.kinesis import BaseAggregator

__all__ = ["kinesis"]

_HASH_KEYS = 2**128
_SHORT = 120  # characters of raw-short


class _KinesisError(click.ClickException):
    """The service failed, or an argument is wrong. Exit code 1 is for records that the stream did not take."""

    exit_code = 2


class _Moment(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:  # noqa: ANN401
        """A time with its zone."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Service:
    """Where the streams are."""

    endpoint_url: str | None
    region: str | None

    @contextlib.contextmanager
    def explained(self, stream: str | None = None) -> Iterator[None]:
        """Turn errors of the service and the client into one line."""
        from botocore.exceptions import BotoCoreError, ClientError

        from fastkcl import DecodeError
        from fastkcl.kinesis import AnswerTooLarge, StreamDoesNotExist, StreamShardLimit, StreamStatusInvalid

        try:
            yield
        except (
            BotoCoreError,
            ClientError,
            ConnectionError,
            StreamDoesNotExist,
            StreamShardLimit,
            StreamStatusInvalid,
        ) as error:
            raise _KinesisError(explain(error, stream, self.endpoint_url)) from None
        except AnswerTooLarge as error:
            raise _KinesisError(printable(str(error))) from None
        except DecodeError as error:
            raise _KinesisError(f"the answer is not Kinesis's: {printable(str(error))}") from None


@click.group(context_settings={"max_content_width": 110})
@click.option("--endpoint-url", help="Endpoint instead of AWS.  [default: AWS_ENDPOINT_URL, or AWS]")
@click.option("--region", help="Region.  [default: as for every AWS SDK]")
@click.option("-v", "--verbose", is_flag=True, help="Log the client's calls on standard error.")
@click.version_option(package_name="fastkcl", message="fastkcl %(version)s")
@click.pass_context
def kinesis(ctx: click.Context, /, endpoint_url: str | None, region: str | None, verbose: bool) -> None:
    """Show Kinesis streams, local or real; read and put records by hand.

    \b
    Examples:
      fastkcl kinesis list
      fastkcl kinesis describe orders
      fastkcl kinesis tail orders -i TRIM_HORIZON -f json -n 10
      fastkcl kinesis groups describe billing orders -c redis
      echo '{"id": 7}' | fastkcl kinesis --endpoint-url http://127.0.0.1:4567 put orders -k customer-7

    For whole files, generated records and rates use `fastkcl put`.

    Exits with 0, 1 if records did not get into the stream, 2 if something else is wrong, 130 if interrupted.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    check_extra("kinesis", "aiobotocore", "boto3")
    if verbose:
        logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("fastkcl").setLevel(logging.DEBUG)
    ctx.obj = _Service(endpoint_url, region)


kinesis.add_command(groups)

# Streams.


@kinesis.command("list")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most streams to list.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def list_streams(service: _Service, /, limit: int, as_json: bool) -> None:
    """List the streams of an account and region."""
    with service.explained():
        client = kinesis_client(service.endpoint_url, service.region)
        streams, more = _streams(client, limit)
    if as_json:
        click.echo(json.dumps({"streams": streams, "more": more}, indent=2))
        return
    show_columns(
        ("stream", "status", "mode", "since"),
        [(s["name"], s["status"] or "", s["mode"] or "", s["created"] or "") for s in streams],
    )
    if more:
        click.echo(f"There are more than these {limit} streams: raise --limit to see them.", err=True)
    elif not streams:
        click.echo("No streams.", err=True)


def _streams(client: Any, limit: int) -> tuple[list[dict[str, Any]], bool]:  # noqa: ANN401 - boto3 has no types
    """At most `limit` streams, and whether there are more."""
    streams: list[dict[str, Any]] = []
    request: dict[str, Any] = {}
    while True:
        answer = client.list_streams(Limit=min(100, limit - len(streams)), **request)
        summaries = answer.get("StreamSummaries") or [{"StreamName": name} for name in answer["StreamNames"]]
        for summary in summaries:
            created = summary.get("StreamCreationTimestamp")
            streams.append(
                {
                    "name": summary["StreamName"],
                    "arn": summary.get("StreamARN"),
                    "status": summary.get("StreamStatus"),
                    "mode": summary.get("StreamModeDetails", {}).get("StreamMode"),
                    "created": None if created is None else created.isoformat(timespec="seconds"),
                }
            )
        if not answer["HasMoreStreams"] or len(streams) >= limit:
            return streams, bool(answer["HasMoreStreams"])
        request = {"ExclusiveStartStreamName": streams[-1]["name"]}


@kinesis.command()
@click.argument("stream")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def describe(service: _Service, /, stream: str, as_json: bool) -> None:
    """Show STREAM, a name or an ARN, and all of its shards."""
    from fastkcl.kinesis.failures import pages_of

    address = {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}
    with service.explained(stream):
        client = kinesis_client(service.endpoint_url, service.region)
        summary = client.describe_stream_summary(**address)["StreamDescriptionSummary"]
        pages = pages_of(client, "list_shards", **address)
        shards = [_shard(shard) for page in pages for shard in page["Shards"]]
    described = {
        "name": summary["StreamName"],
        "arn": summary["StreamARN"],
        "status": summary["StreamStatus"],
        "mode": summary.get("StreamModeDetails", {}).get("StreamMode"),
        "retention_hours": summary["RetentionPeriodHours"],
        "encryption": summary.get("EncryptionType", "NONE"),
        "consumers": summary.get("ConsumerCount"),
        "open_shards": sum(shard["open"] for shard in shards),
    }
    if as_json:
        click.echo(json.dumps({**described, "shards": shards}, indent=2))
        return
    for name, value in described.items():
        if value is not None:
            click.echo(f"{name.replace('_', ' '):<16}{value}")
    click.echo("")
    show_columns(
        ("shard", "state", "hash keys", "first sequence number", "parents"),
        [
            (
                shard["id"],
                "open" if shard["open"] else "closed",
                f"{(int(shard['hash_keys'][1]) - int(shard['hash_keys'][0]) + 1) / _HASH_KEYS:.2%}",
                shard["first_sequence_number"],
                " ".join(shard["parents"]),
            )
            for shard in shards
        ],
    )


def _shard(shard: dict[str, Any]) -> dict[str, Any]:
    last = shard["SequenceNumberRange"].get("EndingSequenceNumber")
    return {
        "id": shard["ShardId"],
        "open": last is None,
        "hash_keys": [shard["HashKeyRange"]["StartingHashKey"], shard["HashKeyRange"]["EndingHashKey"]],
        "first_sequence_number": shard["SequenceNumberRange"]["StartingSequenceNumber"],
        "last_sequence_number": last,
        "parents": [shard[key] for key in ("ParentShardId", "AdjacentParentShardId") if key in shard],
    }


# Records.


def _processor(name: str) -> BaseAggregator:
    from fastkcl.kinesis import JsonProcessor, StringProcessor

    return {"json": JsonProcessor, "string": StringProcessor}[name]()


_PROCESSORS = click.Choice(["json", "string"])


@kinesis.command()
@click.option("-k", "--partition-key", help="Partition key of all records.  [default: a random one for each]")
@click.option("-p", "--processor", type=_PROCESSORS, default="json", show_default=True, help="The format of a line.")
@click.option("--create", is_flag=True, help="Create the stream with one shard if it does not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@click.argument("stream")
@click.argument("data", required=False)
@click.pass_obj
@click.pass_context
def put(
    ctx: click.Context,
    service: _Service,
    /,
    partition_key: str | None,
    processor: str,
    create: bool,
    as_json: bool,
    stream: str,
    data: str | None,
) -> None:
    """Put DATA into STREAM as a record, or each line of standard input that is not empty.

    A line is a JSON value, or with `-p string` any text in UTF-8. Each line is put at most half a second after it
    arrives. Refused records are put again until the service takes them.
    """
    parse: Callable[[str], Any] = json.loads if processor == "json" else str
    putting = Putting(stream, partition_key, parse, sys.stderr.isatty())
    try:
        with service.explained(stream):
            asyncio.run(putting.run(service.endpoint_url, service.region, _processor(processor), create, data))
    except KeyboardInterrupt:
        click.echo("fastkcl: interrupted", err=True)
        putting.code = 130
    except _KinesisError as error:
        if not putting.started:
            raise
        click.echo(f"Error: {error.message}", err=True)
        putting.code = 1
    if as_json:
        click.echo(json.dumps({"stream": stream, "records": putting.records, "bytes": putting.bytes}))
    else:
        click.echo(f"{stream}: {putting.records:,} records, {putting.bytes:,} bytes")
    ctx.exit(putting.code)


@kinesis.command()
@click.option(
    "-i",
    "--iterator-type",
    type=click.Choice(["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"]),
    default="LATEST",
    show_default=True,
    help="Where to start.",
)
@click.option("--timestamp", type=_Moment(), help="Time for AT_TIMESTAMP, in ISO 8601; UTC if it has no zone.")
@click.option(
    "-f",
    "--format",
    "form",
    type=click.Choice(["json-pretty", "json", "raw", "raw-short"]),
    default="json-pretty",
    show_default=True,
    help="json writes one line for each item; raw writes text unchanged.",
)
@click.option("-p", "--processor", type=_PROCESSORS, default="json", show_default=True, help="The format of a record.")
@click.option("-n", "--max-records", type=click.IntRange(1), help="End after this many records.  [default: no limit]")
@click.argument("stream")
@click.pass_obj
@click.pass_context
def tail(
    ctx: click.Context,
    service: _Service,
    /,
    iterator_type: Literal["LATEST", "TRIM_HORIZON", "AT_TIMESTAMP"],
    timestamp: datetime | None,
    form: str,
    processor: str,
    max_records: int | None,
    stream: str,
) -> None:
    """Show the records of all shards of STREAM as they arrive.

    KPL aggregates are split into their records. A record that cannot be read is reported on standard error and skipped.
    The command stores no position: it starts anew each time.
    """
    if (iterator_type == "AT_TIMESTAMP") != (timestamp is not None):
        raise click.UsageError("--timestamp and --iterator-type AT_TIMESTAMP belong together")
    options: dict[str, Any] = {"iterator_type": iterator_type, "timestamp": timestamp}
    try:
        with service.explained(stream):
            asyncio.run(_tail(service, stream, _processor(processor), _writer(form), max_records, options))
    except KeyboardInterrupt:
        ctx.exit(130)


async def _tail(
    service: _Service,
    stream: str,
    processor: BaseAggregator,
    write: Callable[[Any], str],
    max_records: int | None,
    options: dict[str, Any],
) -> None:
    from fastkcl.kinesis import Consumer, ConsumerRecord

    def leave_out(record: ConsumerRecord, error: Exception) -> None:
        where = f"record {record.sequence_number} of {record.shard_id}"
        click.echo(f"{where} cannot be read: {printable(str(error))}", err=True)

    consumer = Consumer(
        stream,
        session=await aio_session(service.endpoint_url, service.region),
        endpoint_url=service.endpoint_url,
        region_name=service.region,
        processor=processor,
        deaggregate=True,
        idle_timeout=None,
        on_record_error=leave_out,
        **options,
    )
    shown = 0
    async with consumer:
        async for item in consumer:
            click.echo(write(item))
            shown += 1
            if shown == max_records:
                return


def _writer(form: str) -> Callable[[Any], str]:
    """How an item is written."""
    if form == "json-pretty":
        return lambda item: json_text(item, indent=2)
    if form == "json":
        return json_text
    clean = printable if sys.stdout.isatty() else str  # a terminal obeys control characters

    def raw(item: Any) -> str:  # noqa: ANN401 - of any type
        return clean(item if isinstance(item, str) else json_text(item))

    def short(item: Any) -> str:  # noqa: ANN401
        text = raw(item)
        return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."

    return raw if form == "raw" else short
