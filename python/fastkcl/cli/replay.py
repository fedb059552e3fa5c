"""``fastkcl replay``: plays the daemon for a child program, from the command line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fastkcl._core import DIALECTS
from fastkcl.cli.numbers import MOST_RATE, FiniteRange
from fastkcl.cli.payloads import encoded_source, write_options
from fastkcl.replay import (
    CATALOG,
    Fault,
    Progress,
    ReplayError,
    ReplayOptions,
    Report,
    ShardReport,
    Source,
    SourceError,
    from_captures,
    from_dead_letters,
    from_records,
    generate,
    parse_fault,
)
from fastkcl.replay import replay as play
from fastkcl.replay.faults import OF_CHECKPOINTS, SECONDS
from fastkcl.replay.options import RATE
from fastkcl.replay.profiles import PROFILES

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from fastkcl.cli.console import Console

__all__ = ["replay"]

DEFAULT_BATCHES = 10
"""Batches of each generated shard where neither --records nor another source is given."""

DEFAULT_STREAM = "replay"
"""The stream's name where neither --stream nor a dead letter gives it."""

_MOST_SHARDS = 10_000  # each is a process and five threads or so

_PLAIN_WIDTH = 150  # columns of the summary where standard output is not a terminal


class _InputError(click.ClickException):
    """An argument or the source is wrong. Exit code 1 is for children that break the protocol."""

    exit_code = 2


class _FaultType(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    name = "FAULT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Fault:
        try:
            return parse_fault(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _VariableType(click.ParamType):  # type: ignore[type-arg]
    name = "NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, text = str(value).partition("=")
        if not name or not equals:
            self.fail(f"{value!r}: NAME=VALUE expected", param, ctx)
        return name, text


class _ReplayCommand(click.Command):
    """Adds the profiles and faults, with their explanations, to the help; hands another protocol to its own command."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own
    ) -> click.Context:
        """The context of the command that plays the protocol asked for."""
        words = args[: args.index("--")] if "--" in args else args
        if "--protocol=processv1" in words or ("--protocol", "processv1") in pairwise(words):
            from fastkcl.cli.replay_processv1 import replay_processv1

            return replay_processv1.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Profiles (--profile)"):
            formatter.write_dl([(profile.name, profile.describe) for profile in PROFILES.values()])
        with formatter.section("Faults (--fault NAME[@WHEN][#SHARD][=VALUE])"):
            formatter.write_text(
                "WHEN is a number from 1, a range 2-4, or * for always. It counts the deliveries of a shard (batches, "
                f"including redelivered ones). For {' and '.join(OF_CHECKPOINTS)} it counts the requested checkpoints. "
                "SHARD is an index from 0; without it every shard has the fault."
            )
            formatter.write_paragraph()
            formatter.write_dl([(_form(name), kind.help) for name, kind in CATALOG.items()])
        with formatter.section("Environment of the children"):
            formatter.write_dl(
                [
                    ("FASTKCL_STREAM", "the stream's name; for dead letters the name in them"),
                    ("FASTKCL_REPLAY_SHARD", "the shard's id, which is there before initialize"),
                    ("FASTKCL_REPLAY_ATTEMPT", "1 for the shard's first child, 2 for the next, ..."),
                ]
            )
        with formatter.section("Exit status"):
            formatter.write_dl(
                [
                    ("0", "every child kept the protocol; faults that were asked for do not count"),
                    ("1", "a child broke it: see the problems"),
                    ("2", "the arguments or the source cannot be used, or the output cannot be written"),
                    ("130", "interrupted; all children have been ended"),
                    ("141", "the output's reader has gone, e.g. head"),
                ]
            )


def _form(name: str) -> str:
    kind = CATALOG[name]
    if kind.default is None:
        return f"{name}@N"
    return f"{name}@N={'|'.join(kind.choices) or kind.default}"


@click.command(cls=_ReplayCommand)
@click.option(
    "--protocol",
    type=click.Choice(["kcl", "processv1"]),
    default="kcl",
    show_default=True,
    expose_value=False,
    help="Protocol to play; processv1 has its own options: --protocol processv1 --help.",
)
@click.option(
    "--profile", type=click.Choice(list(PROFILES)), help="Generate records of this kind.  [default: clickstream]"
)
@click.option(
    "--capture",
    "captures",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Replay captured lines of a daemon (.in.jsonl, .gz), or a folder of them. Repeatable: one file, one shard.",
)
@click.option(
    "--input",
    "records_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replay records of a JSON lines or Parquet file in the canonical schema, as fastkcl inspect writes them.",
)
@click.option(
    "--dead-letter",
    "dead_letter",
    metavar="DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Deliver dead letters again: the folder that a child wrote them to (dead_letter=), or one of its files.",
)
@click.option(
    "--shards",
    type=click.IntRange(1, _MOST_SHARDS),
    default=1,
    show_default=True,
    help="Number of shards, and of children at a time.",
)
@click.option(
    "--records", type=click.IntRange(0), help="Number of generated records in each shard.  [default: ten batches]"
)
@click.option(
    "--batch-records", type=click.IntRange(1), help="Number of records in a batch.  [default: as in the source]"
)
@click.option("--seed", type=int, help="Seed of the generated records.  [default: 0]")
@click.option(
    "--aggregate",
    type=click.IntRange(1),
    metavar="N",
    help="Generated user records for each sequence number, as in a KPL aggregate.  [default: 1]",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Play the records this many times."
)
@click.option(
    "--rate", type=FiniteRange(RATE, MOST_RATE), help="Records per second of each shard.  [default: no limit]"
)
@click.option(
    "--dialect",
    type=click.Choice(list(DIALECTS)),
    help="KCL up to 1.7.1, 1.7.2 to 1.15, or 2.x and 3.x.  [default: modern, or the capture's]",
)
@click.option(
    "--end",
    type=click.Choice(["shard-end", "shutdown", "lease-lost", "eof"]),
    help="How each shard ends.  [default: shard-end, or as captured]",
)
@click.option(
    "--split-at", type=click.IntRange(1), metavar="N", help="Split each shard after batch N into two children."
)
@click.option(
    "--merge-at", type=click.IntRange(1), metavar="N", help="Merge shards 0 and 1, 2 and 3, ... after batch N."
)
@click.option(
    "--empty-batches", type=click.IntRange(0), default=0, metavar="N", help="Send N empty batches after each batch."
)
@click.option(
    "--write-size", type=click.IntRange(1), metavar="BYTES", help="Number of bytes in one write. A JVM writes 8192."
)
@click.option("--fault", "faults", multiple=True, type=_FaultType(), help="Inject a fault; see below. Repeatable.")
@click.option("--stream", help="The stream's name.  [default: replay, or that of the dead letters]")
@click.option(
    "--env", "variables", multiple=True, type=_VariableType(), help="A variable for the children. Repeatable."
)
@click.option(
    "--restarts",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Restarts after deaths that were not asked for, or that happen again at the same checkpoint.",
)
@click.option(
    "--timeout",
    type=FiniteRange(0, SECONDS, least_open=True),
    default=300.0,
    show_default=True,
    help="Most seconds without a message from a child that owes a status; ten times that for the status itself.",
)
@click.option(
    "--exit-grace",
    type=FiniteRange(0, SECONDS, least_open=True),
    default=30.0,
    show_default=True,
    help="Seconds for a child to end at the end of its input.",
)
@write_options
@click.option("--prefix", is_flag=True, help="Write the shard before each line of the children's standard error.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object on standard output.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def replay(
    ctx: click.Context,
    /,
    profile: str | None,
    captures: tuple[Path, ...],
    records_file: Path | None,
    dead_letter: Path | None,
    shards: int,
    records: int | None,
    batch_records: int | None,
    seed: int | None,
    aggregate: int | None,
    stream: str | None,
    variables: tuple[tuple[str, str], ...],
    timeout: float,
    prefix: bool,
    as_json: bool,
    command: tuple[str, ...],
    **settings: Any,  # noqa: ANN401 - the other options, named and typed as in ReplayOptions
) -> None:
    """Play the daemon for COMMAND: one child per shard, over real pipes, strictly by the protocol.

    Records come from a profile, from captured lines, from a file of records, or from dead letters. Every line that
    a child writes is read as the Java daemon reads it, and every checkpoint is checked by KCL's rules. After a death,
    all records after the last checkpoint are delivered again. At the end, a checkpoint has to cover each record.

    \b
    Examples:
      fastkcl replay --profile clickstream --shards 4 -- python child.py
      fastkcl replay --fault kill@3 --fault checkpoint-error@5-7=ThrottlingException -- python child.py
      fastkcl replay --capture tests/data/kcl-multilang --json -- python child.py
      fastkcl replay --profile iot --split-at 4 --fault stop@2#0=1.5 -- python child.py
      fastkcl replay --dead-letter /var/lib/child/letters -- python child.py
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    try:
        source = _source(
            profile, captures, records_file, dead_letter, shards, records, batch_records, seed, aggregate, stream
        )
        source = encoded_source(source, settings)
        with _progress(prefix) as (on_progress, on_stderr):
            options = ReplayOptions(
                stream=DEFAULT_STREAM if stream is None else stream,
                batch_records=batch_records,
                environment=dict(variables),
                answer_timeout=timeout,
                prefix_stderr=prefix,
                on_stderr=on_stderr,
                **settings,
            )
            report = play(command, source, options, on_progress)
    except (ReplayError, SourceError, ValueError) as error:
        raise _InputError(str(error)) from None
    except KeyboardInterrupt:
        click.echo("fastkcl: interrupted; the children have been ended", err=True)
        ctx.exit(130)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _show(report)
    ctx.exit(0 if report.ok else 1)


def _source(
    profile: str | None,
    captures: tuple[Path, ...],
    records_file: Path | None,
    dead_letter: Path | None,
    shards: int,
    records: int | None,
    batch_records: int | None,
    seed: int | None,
    aggregate: int | None,
    stream: str | None,
) -> Source:
    sources = {"--profile": profile, "--capture": captures, "--input": records_file, "--dead-letter": dead_letter}
    given = [name for name, value in sources.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: give one source of records")
    for option, value in (("--records", records), ("--seed", seed), ("--aggregate", aggregate)):
        if value is not None and given not in ([], ["--profile"]):
            raise click.UsageError(f"{option} is for generated records; {given[0]} has its own")
    if captures:
        if shards != 1:
            raise click.UsageError("--shards has no meaning with --capture: each file is a shard")
        return from_captures(captures)
    if dead_letter is not None:
        if shards != 1:
            raise click.UsageError("--shards has no meaning with --dead-letter: each letter knows its shard")
        return from_dead_letters(dead_letter, stream=stream)
    if records_file is not None:
        return from_records(records_file, shards=shards)
    name = profile or "clickstream"
    size = batch_records or PROFILES[name].records
    count = DEFAULT_BATCHES * size if records is None else records
    return generate(
        name,
        shards=shards,
        records=count,
        batch_records=batch_records,
        seed=seed or 0,
        aggregate=aggregate or 1,
    )


@contextlib.contextmanager
def _progress(
    prefix: bool,
) -> Iterator[tuple[Callable[[Progress], None] | None, Callable[[str, bytes], None] | None]]:
    """Bars on standard error where that is a terminal; the children's lines then appear above them."""
    if not sys.stderr.isatty():
        yield None, None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    from fastkcl.cli.console import Console

    console = Console(stderr=True)
    bars = Bars(
        TextColumn("{task.fields[label]}", style="cyan", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("records"),
        TextColumn("{task.fields[megabytes]:,.1f} MB"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", style="yellow"),
        console=console,
        transient=True,
    )
    tasks: dict[int, TaskID] = {}

    def on_progress(now: Progress) -> None:
        note = "waits for its parents" if now.state == "waiting" else ""
        if now.restarts:
            note = f"{now.restarts} restarts"
        if now.problems:
            note = f"{now.problems} problems"
        megabytes = now.line_bytes / 1e6
        if now.index not in tasks:
            tasks[now.index] = bars.add_task(
                "", total=now.records_total, label=now.label, note=note, megabytes=megabytes
            )
        bars.update(tasks[now.index], completed=now.records, total=now.records_total, note=note, megabytes=megabytes)

    def on_stderr(shard_id: str, line: bytes) -> None:
        text = line.decode("utf-8", errors="replace")
        console.print(Text(f"[{shard_id}] {text}" if prefix else text), soft_wrap=True)

    with bars:
        yield on_progress, on_stderr


def _show(report: Report) -> None:
    from fastkcl.cli.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
    table = _table(report)
    unbounded = console.options.update(width=10_000)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
    else:
        _blocks(console, report)
    shards = report.shards
    _list(
        console,
        "Faults that were asked for",
        "yellow",
        [(each.label, each.faults, each.more_faults) for each in shards],
    )
    _list(console, "Problems", "red", [(each.label, each.problems, each.more_problems) for each in shards])
    megabytes = sum(shard.line_bytes for shard in report.shards) / 1e6
    records = sum(shard.records_sent for shard in report.shards)
    console.print(
        f"{records:,} records, {megabytes:,.1f} MB of lines in {report.seconds:.2f} s "
        f"({megabytes / report.seconds if report.seconds else 0:,.1f} MB/s, the children's start included)"
    )
    if report.ok:
        console.print("Every child kept the protocol.", style="green")
    else:
        console.print("The protocol was broken: see the problems above.", style="bold red")


def _list(console: Console, title: str, style: str, lists: list[tuple[str, list[str], int]]) -> None:
    from rich.text import Text

    if any(lines for _, lines, _ in lists):
        console.print(Text(title, style=style))
    for label, lines, more in lists:
        for line in [*lines, *([f"... and {more:,} more"] if more else [])]:
            console.print(Text(f"  {label}: {line}"), soft_wrap=True)


def _numbers(shard: ShardReport) -> dict[str, str]:
    return {
        "records": f"{shard.records_sent:,}",
        "delivered": f"{shard.records_delivered:,}",
        "batches": f"{shard.batches:,}",
        "MB": f"{shard.line_bytes / 1e6:,.1f}",
        "MB/s": f"{shard.bytes_per_second / 1e6:,.0f}",
        "checkpoints": f"{shard.checkpoints:,}",
        "errors": f"{sum(shard.checkpoint_errors.values()):,}",
        "uncovered": f"{shard.uncheckpointed:,}",
        "restarts": f"{shard.restarts:,}",
    }


def _verdict(shard: ShardReport) -> Text:
    from rich.text import Text

    count = shard.problem_count
    return Text(f"{count:,} problem{'s' * (count > 1)}", "red") if count else Text("kept", "green")


def _heading(report: Report) -> Text:
    from rich.text import Text

    return Text(f"{report.source}, stream {report.stream}", "italic")


def _table(report: Report) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_heading(report), box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("shard", style="cyan", overflow="fold")
    for name in _numbers(report.shards[0]):
        table.add_column(name, justify="right")
    table.add_column("exit codes", overflow="fold")
    table.add_column("protocol")
    for shard in report.shards:
        codes = " ".join(map(str, shard.exit_codes))
        table.add_row(Text(shard.label), *_numbers(shard).values(), codes, _verdict(shard))
    return table


def _blocks(console: Console, report: Report) -> None:
    """The content of the table, shard by shard, for a terminal that is too narrow for its rows."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(_heading(report), "")
    for shard in report.shards:
        console.print(Text.assemble((shard.label, "cyan"), "  ", _verdict(shard)))
        numbers = ", ".join(f"{name}\xa0{value}" for name, value in _numbers(shard).items())
        codes = " ".join(map(str, shard.exit_codes)) or "none"
        console.print(Padding(Text(f"{numbers}, exit codes {codes}"), (0, 0, 0, 2)))
    console.print()
