"""``fastkcl kinesis groups``: lists groups of consumers, shows their positions, and moves the positions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import click

from fastkcl.cli.aws import explain, kinesis_client
from fastkcl.cli.console import show_columns
from fastkcl.cli.extras import without_extra
from fastkcl.cli.numbers import MOST_SECONDS, FiniteRange
from fastkcl.cli.output import printable, without_users
from fastkcl.masking import without_sent

if TYPE_CHECKING:
    from fastkcl.kinesis.groups import Row, Store
    from fastkcl.kinesis.topology import Shard

__all__ = ["groups"]

_FAILOVER = {"redis": 60.0, "dynamodb": 60.0, "kcl": 10.0}


class _GroupError(click.ClickException):
    exit_code = 2


class _Service(Protocol):
    """Where the streams are."""

    endpoint_url: str | None
    region: str | None


_KIND = click.option(
    "-c",
    "--checkpointer",
    "kind",
    type=click.Choice(list(_FAILOVER)),
    required=True,
    help="The store of the group's positions. The variables REDIS_HOST, REDIS_PORT, … say which Redis.",
)
_TABLE = click.option("--table", help="DynamoDB table, if its name is not made from the group's.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group()
def groups() -> None:
    """Groups of consumers: list them, show their positions, and move the positions.

    \b
    Examples:
      fastkcl kinesis groups list -c dynamodb
      fastkcl kinesis groups describe billing orders -c redis
      fastkcl kinesis groups reset billing orders -c kcl --to 2026-11-01T00:00:00Z
      fastkcl kinesis groups reset billing orders -c kcl --to TRIM_HORIZON --execute
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines


@groups.command("list")
@_KIND
@_JSON
@click.pass_obj
def list_groups(service: _Service, /, kind: str, as_json: bool) -> None:
    """List the groups that have positions."""
    with _explained(service, None):
        names = _store(service, kind, None, _FAILOVER[kind]).groups()
    if as_json:
        click.echo(json.dumps({"groups": names}))
        return
    for name in names:
        click.echo(printable(name))
    if not names:
        click.echo("No groups.", err=True)


@groups.command()
@click.argument("group")
@click.argument("stream")
@_KIND
@_TABLE
@_JSON
@click.pass_obj
def describe(service: _Service, /, group: str, stream: str, kind: str, table: str | None, as_json: bool) -> None:
    """Show each shard of STREAM for GROUP: its owner, its position, and the age of the next record."""
    from fastkcl.kinesis.groups import check_stream, standings

    with _explained(service, stream):
        kinesis, address, shards = _stream(service, stream)
        rows = _store(service, kind, table, _FAILOVER[kind]).rows(group, shards)
        check_stream(group, _name_of(stream), rows)
        if not rows:
            raise _GroupError(
                f"{printable(group)} has no positions in {printable(stream)}: `groups list` shows all groups"
            )
        found = standings(kinesis, address, shards, rows)
    if as_json:
        described = [
            {
                "shard": one.shard.shard_id,
                "open": not one.shard.is_closed,
                "owner": one.owner,
                "position": one.position,
                "seconds_behind": one.seconds_behind,
            }
            for one in found
        ]
        click.echo(json.dumps({"group": group, "stream": stream, "shards": described}, indent=2))
        return
    show_columns(
        ("shard", "state", "owner", "behind", "position"),
        [
            (
                one.shard.shard_id,
                "closed" if one.shard.is_closed else "open",
                one.owner or "-",
                "-" if one.seconds_behind is None else f"{one.seconds_behind:,.0f} s",
                one.position or "-",
            )
            for one in found
        ],
    )


class _Where(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    name = "where"

    def convert(
        self,
        value: Any,  # noqa: ANN401
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | datetime:
        """TRIM_HORIZON, LATEST, a position or a time with its zone."""
        from fastkcl.kinesis.checkpoints.base import Place

        if value in ("TRIM_HORIZON", "LATEST"):
            return str(value)
        try:
            if Place.parse(value) is not None:
                return str(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} must be TRIM_HORIZON, LATEST, a time or a sequence number", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@groups.command()
@click.argument("group")
@click.argument("stream")
@_KIND
@_TABLE
@click.option(
    "--to",
    type=_Where(),
    required=True,
    help="TRIM_HORIZON, LATEST, a time in ISO 8601 (UTC if it has no zone), or the sequence number of the last "
    "processed record, which needs --shard.",
)
@click.option("--shard", "only", multiple=True, help="Only this shard. Repeatable.")
@click.option(
    "--failover",
    type=FiniteRange(0, MOST_SECONDS, least_open=True),
    help="Seconds after which a lease expires if it is not renewed: session_timeout, failoverTimeMillis.  "
    "[default: 10 for kcl, 60]",
)
@click.option("--execute", is_flag=True, help="Write the positions. Without this option they are only shown.")
@_JSON
@click.pass_obj
def reset(
    service: _Service,
    /,
    group: str,
    stream: str,
    kind: str,
    table: str | None,
    to: str | datetime,
    only: tuple[str, ...],
    failover: float | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Move the positions of GROUP in STREAM.

    Shows the new positions, or writes them with --execute. That is refused while members of the group live: it watches
    their leases for as long as a lease lasts.
    """
    from fastkcl.kinesis.groups import check_stream, live_members, plan

    if isinstance(to, str) and to not in ("TRIM_HORIZON", "LATEST") and len(only) != 1:
        raise click.UsageError("a sequence number is a position in one shard: name the shard by --shard")
    seconds = failover or _FAILOVER[kind]
    with _explained(service, stream):
        kinesis, address, shards = _stream(service, stream)
        if unknown := set(only) - {shard.shard_id for shard in shards}:
            raise _GroupError(f"{stream} has no shard {printable(', '.join(sorted(unknown)))}")
        store = _store(service, kind, table, seconds)
        chosen = [shard for shard in shards if not only or shard.shard_id in only]
        check_stream(group, _name_of(stream), store.rows(group, shards))
        if execute:
            living = live_members(lambda: store.rows(group, shards), seconds)
            if living:
                raise _GroupError(
                    f"{group} has running members: {printable(', '.join(sorted(living)))}. Stop them first: they "
                    "would write their own positions. Nothing was written"
                )
        try:
            moves = plan(kinesis, address, chosen, store.rows(group, shards), to)
        except ValueError as error:
            raise _GroupError(str(error)) from None
        refused = [move for move in moves if execute and not store.write(group, move.shard, move.row, move.position)]
    done = [move for move in moves if move not in refused]
    if as_json:
        shown = [
            {"shard": move.shard.shard_id, "from": _position(move.row), "to": move.position, "written": execute}
            for move in done
        ]
        click.echo(json.dumps({"group": group, "stream": stream, "executed": execute, "shards": shown}, indent=2))
    else:
        show_columns(
            ("shard", "from", "to"),
            [(move.shard.shard_id, _position(move.row) or "-", move.position) for move in done],
        )
        if not moves:
            click.echo("Nothing to change: the group is there already.", err=True)
        elif not execute:
            click.echo("Nothing was written: --execute writes it.", err=True)
    if refused:
        names = ", ".join(move.shard.shard_id for move in refused)
        raise _GroupError(
            f"positions of {names} were changed by somebody else in the meantime and are not replaced: try again"
        )


def _position(row: Row | None) -> str | None:
    if row is None:
        return None
    return "SHARD_END" if row.lease.finished else row.position


def _name_of(stream: str) -> str:
    return stream.rpartition("/")[2] if stream.startswith("arn:") else stream


def _store(service: _Service, kind: str, table: str | None, failover: float) -> Store:
    from fastkcl.kinesis.group_stores import DynamoDBStore, KCLStore, RedisStore, redis_client

    if kind == "redis":
        with without_extra("redis"):
            return RedisStore(redis_client(), failover)
    client = kinesis_client(service.endpoint_url, service.region, "dynamodb")
    return KCLStore(client, table) if kind == "kcl" else DynamoDBStore(client, failover, table)


def _stream(service: _Service, stream: str) -> tuple[Any, dict[str, str], list[Shard]]:
    from fastkcl.kinesis.failures import pages_of
    from fastkcl.kinesis.topology import Shard

    address = {"StreamARN": stream} if stream.startswith("arn:") else {"StreamName": stream}
    kinesis = kinesis_client(service.endpoint_url, service.region)
    pages = pages_of(kinesis, "list_shards", **address)
    shards = sorted(
        (Shard.from_answer(shard) for page in pages for shard in page["Shards"]), key=lambda shard: shard.shard_id
    )
    return kinesis, address, shards


@contextmanager
def _explained(service: _Service, stream: str | None) -> Iterator[None]:
    """Turn errors of the services into one line."""
    from botocore.exceptions import BotoCoreError, ClientError

    from fastkcl.kinesis.exceptions import AnotherStream, CheckpointTableError, ValidationError

    try:
        yield
    except CheckpointTableError as error:
        raise _GroupError(f"the group's table: {printable(str(error))}") from None
    except (AnotherStream, ValidationError) as error:
        raise _GroupError(printable(str(error))) from None
    except ClientError as error:
        raise _GroupError(explain(error, stream, service.endpoint_url)) from None
    except (BotoCoreError, ConnectionError, OSError) as error:
        raise _GroupError(explain(error, stream, service.endpoint_url)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "redis":
            raise
        raise _GroupError(f"Redis: {without_users(printable(without_sent(str(error))))}") from None
