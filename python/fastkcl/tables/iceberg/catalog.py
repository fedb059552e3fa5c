"""Iceberg's catalogs, by pyiceberg: which of them a table may be in, and how one is opened.

    rest    a REST catalog       the server compares, and writes the metadata
    sql     a database           a row of the table is replaced if it is still as it was; `sqlite` keeps it
    glue    AWS Glue             UpdateTable with the VersionId that was read

Others have no comparison that a commit could rely on, or none that was tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fastkcl import ConfigurationError
from fastkcl.checks import check_sendable
from fastkcl.http_bodies import bound_session
from fastkcl.masking import remember_properties, remember_token, without_users
from fastkcl.stdio.given_files import fault_of_pipe
from fastkcl.tables.base import SinkError, in_one_line
from fastkcl.tables.iceberg.sqlite import make_durable
from fastkcl.tables.store import DeniedError, StoreError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from fastkcl.tables.object_store import S3Storage

__all__ = [
    "CATALOGS",
    "asked",
    "check_configuration",
    "check_options",
    "load_table",
    "loaded",
    "open_catalog",
    "storage_properties",
]

CATALOGS: Final = ("rest", "sql", "glue")
_CLASSES: Final = {"RestCatalog", "SqlCatalog", "GlueCatalog"}
_IO: Final = "fastkcl.tables.iceberg.io.StoreFileIO"
_BUNDLES: Final = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # of botocore and of requests
_CHOICES: Final = (
    "{'type': 'rest', 'uri': 'https://…'}, {'type': 'sql', 'uri': 'sqlite:///…', 'warehouse': 's3://…'} or"
    " {'type': 'glue', 'warehouse': 's3://…'}"
)

_NOT_AWS: Final = "is it AWS? Look at glue.endpoint, AWS_ENDPOINT_URL and HTTPS_PROXY"
_LOOKS: Final = 20
_LOCATIONS: Final = "write.py-location-provider.impl"

T = TypeVar("T")


def check_options(catalog: Mapping[str, str]) -> None:
    """See that a catalog is one of `CATALOGS`, as far as its options tell.

    Raises:
        TypeError: it is no mapping of texts.
        ValueError: it is another one, or no request can carry a property.
    """
    if not isinstance(catalog, Mapping) or not all(
        isinstance(name, str) and isinstance(value, str) for name, value in catalog.items()
    ):
        raise TypeError(f"catalog must be a dict of texts, as {_CHOICES}")
    kind = catalog.get("type")
    if "py-catalog-impl" in catalog or (kind is not None and kind.lower() not in CATALOGS):
        raise ValueError(f"catalog: tables cannot be written in {kind or 'one of py-catalog-impl'}: give {_CHOICES}")
    for name, value in catalog.items():
        check_sendable(f"catalog: {name}", value)
    if kind is None and not {"uri", "name"} & set(catalog):
        raise ValueError(f"catalog: give {_CHOICES}, or the 'name' of one in .pyiceberg.yaml")


def check_configuration(catalog: Mapping[str, str]) -> None:
    """See that pyiceberg can read its file and its variables, which it does when it is imported.

    Raises:
        ConfigurationError: it cannot.
    """
    try:
        import pyiceberg.catalog
        import pyiceberg.manifest  # noqa: F401
        from pyiceberg.utils.config import Config

        Config().get_catalog_config(catalog.get("name", "default"))
    except ImportError:
        return  # `open_catalog` says so
    except Exception as error:  # its text may have a line of the file, with a secret
        fault = type(error).__name__
        if isinstance(error, OSError):
            fault = str(error.strerror)
        elif (mark := getattr(error, "problem_mark", None)) is not None:
            fault += f" in line {mark.line + 1}"
        elif isinstance(error, ValueError):
            fault = in_one_line(error).partition(", value: ")[0]
        raise ConfigurationError(
            f"pyiceberg cannot read its .pyiceberg.yaml (of PYICEBERG_HOME, the home folder or this one), or a variable"
            f" PYICEBERG_…: {fault}: correct or remove it"
        ) from None


def open_catalog(catalog: Mapping[str, str]) -> Catalog:
    """Open a catalog, with our own files under it.

    Raises:
        ConfigurationError: pyiceberg, or a package of the catalog, is missing; pyiceberg's file cannot be read; it is
            one of another type; or the certificates that are trusted are in a pipe.
        StoreError: it does not answer.
    """
    try:
        from pyiceberg.exceptions import NotInstalledError
    except ImportError as error:
        raise ConfigurationError("pyiceberg is not installed: pip install 'fastkcl[iceberg]'") from error
    check_configuration(catalog)
    name = catalog.get("name", "default")
    options = {**_stripped(name), **{name: value for name, value in catalog.items() if name != "name"}}
    remember_properties(options)
    try:
        opened = asked("open the catalog", lambda: _loaded(name, {**options, "py-io-impl": _IO}))
    except (ImportError, NotInstalledError) as error:
        raise ConfigurationError(
            f"a package of the catalog is missing: {error}: pip install 'fastkcl[iceberg]'"
        ) from error
    if type(opened).__name__ not in _CLASSES:
        raise ConfigurationError(f"catalog: tables cannot be written in a {type(opened).__name__}: give {_CHOICES}")
    remember_properties(opened.properties)  # the server's among them
    if (client := getattr(opened, "glue", None)) is not None:
        client.meta.events.register("before-send", remember_token)
    from fastkcl.tables.iceberg.io import OURS

    files_of: Callable[..., FileIO] = opened._load_file_io

    def only_ours(properties: Mapping[str, str] = MappingProxyType({}), location: str | None = None) -> FileIO:
        remember_properties(properties)
        return files_of({name: value for name, value in properties.items() if name not in OURS}, location)

    opened._load_file_io = only_ours  # type: ignore[method-assign]
    make_durable(opened)
    return opened


def _loaded(name: str, options: Mapping[str, str]) -> Catalog:
    """As pyiceberg's load_catalog, with our own class of a REST catalog."""
    from pyiceberg.catalog import infer_catalog_type, load_catalog
    from pyiceberg.utils.config import Config

    configured: dict[str, Any] = {**(Config().get_catalog_config(name) or {}), **options}
    kind = configured.get("type") or infer_catalog_type(name, configured)
    kind = getattr(kind, "value", str(kind)).lower()
    _refuse_pipes(kind, configured)
    if kind == "glue":
        return load_catalog(name, **options, botocore_session=_session_of_glue())
    if kind != "rest" or "py-catalog-impl" in configured or "uri" not in configured:
        return load_catalog(name, **options)
    from fastkcl.tables.iceberg.rest import RestCatalog

    return RestCatalog(name, **configured)


def _session_of_glue() -> Any:  # noqa: ANN401 - of botocore
    """A session whose clients' answers have bounds."""
    from botocore.session import get_session

    def fault(call: str, fault: str, url: str) -> StoreError:
        return StoreError(f"the answer of {url} to {call} {fault}: {_NOT_AWS}")

    return bound_session(get_session(), fault)


def _refuse_pipes(kind: str, configured: Mapping[str, Any]) -> None:
    """See that no file of a catalog's connections is a pipe: each connection would open it, and wait for ever.

    Raises:
        ConfigurationError: one is.
    """
    files = [] if kind == "sql" else [(variable, os.environ.get(variable)) for variable in _BUNDLES]
    if kind == "rest" and isinstance(trusted := configured.get("ssl"), Mapping):
        files.append(("ssl.cabundle", trusted.get("cabundle")))
        if isinstance(own := trusted.get("client"), Mapping):
            files += [(f"ssl.client.{what}", own.get(what)) for what in ("cert", "key")]
    if kind == "glue":
        from botocore.session import Session

        profile = configured.get("glue.profile-name") or configured.get("client.profile-name")
        with suppress(Exception):  # the client says so
            files.append(("ca_bundle of the profile", Session(profile=profile).get_config_variable("ca_bundle")))
    for what, path in files:
        if isinstance(path, str) and (fault := fault_of_pipe(path, what)):
            raise ConfigurationError(fault)


def _stripped(name: str) -> dict[str, str]:
    """What pyiceberg has of a catalog in its variables and its file, where it ends in a line feed or a space.

    Raises:
        ConfigurationError: no request can carry it.
    """
    from pyiceberg.utils.config import Config

    found = {}
    configured = Config().get_catalog_config(name) or {}
    remember_properties(configured)
    for key, value in configured.items():
        if not isinstance(value, str):
            continue
        try:
            check_sendable(f"catalog: {key} (PYICEBERG_CATALOG__{name.upper()}__… or .pyiceberg.yaml)", value.strip())
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        if value != value.strip():
            found[key] = value.strip()
    return found


def load_table(name: str, catalog: Mapping[str, str], storage: S3Storage | None) -> Table:
    """A table that is there, for those who look into it.

    Args:
        name: ``db.clicks``.
        catalog: as an IcebergTable has it.
        storage: likewise.

    Raises:
        SinkError: there is none of that name, or its metadata is damaged.
        ValueError, TypeError: no catalog that a table may be in, or no name of one.
        StoreError: the catalog does not answer.
        ConfigurationError: pyiceberg is missing, or a package of the catalog.
    """
    check_options(catalog)
    if "." not in name:
        raise ValueError(f"{name}: must be namespace and table, as db.clicks")
    opened = open_catalog({**catalog, **storage_properties(storage)})
    from pyiceberg.exceptions import NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError

    try:
        return loaded(name, opened)
    except (NoSuchIdentifierError, NoSuchNamespaceError, NoSuchTableError) as error:
        raise SinkError(f"{name}: the catalog has no such table: {in_one_line(error)}") from None


def loaded(name: str, catalog: Catalog) -> Table:
    """A table as the catalog has it.

    Somebody's commit may come between the catalog's answer and the look at the file that it names, and old files are
    removed. So a file that is gone counts only if the catalog still names it.

    Raises:
        SinkError: its metadata is damaged, or chooses code.
        StoreError: the catalog does not answer.
        NoSuchTableError, NoSuchNamespaceError: as they are.
    """
    from fastkcl.tables.iceberg.io import MissingError

    gone = None
    for left in reversed(range(_LOOKS)):
        try:
            table = asked(f"load {name}", lambda: catalog.load_table(name))
            if chosen := table.properties.get(_LOCATIONS):
                raise SinkError(
                    f"{name}: its property {_LOCATIONS} is {chosen!r}, code that would run here, and whoever may change"
                    " the table can choose it: remove the property"
                )
            return table
        except MissingError as error:
            if str(error) == gone or not left:
                raise
            gone = str(error)
    raise AssertionError


def storage_properties(storage: S3Storage | None) -> dict[str, str]:
    """A storage as pyiceberg's properties."""
    if storage is None:
        return {}
    told = {
        "s3.endpoint": storage.endpoint,
        "s3.region": storage.region,
        "s3.access-key-id": storage.access_key,
        "s3.secret-access-key": storage.secret_key,
        "s3.session-token": storage.session_token,
        "fastkcl.ca": None if storage.ca is None else str(storage.ca),
    }
    return {name: value for name, value in told.items() if value is not None}


def asked(what: str, call: Callable[[], T]) -> T:
    """Ask a catalog.

    Raises:
        StoreError: it refuses, or does not answer; `DeniedError` if these credentials have no right to it.
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
        said = without_users(in_one_line(error))[:600]
        denied = isinstance(error, (its.ForbiddenError, its.UnauthorizedError)) or _is_denied(error)
        raise (DeniedError if denied else StoreError)(
            f"{what}: {said}: is the catalog reachable, and may these credentials do it?"
        ) from None


def _is_denied(error: Exception) -> bool:
    """Whether AWS has said so."""
    answer = getattr(error, "response", None)
    fault = answer.get("Error") if isinstance(answer, dict) else None
    return isinstance(fault, dict) and str(fault.get("Code")).startswith("AccessDenied")
