"""``fastkcl run``: listed with the other commands; `fastkcl.__main__` starts it without any of this."""

from __future__ import annotations

import click

__all__ = ["run"]


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(arguments: tuple[str, ...]) -> None:
    """Run an unchanged amazon_kclpy program, decoded in Rust."""
    from fastkcl.kclpy import launch

    launch.main(list(arguments))
