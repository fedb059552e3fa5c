"""``fastkcl version``: the versions for a bug report."""

from __future__ import annotations

import click

from fastkcl.cli.versions import version_text

__all__ = ["version"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object, null for a package that is not installed.")
def version(as_json: bool) -> None:
    """Versions of fastkcl and of its companions, and the CPU backend of the codec.

    The backend is chosen once per process; FASTKCL_FORCE_ISA forces one (see the list in brackets).
    """
    click.echo(version_text(as_json=as_json))
