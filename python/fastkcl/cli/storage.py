"""How commands reach a table on S3: by options, by the environment, and without credentials on this machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from fastkcl.cli.answers import bound_answers
from fastkcl.cli.aws import explain
from fastkcl.cli.credentials import CredentialsError, find_credentials
from fastkcl.loopback import LOCAL, is_loopback

if TYPE_CHECKING:
    from fastkcl.tables import S3Storage

__all__ = ["endpoint_of", "has_credentials", "is_s3", "storage_of"]

_OF_S3: Final = ("FASTKCL_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3")
_OF_ALL: Final = "AWS_ENDPOINT_URL"


def is_s3(url: str) -> bool:
    """Whether a table is on S3."""
    return url.startswith("s3://")


def endpoint_of(of_s3: str | None, of_all: str | None = None) -> str | None:
    """The endpoint of S3; None for AWS. A variable for S3 alone is more than an option for all services.

    Args:
        of_s3: an option for S3 alone.
        of_all: one for all services.
    """
    found = (of_s3, *map(os.environ.get, _OF_S3), of_all, os.environ.get(_OF_ALL))
    return next(filter(None, found), None)


def storage_of(url: str, endpoint: str | None, region: str | None) -> S3Storage | None:
    """How a table is reached; None for one on a disk.

    Raises:
        ValueError: the endpoint is not a URL.
        CredentialsError: there is a setting of credentials, and they do not come.
    """
    if not is_s3(url):
        return None
    from fastkcl.tables import S3Storage

    if is_loopback(endpoint) and not has_credentials():
        return S3Storage(endpoint=endpoint, region=region, access_key=LOCAL[0], secret_key=LOCAL[1])
    return S3Storage(endpoint=endpoint, region=region)


def has_credentials() -> bool:
    """Whether there are some, as commands find them at their start.

    Raises:
        CredentialsError: there is a setting, and they do not come.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.session import get_session
    except ImportError:
        return bool(os.environ.get("AWS_ACCESS_KEY_ID"))
    try:
        return find_credentials(bound_answers(get_session()))
    except (BotoCoreError, ClientError) as error:
        raise CredentialsError(explain(error, None, None)) from None
