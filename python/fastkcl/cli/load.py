"""``fastkcl load``: reads a stream into a table until it is stopped, each record exactly once."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from fastkcl.cli.catalogs import catalog_option, properties_of
from fastkcl.cli.extras import check_extra, without_extra
from fastkcl.cli.load_display import Display, LineDisplay, TableDisplay, count, logged_to
from fastkcl.cli.load_state import Look, Shards
from fastkcl.cli.numbers import MOST_SECONDS, FiniteRange
from fastkcl.cli.payload_options import payload_options
from fastkcl.cli.prometheus import Address, AddressType, serving
from fastkcl.cli.table_formats import FORMATS, offered

if TYPE_CHECKING:
    from fastkcl.cli.load_run import Plan
    from fastkcl.kinesis import MetricsCollector

__all__ = ["load"]

_APPLICATION = re.compile(r"[A-Za-z0-9_.-]{3,255}", re.ASCII)


class _LoadError(click.ClickException):
    """The run could not start. Exit code 1 is for a run that an error has ended."""

    exit_code = 2


@click.command()
@click.argument("stream")
@click.argument("url")
@click.option(
    "--format", "form", type=click.Choice(offered()), default="parquet", show_default=True, help="Format of the table."
)
@click.option(
    "--application",
    help="Name of the lease table; processes with the same name share the shards.  [default: from stream and URL]",
)
@payload_options
@click.option(
    "-i",
    "--iterator-type",
    type=click.Choice(["TRIM_HORIZON", "LATEST"]),
    default="TRIM_HORIZON",
    show_default=True,
    help="Where to start a shard that has no position yet.",
)
@click.option(
    "--max-age", type=FiniteRange(0, MOST_SECONDS, least_open=True), help="Commit every S seconds.  [default: 60]"
)
@click.option(
    "--max-bytes", type=click.IntRange(1), help="Commit after this many bytes of a shard.  [default: 16777216, 16 MiB]"
)
@click.option(
    "--max-shards", type=click.IntRange(1), help="Most shards of this process.  [default: an even share of all]"
)
@click.option("--stop-at-tip", is_flag=True, help="End when each shard was read to its newest record.")
@click.option(
    "--idle-timeout",
    type=FiniteRange(0, MOST_SECONDS, least_open=True),
    help="End when no record has arrived for S seconds.",
)
@click.option(
    "--retry-for",
    type=FiniteRange(0, MOST_SECONDS),
    default=86_400.0,
    show_default=True,
    help="Seconds to keep trying while the stream or the table's storage is away.",
)
@click.option(
    "--accept-gap", is_flag=True, help="Continue if checkpoints are after the table's position: the table is new."
)
@catalog_option
@click.option(
    "--add-columns",
    is_flag=True,
    help="Delta, Iceberg: add columns that the table does not have, instead of refusing them.",
)
@click.option(
    "--region", help="Region of the stream, the lease table, the bucket and Glue.  [default: as for every AWS SDK]"
)
@click.option(
    "--endpoint-url",
    envvar="AWS_ENDPOINT_URL",
    help="Endpoint for Kinesis, DynamoDB, S3 and Glue instead of AWS.  [env: AWS_ENDPOINT_URL]",
)
@click.option(
    "--s3-endpoint-url",
    help="Endpoint for S3 only.  [default: FASTKCL_S3_ENDPOINT, AWS_ENDPOINT_URL_S3 or --endpoint-url]",
)
@click.option("--s3-region", help="Region of the bucket, if it differs.")
@click.option(
    "--prometheus", type=AddressType(), help="Serve metrics at http://HOST:PORT/metrics; HOST is 127.0.0.1 by default."
)
@click.option("-v", "--verbose", is_flag=True, help="Log each commit, and each shard that is taken or given up.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on standard output.")
@click.pass_context
def load(ctx: click.Context, /, stream: str, url: str, verbose: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Read STREAM into the table at URL until it is stopped. Each record is there exactly once, whatever dies.

    URL is a folder, or s3://bucket/table. The table is created if it does not exist. Processes with the same STREAM and
    URL, on any number of hosts, share the shards by leases in DynamoDB. If one ends or dies, the others take its
    shards. During an outage of the stream or of the storage it waits and tries again. It holds a bounded amount in
    memory, and the rest stays in the stream.

    On a terminal it shows a table of the shards; otherwise it writes a line every 10 s to standard error. SIGTERM and
    Ctrl-C end it after a last commit. A second signal ends it at once, and no record is lost.

    \b
    Examples:
      fastkcl load clicks s3://lake/clicks
      fastkcl load clicks s3://lake/clicks --payload json --schema clicks.txt --max-age 300
      fastkcl load clicks /data/clicks --stop-at-tip --json
      fastkcl load clicks s3://lake/clicks --prometheus 0.0.0.0:9400
      fastkcl load clicks db.clicks --format iceberg --catalog type=glue --catalog warehouse=s3://lake/warehouse

    Exits with 0 if it was stopped or has reached its end, 1 if an error ended it, 2 if it could not start.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    check_extra("kinesis", "aiobotocore", "boto3")
    from fastkcl.cli.load_run import Plan

    catalog = properties_of(options.pop("catalog"))
    where = " ".join([url, *(catalog[name] for name in ("name", "type", "uri", "warehouse") if name in catalog)])
    plan = Plan(
        stream=stream,
        url=url,
        catalog=catalog,
        form=FORMATS[options.pop("form")],
        application=_application(options.pop("application"), stream, where),
        **options,
    )
    ctx.exit(_run(plan, verbose=verbose, as_json=as_json))


def _application(given: str | None, stream: str, url: str) -> str:
    """The application's name: given, or the same one for the same stream and table."""
    name = given
    if name is None:
        where = hashlib.sha256(f"{stream} {url.rstrip('/')}".encode()).hexdigest()[:8]
        name = f"load-{stream.rpartition('/')[2]}-{where}"
    if not _APPLICATION.fullmatch(name):
        raise click.UsageError(f"--application {name!r}: 3 to 255 of A-Z, a-z, 0-9, _, . and -: it names a table")
    return name


def _run(plan: Plan, *, verbose: bool, as_json: bool) -> int:
    from fastkcl.cli.console import Console
    from fastkcl.cli.load_run import Loading, explained, prepare

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    shards = Shards()
    begun = time.monotonic()

    def look() -> Look:
        return shards.look(time.monotonic())

    error: str | None = None
    try:
        try:
            prepared = prepare(plan)
        except Exception as raised:
            raise _LoadError(explained(raised, plan)) from None
        with ExitStack() as stack:
            served, collector = stack.enter_context(_metrics(plan.prometheus, shards))
            display: Display = (TableDisplay if console.is_terminal else LineDisplay)(console, look)
            stack.callback(display.stop)
            stack.enter_context(logged_to(display.write, verbose=verbose))
            display.write(
                f"fastkcl load: {prepared.name} into {prepared.table_url}, application {plan.application}{served}"
            )
            try:
                asyncio.run(Loading(plan, prepared, shards, display, collector).run())
            except Exception as raised:
                error = explained(raised, plan)
    except KeyboardInterrupt:
        click.echo("fastkcl: interrupted", err=True)
        return 130
    if error is not None:
        click.echo(f"Error: {error}", err=True)
    _show(plan, look(), time.monotonic() - begun, error, as_json=as_json)
    return 0 if error is None else 1


@contextmanager
def _metrics(address: Address | None, shards: Shards) -> Iterator[tuple[str, MetricsCollector | None]]:
    """Serve metrics if an address is given; the note for the first line, and the collector of the clients."""
    if address is None:
        yield "", None
        return
    with without_extra("prometheus"):
        import prometheus_client  # noqa: F401 - only to see whether it is there
    with ExitStack() as stack:
        try:
            url, collector = stack.enter_context(serving(address, lambda: shards.metrics))
        except OSError as error:
            raise _LoadError(f"--prometheus {address.host}:{address.port}: {error.strerror or error}") from None
        yield f", metrics at {url}", collector


def _show(plan: Plan, look: Look, seconds: float, error: str | None, *, as_json: bool) -> None:
    if as_json:
        found = {
            "stream": plan.stream,
            "table": plan.url,
            "application": plan.application,
            "rows": look.rows,
            "bytes": look.bytes,
            "commits": look.commits,
            "corrupt_payloads": look.corrupt,
            "failed_writes": look.failures,
            "shards": look.rows_by_shard,
            "seconds": round(seconds, 3),
            "error": error,
        }
        click.echo(json.dumps(found, indent=2))
        return
    corrupt = f", {count(look.corrupt, 'payload')} of them in _corrupt" if look.corrupt else ""
    click.echo(
        f"{plan.stream}: {count(look.rows, 'row')} ({look.bytes / 1e6:,.1f} MB) of"
        f" {count(len(look.rows_by_shard), 'shard')} in {count(look.commits, 'commit')} and {seconds:,.1f} s{corrupt}"
    )
