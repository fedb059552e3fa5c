"""How commands name a table in a catalog: the properties of Iceberg's catalog, and how its files on S3 are reached."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastkcl.cli.storage import storage_of

if TYPE_CHECKING:
    from fastkcl.tables import S3Storage

__all__ = ["catalog_option", "properties_of", "storage_in"]

C = TypeVar("C", bound=Callable[..., Any])


def catalog_option(command: C) -> C:
    """Add ``--catalog``, whose texts `properties_of` reads."""
    add = click.option(
        "--catalog",
        multiple=True,
        metavar="NAME=VALUE",
        help="Iceberg: a property of the catalog, e.g. type=glue, uri=… or warehouse=…; URL is then namespace.table.",
    )
    return add(command)


def properties_of(texts: Sequence[str]) -> dict[str, str]:
    """The properties of a catalog.

    Raises:
        UsageError: a text is no ``NAME=VALUE``.
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            shown = re.split(r"[^\w.-]", name)[0]  # the rest may be a secret
            raise click.UsageError(f"--catalog {shown}…: must be NAME=VALUE, e.g. type=glue")
        found[name] = value.strip()  # a variable with a file's content ends in a line feed
    return found


def storage_in(catalog: Mapping[str, str], endpoint: str | None, region: str | None) -> S3Storage | None:
    """How the files of a catalog's tables are reached; None if the catalog's properties alone say.

    Raises:
        ValueError: the endpoint is not a URL.
    """
    return storage_of(catalog.get("warehouse", ""), endpoint, region)
