"""The message of a command whose extra is not installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec

import click

__all__ = ["MissingExtraError", "check_extra", "check_local_aws", "without_extra"]


class MissingExtraError(click.ClickException):
    """A package is not there."""

    exit_code = 2


def check_extra(extra: str, *packages: str) -> None:
    """See that an extra is installed, and import nothing: that takes longer than many a command.

    Raises:
        MissingExtraError: one of its packages is not there.
    """
    with without_extra(extra):
        for package in packages:
            if find_spec(package) is None:
                raise ModuleNotFoundError(name=package)


def check_local_aws() -> None:
    """See that the extra of local AWS is installed: it imports moto with the first request for it, where it is late.

    Raises:
        MissingExtraError: it is not.
    """
    check_extra("local", "moto", "werkzeug", "flask", "flask_cors")


@contextlib.contextmanager
def without_extra(extra: str) -> Iterator[None]:
    """Turn a failing import of a foreign package into one line that names the extra to install.

    Raises:
        MissingExtraError: the import has failed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "fastkcl":
            raise
        raise MissingExtraError(f"this command needs {package}: pip install 'fastkcl[{extra}]'") from None
