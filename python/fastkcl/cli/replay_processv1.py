"""``fastkcl replay --protocol processv1``: plays the core for stitches, from the command line."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import click

from fastkcl.cli.numbers import FiniteRange
from fastkcl.cli.output import printable
from fastkcl.processv1.core import StitchSpec
from fastkcl.processv1.groups import GroupName
from fastkcl.replay.profiles import PROFILES
from fastkcl.replay.stitches import StitchesOptions, StitchesReport, play_stitches

__all__ = ["replay_processv1"]

_MOST_STITCHES = 1000  # each is a process and four threads


_SECONDS = FiniteRange(0, threading.TIMEOUT_MAX, least_open=True)


class _StitchType(click.ParamType):  # type: ignore[type-arg]  # not generic in every click that will do
    name = "ID[@APP.COMP.VERSION]=COMMAND"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, GroupName | None, list[str]]:
        head, equals, command = str(value).partition("=")
        name, at, group = head.partition("@")
        try:
            words = shlex.split(command)
        except ValueError as error:  # a quotation without an end
            self.fail(f"{command!r}: {error}", param, ctx)
        if not name or not equals or not words:
            self.fail(f"{value!r}: {self.name} expected", param, ctx)
        return name, GroupName.parse(group) if at else None, words


@click.command("replay")
@click.option("--protocol", type=click.Choice(["processv1"]), required=True, expose_value=False)
@click.option(
    "--stitch",
    "given",
    type=_StitchType(),
    multiple=True,
    help="A separate stitch, e.g. ping@Games.Ping.1='node ping.js'. Repeatable.",
)
@click.option(
    "--stitches",
    type=click.IntRange(1, _MOST_STITCHES),
    default=1,
    show_default=True,
    help="Number of stitches that run COMMAND.",
)
@click.option(
    "--group", default="App.Stitch.1", show_default=True, help="Application, component and version of the stitches."
)
@click.option(
    "--argument", "custom", multiple=True, help="A custom argument for all stitches, given after --. Repeatable."
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder in which each stitch gets its own folder.",
)
@click.option("--node", default="node1", show_default=True, help="The core's name.")
@click.option("--heartbeat", type=_SECONDS, default=60.0, show_default=True, help="Seconds between heartbeats.")
@click.option(
    "--messages", type=click.IntRange(0), default=0, help="Number of payloads for each stitch, in base64.  [default: 0]"
)
@click.option("--profile", type=click.Choice(list(PROFILES)), default="clickstream", show_default=True)
@click.option("--seed", type=int, default=0, help="Seed of the payloads.")
@click.option(
    "--seconds", type=_SECONDS, help="How long to run.  [default: until all payloads are answered, or Ctrl-C]"
)
@click.option("--timeout", type=_SECONDS, default=300.0, show_default=True, help="Most seconds for an answer.")
@click.option(
    "--exit-code", type=click.IntRange(0, 255), default=0, help="Exit code that the stitches should end with."
)
@click.option("--exit-grace", type=_SECONDS, default=15.0, show_default=True, help="Seconds for the stitches to end.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object on standard output.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def replay_processv1(
    ctx: click.Context,
    /,
    given: tuple[tuple[str, GroupName | None, list[str]], ...],
    stitches: int,
    group: str,
    custom: tuple[str, ...],
    data_dir: Path | None,
    node: str,
    heartbeat: float,
    messages: int,
    profile: str,
    seed: int,
    seconds: float | None,
    timeout: float,
    exit_code: int,
    exit_grace: float,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Play a CrossStitch core (ProcessV1) for COMMAND, and for the stitches of --stitch.

    Stitches are started with the core's command line, get heartbeats, send each other data by id and by group, get
    payloads if asked for, and get the message to exit. Their logs and the changes of their health are on standard
    error.

    \b
    Examples:
      fastkcl replay --protocol processv1 --messages 1000 -- python stitch.py
      fastkcl replay --protocol processv1 --stitch ping='node ping.js' --stitch pong='python pong.py' --seconds 10
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
    specs = [_spec(name, words, of or GroupName.parse(group), custom, data_dir) for name, of, words in given]
    if command:
        names = [f"stitch{number}" for number in range(1, stitches + 1)]
        specs += [_spec(name, list(command), GroupName.parse(group), custom, data_dir) for name in names]
    if not specs:
        raise click.UsageError("nothing to start: give a COMMAND after --, or --stitch")
    options = StitchesOptions(
        node=node,
        heartbeat_seconds=heartbeat,
        messages=messages,
        profile=profile,
        seed=seed,
        seconds=seconds,
        answer_seconds=timeout,
        exit_code=exit_code,
        exit_seconds=exit_grace,
    )
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        report = play_stitches(specs, options, _log, stop)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        _show(report)
    ctx.exit(0 if report.ok else 1)


def _spec(
    name: str, command: list[str], group: GroupName, custom: tuple[str, ...], data_dir: Path | None
) -> StitchSpec:
    return StitchSpec(
        command,
        name,
        application=group.application,
        component=group.component or "",
        version=group.version or "",
        custom_arguments=custom,
        data_dir=str(data_dir / name) if data_dir is not None else "",
    )


def _log(instance_id: str, line: str) -> None:
    sys.stderr.write(f"[{instance_id}] {printable(line)}\n")
    sys.stderr.flush()


def _show(report: StitchesReport) -> None:
    from rich.table import Table

    from fastkcl.cli.console import Console

    table = Table("stitch", "health", "exit", "heartbeats", "got", "sent", "acked", "failed", "dropped", "bad frames")
    for each in report.stitches:
        beats = f"{each.heartbeats_sent - each.heartbeats_missed}/{each.heartbeats_sent}"
        counts = (each.received, each.sent, each.acknowledged, each.failed, each.dropped, each.bad_frames)
        table.add_row(each.instance_id, each.health, str(each.exit_code), beats, *map(str, counts))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    console.print(table)
    for problem in report.problems:
        console.print(f"problem: {problem}", style="red", markup=False)
    if report.ok:
        console.print(f"Every stitch kept the protocol, in {report.seconds:.2f} s.", style="green")
