"""Clients of Kinesis for commands, and their messages when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import click

from fastkcl.cli.answers import bound_answers, check_answers
from fastkcl.cli.credentials import find_credentials, find_credentials_async
from fastkcl.cli.output import printable, without_users
from fastkcl.credentials import told
from fastkcl.loopback import LOCAL, LOCAL_REGION, is_loopback
from fastkcl.masking import without_sent
from fastkcl.stdio.given_files import check_bundle

__all__ = ["aio_session", "check_listening", "explain", "kinesis_client"]

_ATTEMPTS = 10
"""Of a call, with botocore's pauses between them: about a minute of an outage."""
_CONNECT_SECONDS = 4.0
"""For the first connection: an outage at the start is a wrong address more often, so nothing is tried again."""


def kinesis_client(endpoint_url: str | None, region: str | None, service: str = "kinesis") -> Any:  # noqa: ANN401 - botocore has no types
    """A client of botocore, of Kinesis or another service. One of this machine needs neither credentials nor a region.

    Raises:
        UsageError: the endpoint is not a URL.
        CredentialsError: there are credentials, and they do not come or cannot be sent.
        EndpointConnectionError: nobody listens at the service's address.
        InvalidConfigError: the bundle of certificates is a pipe.
    """
    from botocore.config import Config
    from botocore.session import get_session

    session = bound_answers(get_session())
    check_bundle(session)
    check_answers(session.get_component("event_emitter"))
    known: dict[str, Any] = {"region_name": region or session.get_config_variable("region")}
    has_credentials = find_credentials(session)
    with _endpoint_checked():
        if is_loopback(endpoint_url):
            if not has_credentials:
                known["aws_access_key_id"], known["aws_secret_access_key"] = LOCAL
                has_credentials = True
            if known["region_name"] is None:
                known["region_name"] = LOCAL_REGION
        retries = Config(retries={"mode": "standard", "total_max_attempts": _ATTEMPTS}, read_timeout=60)
        client = session.create_client(service, endpoint_url=endpoint_url, config=retries, **known)
        if has_credentials:  # without them each call says so
            check_listening(client.meta.endpoint_url)
    return client


async def aio_session(endpoint_url: str | None, region: str | None) -> Any:  # noqa: ANN401 - aiobotocore has no types
    """A session of aiobotocore, as `kinesis_client` has one of botocore.

    Raises:
        UsageError: the endpoint is not a URL.
        CredentialsError: there are credentials, and they do not come or cannot be sent.
        EndpointConnectionError: nobody listens at the address of Kinesis.
    """
    from fastkcl.kinesis.sessions import new_session

    logging.getLogger("aiobotocore").addHandler(logging.NullHandler())  # the error has its line
    session = new_session()
    check_answers(session)
    if region is not None:
        session.set_config_variable("region", region)
    has_credentials = await find_credentials_async(session)
    with _endpoint_checked():
        if is_loopback(endpoint_url):
            if not has_credentials:
                session.set_credentials(*LOCAL)
                has_credentials = True
            if session.get_config_variable("region") is None:
                session.set_config_variable("region", LOCAL_REGION)
        if not has_credentials:
            return session  # each call says so
        async with session.create_client("kinesis", endpoint_url=endpoint_url) as client:
            await _check_listening(client.meta.endpoint_url)
    return session


@contextlib.contextmanager
def _endpoint_checked() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except BotoCoreError:  # some are ValueErrors too
        raise
    except ValueError:  # its text may have a password
        raise click.UsageError(
            "the endpoint (--endpoint-url, AWS_ENDPOINT_URL) is not a URL such as http://127.0.0.1:4567"
        ) from None


def check_listening(url: str) -> None:
    """See that somebody listens at an address, within seconds.

    Raises:
        EndpointConnectionError: nobody does.
    """
    asyncio.run(_check_listening(url))


async def _check_listening(url: str) -> None:
    from botocore.exceptions import EndpointConnectionError
    from botocore.utils import get_environ_proxies

    if get_environ_proxies(url):
        return  # the proxy may reach what this machine cannot
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        connecting = asyncio.open_connection(parts.hostname, port, happy_eyeballs_delay=0.25)
        _, writer = await asyncio.wait_for(connecting, _CONNECT_SECONDS)
    except OSError as error:  # TimeoutError included
        raise EndpointConnectionError(endpoint_url=url, error=error) from error
    writer.transport.abort()


def explain(error: BaseException, stream: str | None, endpoint_url: str | None) -> str:
    """The error, with advice for the usual ones."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        EndpointConnectionError,
        NoCredentialsError,
        NoRegionError,
    )

    from fastkcl.kinesis.failures import NotKinesisError, what_to_allow
    from fastkcl.payloads.registries.registry import RegistryAwayError

    text = without_users(printable(without_sent(str(error))))
    match error:
        case NotKinesisError() | RegistryAwayError():
            return text
        case NoCredentialsError():
            return f"{text}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run `aws configure`"
        case NoRegionError():
            return f"{text} --region or AWS_DEFAULT_REGION names it"
        case EndpointConnectionError() | ConnectionError() if endpoint_url is not None:
            return f"{text}: is `fastkcl local-aws` running there?"
        case EndpointConnectionError():
            return f"{text}: look at the network, --region, AWS_ENDPOINT_URL and HTTPS_PROXY"
        case ClientError() if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
            return f"there is no stream {stream!r}: `fastkcl put --create SHARDS` makes it ({text})"
        case BotoCoreError() if (said := told(error)) is not None:
            return without_users(said)
    return text + what_to_allow(error)
