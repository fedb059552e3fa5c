"""The command group: names, one line of help each, and the module of the command.

A sub-command may need pyarrow, pyspark or the replayer; a person who asks for ``fastkcl version`` should not wait
for them. So the table below has the text of the list of commands, and a module is imported with its command.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

import click

__all__ = ["cli"]


class _Entry(NamedTuple):
    module: str
    command: str
    help: str


COMMANDS = {
    "demo": _Entry("fastkcl.cli.demo", "demo", "Generated shards through child processes into Spark, checked."),
    "replay": _Entry("fastkcl.cli.replay", "replay", "Play the daemon for a child program, with faults on demand."),
    "run": _Entry("fastkcl.cli.run", "run", "Run an unchanged amazon_kclpy program, decoded in Rust."),
    "daemon": _Entry("fastkcl.cli.daemon", "daemon", "Start the Java daemon for a stream, and live with it."),
    "load": _Entry("fastkcl.cli.load", "load", "Read a stream into a table, each record exactly once."),
    "inspect": _Entry("fastkcl.cli.inspect", "inspect", "Show or convert captured lines of the protocol."),
    "bench": _Entry("fastkcl.cli.bench", "bench", "Measure it on your payloads, beside other ways to decode."),
    "sink": _Entry("fastkcl.cli.sink", "sink", "Look into a table that a sink has written."),
    "local-aws": _Entry("fastkcl.cli.local_aws", "local_aws", "Kinesis, DynamoDB and CloudWatch on one loopback port."),
    "put": _Entry("fastkcl.cli.put", "put", "Fill a Kinesis stream, local or real, with records."),
    "kinesis": _Entry("fastkcl.cli.kinesis", "kinesis", "Look at streams; tail them, and put lines into them."),
    "spark": _Entry("fastkcl.cli.spark", "spark", "Streams as a source of Spark: see it work, deaths included."),
    "dkb": _Entry("fastkcl.cli.dkb", "dkb", "Run pipelines of stages that speak the DKB stream protocol."),
    "version": _Entry("fastkcl.cli.version", "version", "Versions of everything that matters, and the CPU backend."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported one by one, when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of that name."""
        del ctx
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.command)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="fastkcl", message="%(prog)s %(version)s")
def cli() -> None:
    """High-throughput child processes for daemons that speak over stdin and stdout.

    \b
    Try:
      fastkcl demo                                     see it work, from lines to a Spark table
      fastkcl replay -- python child.py                test your child program without a daemon
      fastkcl run app.py                               serve a program that imports amazon_kclpy
      fastkcl inspect capture.in.jsonl                 see the lines of a daemon
    """  # noqa: D301 - \b is click's mark for a block that keeps its lines
