"""``fastkcl sink orphans`` and ``fastkcl sink compact``: maintenance of a table between commits."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastkcl.cli.answers import bound_answers
from fastkcl.cli.catalogs import catalog_option, properties_of, storage_in
from fastkcl.cli.output import printable, without_users
from fastkcl.cli.storage import endpoint_of, has_credentials, is_s3, storage_of
from fastkcl.kinesis.sessions import masked
from fastkcl.masking import without_sent
from fastkcl.stdio.given_files import check_bundle

if TYPE_CHECKING:
    from fastkcl.tables import S3Storage

__all__ = ["compact", "orphans", "table_errors", "table_options"]

_EXTRAS = {"pyarrow": "arrow", "deltalake": "delta", "obstore": "s3", "pyiceberg": "iceberg"}
_UNITS = {"h": 3600.0, "d": 86_400.0}
_LEAST_AGE = 86_400.0
_IN_CATALOG = re.compile(r"[^./\s]+(\.[^./\s]+)+")
_MOST_LINES = 20

C = TypeVar("C", bound=Callable[..., Any])


class TableError(click.ClickException):
    """The table cannot be reached or read. Exit code 1 is for tables that are not sound."""

    exit_code = 2


def table_options(command: C) -> C:
    """Add the options that name a table and say how it is reached.

    The command gets ``url``, ``storage``, and ``catalog``: None for a table that is in none.
    """

    @catalog_option
    @click.option("--endpoint-url", help="Endpoint for S3 instead of AWS.  [default: as for fastkcl load]")
    @click.option("--region", help="Region of the bucket.  [default: as for every AWS SDK]")
    @functools.wraps(command)
    def with_storage(
        *arguments: Any,  # noqa: ANN401 - as the command has them
        url: str,
        endpoint_url: str | None,
        region: str | None,
        catalog: Sequence[str],
        **options: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        properties = properties_of(catalog) or None
        try:
            if properties is None:
                _check_exists(url)
                storage = storage_of(url, endpoint_of(endpoint_url), region)
            else:
                storage = storage_in(properties, endpoint_of(endpoint_url), region)
            if storage is not None and storage.access_key is None:
                has_credentials()
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return command(*arguments, url=url, storage=storage, catalog=properties, **options)

    return with_storage  # type: ignore[return-value]  # other options than the command's


def _check_exists(url: str) -> None:
    """Check that a URL is on S3, or is an existing folder.

    Raises:
        BadParameter: it is not.
    """
    if not is_s3(url) and not Path(url).is_dir():
        what = "is a file" if Path(url).exists() else "does not exist"
        hint = " A table in a catalog needs --catalog." if _IN_CATALOG.fullmatch(url) else ""
        raise click.BadParameter(f"Directory {printable(repr(url))} {what}.{hint}", param_hint="'URL'")


@contextmanager
def table_errors(url: str) -> Iterator[None]:
    """Turn errors of a table into one line.

    Raises:
        TableError: the table's error.
    """
    from fastkcl import ConfigurationError
    from fastkcl.tables import SinkError

    try:
        yield
    except (SinkError, ConfigurationError) as error:
        raise TableError(printable(str(error))) from None
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise TableError(f"it cannot be read without {package}: pip install 'fastkcl[{_EXTRAS[package]}]'") from None
    except OSError as error:
        said = str(error) if error.strerror is None else f"{error.filename or url}: {error.strerror}"
        raise TableError(printable(said)) from None
    except ValueError as error:
        raise TableError(printable(str(error))) from None


class _Age(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    """``3d``, ``36h``."""

    name = "AGE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Seconds."""
        found = re.fullmatch(r"([0-9]+)([hd])", str(value))
        if found is None:
            self.fail(f"{value!r}: must be hours or days, e.g. 36h or 3d", param, ctx)
        seconds = int(found[1]) * _UNITS[found[2]]
        if seconds < _LEAST_AGE:
            self.fail(f"{value!r}: must be at least 1d: a younger file may belong to a running commit", param, ctx)
        return seconds


@click.command()
@click.argument("url")
@click.option("--delete", is_flag=True, help="Delete the files. Without this option they are only listed.")
@click.option(
    "--older-than",
    "age",
    type=_Age(),
    default="3d",
    show_default=True,
    help="Only files older than this: hours or days, at least 1d.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@table_options
def orphans(
    url: str,
    delete: bool,
    age: float,
    as_json: bool,
    storage: S3Storage | None,
    catalog: Mapping[str, str] | None,
) -> None:
    """List the files of the table at URL that no version names. Dead writers have left them, and no reader sees them.

    Delta: data files of fastkcl's writers that no version in the log and no checkpoint names. Files that a version has
    removed belong to VACUUM, and so do other writers' files.
    ParquetTable: none on S3, because each file is a commit; on a disk, a dead writer can leave an unfinished file.
    Iceberg (with --catalog): data files of fastkcl's writer that no metadata names which the table still has. In a
    table that this writer has created, also manifests and metadata files.
    Files in another table below URL are never listed.
    On S3, unfinished multipart uploads are listed too, because they cost storage. fastkcl makes and deletes none.

    \b
    Examples:
      fastkcl sink orphans /data/events
      fastkcl sink orphans s3://lake/clicks --older-than 7d --delete
      fastkcl sink orphans db.clicks --catalog type=glue --catalog warehouse=s3://lake/warehouse

    Exits with 0, or with 2 if URL is not a table or cannot be read.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    from fastkcl.tables.orphans import find_orphans

    with table_errors(url):
        found = find_orphans(url, storage, older_than=age, catalog=catalog)
        if delete:
            found.delete()
    uploads = _uploads(found.store.url, storage)
    if as_json:
        files = [{"file": each.key, "bytes": each.size} for each in found.files]
        said = {"table": url, "files": files, "deleted": delete, "uploads": uploads}
        click.echo(json.dumps(said, indent=2))
        return
    for each in found.files[:_MOST_LINES]:
        click.echo(printable(f"{each.key}  {each.size:,} bytes"))
    if len(found.files) > _MOST_LINES:
        click.echo(f"... and {len(found.files) - _MOST_LINES:,} more")
    size = sum(each.size for each in found.files)
    done = "deleted" if delete else "orphaned"
    click.echo(f"{len(found.files):,} files of {size / 1e6:,.1f} MB {done}" if found.files else "No orphans.")
    for upload in uploads:
        click.echo(printable(f"unfinished upload of {upload['key']}, begun {upload['begun']}"))
    if uploads:
        click.echo("A lifecycle rule of the bucket ends them: AbortIncompleteMultipartUpload.")


def _uploads(url: str, storage: S3Storage | None) -> list[dict[str, str]]:
    """Unfinished multipart uploads below a table; empty if boto3 is missing."""
    if storage is None or not is_s3(url):
        return []
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session
    except ImportError:
        return []
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    known: dict[str, Any] = {}
    if storage.access_key is not None:
        known = {"aws_access_key_id": storage.access_key, "aws_secret_access_key": storage.secret_key}
    try:
        own = bound_answers(get_session())
        check_bundle(own)
        client = boto3.Session(botocore_session=own).client(
            "s3", endpoint_url=storage.endpoint, region_name=storage.region or ("us-east-1" if known else None), **known
        )
        masked(client)
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{prefix.strip('/')}/")
        return [
            {"key": each["Key"], "begun": each["Initiated"].isoformat(timespec="seconds")}
            for page in pages
            for each in page.get("Uploads", [])
        ]
    except (BotoCoreError, ClientError) as error:
        click.echo(f"Unfinished uploads are not listed: {without_users(printable(without_sent(str(error))))}", err=True)
        return []


@click.command()
@click.argument("url")
@click.option(
    "--before",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Compact only days before this one, and never today.  [default: today, in UTC]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@table_options
def compact(
    url: str,
    before: datetime | None,
    as_json: bool,
    storage: S3Storage | None,
    catalog: Mapping[str, str] | None,
) -> None:
    """Make few large files from the many small ones in the Delta table at URL, one closed day at a time (OPTIMIZE).

    Writers and readers can continue: the small files stay until VACUUM removes them. A table without days, such as a
    DeltaSink's, is compacted as a whole. A ParquetTable is refused, because its readers list files and would read a day
    twice. An Iceberg table is compacted by an engine while the writer runs: the error has the statement.

    \b
    Examples:
      fastkcl sink compact /data/events
      fastkcl sink compact s3://lake/clicks --before 2026-11-01

    Exits with 0, or with 2 if URL is not a Delta table or cannot be compacted.
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    from fastkcl.tables.compaction import compact_delta, refuse_iceberg

    day: date | None = None if before is None else before.date()
    with table_errors(url):
        if catalog is not None:
            refuse_iceberg(url)
        done = compact_delta(url, storage, before=day, today=datetime.now(UTC).date())
    if as_json:
        parts = [{"part": each.part, "removed": each.removed, "added": each.added} for each in done]
        click.echo(json.dumps({"table": url, "parts": parts}, indent=2))
        return
    for each in done:
        click.echo(printable(f"{each.part}: {each.removed:,} files became {each.added:,}"))
    if not done:
        click.echo("Nothing to compact.")
