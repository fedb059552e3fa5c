"""The command group over the table of commands.

A sub-command may need pyarrow, pyspark or the replayer; a person who asks for ``fastkcl version`` should not wait
for them. So the list of commands comes from the table, and a module is imported with its command.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from fastkcl.cli.commands import COMMANDS, Entry, missing_extras

__all__ = ["cli"]


def _help(entry: Entry) -> str:
    extras = missing_extras(entry)
    return f"{entry.help} Needs: pip install 'fastkcl[{extras}]'" if extras else entry.help


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

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Run the command; no error shows a password or a token, whoever has written its text.

        Exits with 130 if interrupted where the command does not see it: while it is imported.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("fastkcl: interrupted", err=True)
            ctx.exit(130)
        except click.ClickException as error:
            from fastkcl.cli.output import without_users

            error.message = without_users(error.message)  # type: ignore[misc]
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help(entry)) for name, entry in COMMANDS.items()])


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
