"""``fastkcl local-aws``: Kinesis, DynamoDB and CloudWatch on one loopback port."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from fastkcl.cli.extras import check_local_aws, without_extra
from fastkcl.cli.numbers import MOST_SECONDS, FiniteRange

__all__ = ["local_aws"]


class _LocalAwsError(click.ClickException):
    """The server cannot be started."""

    exit_code = 2


class _StreamType(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    name = "NAME[:SHARDS]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        name, colon, shards = str(value).partition(":")
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
            self.fail(f"{name!r}: a stream's name has 1 to 128 of a-z, A-Z, 0-9, _, . and -", param, ctx)
        if colon and not re.fullmatch(r"[1-9][0-9]{0,4}", shards):
            self.fail(f"{value!r}: a number of shards is expected after the colon", param, ctx)
        return name, int(shards or 1)


@click.command("local-aws")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=4567,
    show_default=True,
    help="Port to listen at; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="Also answer requests for this host, e.g. host.docker.internal; otherwise only for loopback. Repeatable.",
)
@click.option(
    "--create-stream",
    "streams",
    multiple=True,
    type=_StreamType(),
    help="Create a stream at the start, with one shard unless N is given. Repeatable.",
)
@click.option(
    "--state",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the state in this file, and continue with it at the next start.",
)
@click.option(
    "--iterator-seconds",
    type=FiniteRange(0, MOST_SECONDS, least_open=True),
    default=300.0,
    show_default=True,
    help="How long a shard iterator is valid.",
)
@click.option(
    "--retention-seconds",
    type=FiniteRange(0, MOST_SECONDS, least_open=True),
    help="How long records are kept.  [default: the stream's hours, 24 at first]",
)
@click.option(
    "--transition-seconds",
    type=FiniteRange(0, MOST_SECONDS),
    default=0.0,
    show_default=True,
    help="How long a stream is CREATING, UPDATING or DELETING.",
)
@click.option(
    "--shard-limits", is_flag=True, help="Refuse calls above a shard's 1 MiB/s in, 2 MiB/s and 5 reads/s out."
)
@click.option(
    "--empty-answers",
    type=FiniteRange(0, 1, most_open=True),
    default=0.0,
    help="Share of GetRecords answers that are empty although there are records, as sometimes at AWS.  [0 to 1]",
)
@click.option(
    "--false-zeros",
    type=FiniteRange(0, 1),
    default=0.0,
    help="Share of them with MillisBehindLatest 0 although records are left; never twice in a row.  [0 to 1]",
)
@click.option(
    "--falling-seconds",
    type=FiniteRange(0, MOST_SECONDS),
    default=0.0,
    help="Let arrival times go back by up to this many seconds.",
)
@click.option(
    "--clock-seconds",
    type=FiniteRange(-MOST_SECONDS, MOST_SECONDS),
    default=0.0,
    help="How far the service's clock is ahead; signatures more than 5 minutes off are refused.",
)
@click.option("--region", default="us-east-1", show_default=True, help="Region in the streams' ARNs.")
@click.option(
    "--trace",
    "trace",
    multiple=True,
    metavar="OPERATION",
    help="Write the bodies of this operation, or of all, to stderr. Repeatable.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the URL into this file when the server answers.",
)
@click.option("--until-stdin-ends", is_flag=True, help="Also end at the end of standard input.")
@click.pass_context
def local_aws(
    ctx: click.Context,
    /,
    port: int,
    host: str,
    names: tuple[str, ...],
    streams: tuple[tuple[str, int], ...],
    state: Path | None,
    iterator_seconds: float,
    retention_seconds: float | None,
    transition_seconds: float,
    shard_limits: bool,
    empty_answers: float,
    false_zeros: float,
    falling_seconds: float,
    clock_seconds: float,
    region: str,
    trace: tuple[str, ...],
    ready_file: Path | None,
    until_stdin_ends: bool,
) -> None:
    """Serve Kinesis, DynamoDB and CloudWatch on one loopback port, for clients and daemons without AWS.

    One URL does for boto3, for the AWS SDKs and for MultiLangDaemons of KCL 1.x to 3.x (HTTP/1.1 and HTTP/2 without
    TLS, JSON and CBOR). It is the first line on standard output, written when connections are taken.

    \b
    Examples:
      fastkcl local-aws --create-stream orders:4
      curl -H 'x-local-aws: 1' http://127.0.0.1:4567/_faults \\
        -d '[{"op": "GetRecords", "error": "ExpiredIteratorException", "times": 1}]'
      fastkcl local-aws --host 0.0.0.0 --allow-host host.docker.internal

    Any credentials will do. Everything is in memory, unless --state names a file. SIGTERM and Ctrl-C end it with 0.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    check_local_aws()
    with without_extra("local"):
        from fastkcl.local_aws.errors import ServiceError
        from fastkcl.local_aws.journal import JournalError
        from fastkcl.local_aws.server import ListenError, ServerOptions, serve
        from fastkcl.local_aws.streams import KinesisOptions
        from fastkcl.local_aws.whims import WhimOptions

    def on_ready(url: str) -> None:
        if ready_file is not None:
            _write_whole(ready_file, url + "\n")
        click.echo(url)
        sys.stdout.flush()
        if sys.stderr.isatty():
            click.echo(
                f"export AWS_ENDPOINT_URL={url} AWS_REGION={region} AWS_DEFAULT_REGION={region}    # Ctrl-C ends it",
                err=True,
            )

    options = ServerOptions(
        host=host,
        port=port,
        names=names,
        kinesis=KinesisOptions(
            region=region,
            iterator_seconds=iterator_seconds,
            retention_seconds=retention_seconds,
            transition_seconds=transition_seconds,
            shard_limits=shard_limits,
        ),
        streams=streams,
        state=state,
        trace=frozenset(trace),
        whims=WhimOptions(
            empty_answers=empty_answers,
            false_zeros=false_zeros,
            falling_seconds=falling_seconds,
            clock_seconds=clock_seconds,
        ),
        until_stdin_ends=until_stdin_ends,
    )
    try:
        serve(options, on_ready)
    except (JournalError, ListenError, ServiceError) as error:
        raise _LocalAwsError(str(error)) from None
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
    ctx.exit(0)


def _write_whole(path: Path, text: str) -> None:
    """Write it as a whole or not at all, because somebody waits for it."""
    half = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        with half.open("x") as file:
            file.write(text)
        half.replace(path)
    except OSError as error:
        raise _LocalAwsError(f"{path}: {error.strerror}") from None
