"""Iceberg's catalogs, by pyiceberg: which of them a table may be in, and how one is opened.

    rest    a REST catalog       the server compares, and writes the metadata
    sql     a database           a row of the table is replaced if it is still as it was
    glue    AWS Glue             UpdateTable with the VersionId that was read

Others have no comparison that a commit could rely on, or none that was tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fastkcl import ConfigurationError
from fastkcl.tables.base import SinkError, in_one_line
from fastkcl.tables.store import StoreError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["CATALOGS", "asked", "check_options", "open_catalog"]

CATALOGS: Final = ("rest", "sql", "glue")
_CLASSES: Final = {"RestCatalog", "SqlCatalog", "GlueCatalog"}
_IO: Final = "fastkcl.tables.iceberg.io.StoreFileIO"
_CHOICES: Final = (
    "{'type': 'rest', 'uri': 'https://…'}, {'type': 'sql', 'uri': 'sqlite:///…', 'warehouse': 's3://…'} or"
    " {'type': 'glue', 'warehouse': 's3://…'}"
)

_PASSWORD: Final = re.compile(r"(://[^:/@\s]*):[^@\s]*@")

T = TypeVar("T")


def check_options(catalog: Mapping[str, str]) -> None:
    """See that a catalog is one of `CATALOGS`, as far as its options tell.

    Raises:
        TypeError: it is no mapping of texts.
        ValueError: it is another one.
    """
    if not isinstance(catalog, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in catalog.items()
    ):
        raise TypeError(f"catalog must be a dict of texts, as {_CHOICES}")
    kind = catalog.get("type")
    if "py-catalog-impl" in catalog or (kind is not None and kind.lower() not in CATALOGS):
        raise ValueError(f"catalog: tables cannot be written in {kind or 'one of py-catalog-impl'}: give {_CHOICES}")
    if kind is None and not {"uri", "name"} & set(catalog):
        raise ValueError(f"catalog: give {_CHOICES}, or the 'name' of one in .pyiceberg.yaml")


def open_catalog(catalog: Mapping[str, str]) -> Catalog:
    """Open a catalog, with our own files under it.

    Raises:
        ConfigurationError: pyiceberg, or a package of the catalog, is missing; or it is one of another type.
        StoreError: it does not answer.
    """
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
    except ImportError as error:
        raise ConfigurationError("pyiceberg is not installed: pip install 'fastkcl[iceberg]'") from error
    options = {name: value for name, value in catalog.items() if name != "name"}
    try:
        opened = asked(
            "open the catalog", lambda: load_catalog(catalog.get("name", "default"), **{**options, "py-io-impl": _IO})
        )
    except (ImportError, NotInstalledError) as error:
        raise ConfigurationError(
            f"a package of the catalog is missing: {error}: pip install 'fastkcl[iceberg]'"
        ) from error
    if type(opened).__name__ not in _CLASSES:
        raise ConfigurationError(f"catalog: tables cannot be written in a {type(opened).__name__}: give {_CHOICES}")
    return opened


def asked(what: str, call: Callable[[], T]) -> T:
    """Ask a catalog.

    Raises:
        StoreError: it refuses, or does not answer.
        NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError, CommitFailedException: as they are.
    """
    from pyiceberg import exceptions as its

    as_they_are: Any = (
        its.CommitFailedException,
        its.NoSuchTableError,
        its.NoSuchNamespaceError,
        its.NamespaceAlreadyExistsError,
        its.TableAlreadyExistsError,
        its.NotInstalledError,
        ConfigurationError,
        SinkError,
        StoreError,
        ImportError,
    )
    try:
        return call()
    except as_they_are:
        raise
    except Exception as error:
        said = _PASSWORD.sub(r"\1:…@", in_one_line(error))[:600]
        raise StoreError(f"{what}: {said}: is the catalog reachable, and may these credentials do it?") from error
