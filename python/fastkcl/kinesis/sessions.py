"""Sessions of aiobotocore: the check of a given one, and those for clients that are given none."""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fastkcl.masking import remember_token, without_sent
from fastkcl.stdio.given_files import check_bundle, check_tokens

if TYPE_CHECKING:
    from aiobotocore.session import AioSession

__all__ = ["check_session", "has_http_session", "masked", "new_session"]


def new_session() -> AioSession:
    """A separate session that shares the descriptions of services with the others of the process.

    Reading them takes botocore some 70 ms of processor time, in which the event loop stands still. Its clients, those
    for credentials too, read no more of an answer than one of AWS may have.

    Raises:
        botocore.exceptions.ProfileNotFound: AWS_PROFILE names none.
        botocore.exceptions.InvalidConfigError: certificates or a token are in a pipe.
    """
    from aiobotocore.config import AioConfig
    from aiobotocore.session import get_session

    from fastkcl.kinesis.read.bodies import GatedSession

    session = get_session()
    session.set_default_client_config(AioConfig(http_session_cls=GatedSession))
    check_bundle(session)
    check_tokens()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return session


def masked(client: Any) -> Any:  # noqa: ANN401
    """A client whose errors do not have what was sent to the service, and which a proxy may repeat."""
    client.meta.events.register("before-send", remember_token)
    client.meta.events.register("after-call", _mask)
    return client


def _mask(http_response: Any, parsed: Any, **_: Any) -> None:  # noqa: ANN401
    if http_response.status_code >= HTTPStatus.MULTIPLE_CHOICES and isinstance(error := parsed.get("Error"), dict):
        error.update({name: without_sent(value) for name, value in error.items() if isinstance(value, str)})


@cache
def _loader(data_path: str | None) -> Any:  # noqa: ANN401 - botocore has no types
    from botocore.loaders import create_loader

    return create_loader(data_path)


def has_http_session(session: Any) -> bool:  # noqa: ANN401 - aiobotocore's sessions have no types
    """Whether the program has chosen the HTTP client."""
    config = session.get_default_client_config()
    return "http_session_cls" in getattr(config, "_user_provided_options", {})


def check_session(session: object) -> None:
    """Refuse an object that is not a session of aiobotocore.

    Raises:
        TypeError: it is not a session of aiobotocore.
    """
    if session is None:
        return
    from aiobotocore.session import AioSession

    if not isinstance(session, AioSession):
        raise TypeError(f"session must be an aiobotocore.session.AioSession, not {type(session).__name__}")
