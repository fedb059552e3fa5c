"""A REST catalog that is waited for up to a bound, and whose answers are read up to one; what it was sent is masked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog as ItsRestCatalog
from pyiceberg.catalog.rest.auth import OAuth2AuthManager
from requests import PreparedRequest, RequestException, Response, Session
from urllib3.exceptions import HTTPError

from fastkcl.masking import remember

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "MOST_BYTES", "SILENT_SECONDS", "RestCatalog"]

MOST_BYTES: Final = 256 << 20
"""Of an answer: the metadata of a table with 100,000 snapshots has some 50 MB."""
_PART: Final = 1 << 16
CONNECT_SECONDS: Final = 10
SILENT_SECONDS: Final = 60
"""A commit takes a server some seconds, beside others."""
ANSWER_SECONDS: Final = 300
"""For all of an answer."""


class RestCatalog(ItsRestCatalog):
    """As pyiceberg's."""

    def _config_headers(self, session: Session) -> None:
        """Called first of all, before a token is asked for."""
        super()._config_headers(session)
        _bound(session)

    def _create_session(self) -> Session:
        session = super()._create_session()
        if isinstance(self._auth_manager, OAuth2AuthManager):
            provider = self._auth_manager.token_provider
            provider._refresh_token = partial(_refresh, provider)  # type: ignore[method-assign]
        return session

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        _bound(session)


def _bound(session: Session) -> None:
    for adapter in session.adapters.values():
        if not isinstance(adapter.send, partial):
            adapter.send = partial(_send, adapter.send)  # type: ignore[method-assign]


def _send(send: Callable[..., Response], request: PreparedRequest, **options: Any) -> Response:  # noqa: ANN401
    token = request.headers.get("Authorization", "")
    remember((token.decode("latin-1") if isinstance(token, bytes) else token).partition(" ")[2])
    patience = (CONNECT_SECONDS, SILENT_SECONDS)
    ends = time.monotonic() + ANSWER_SECONDS
    try:
        response = send(request, **{**options, "timeout": options.get("timeout") or patience, "stream": True})
    finally:
        remember(request.headers.get("X-Amz-Security-Token"))  # signed on the way
    body = bytearray()
    for part in _parts(response):
        body += part
        if len(body) > MOST_BYTES:
            response.close()
            raise RequestException(f"the catalog's answer has more than {MOST_BYTES >> 20} MiB", request=request)
        if time.monotonic() > ends:
            response.close()
            raise RequestException(f"the catalog's answer takes more than {ANSWER_SECONDS} s", request=request)
    response._content = bytes(body)
    return response


def _parts(response: Response) -> Iterator[bytes]:
    if not hasattr(response.raw, "read1"):  # of urllib3 before 2: each part is waited for until it is whole
        yield from response.iter_content(_PART)
        return
    try:
        while part := response.raw.read1(_PART, decode_content=True):
            yield part
    except HTTPError as error:
        raise RequestException(error) from error


def _refresh(provider: Any) -> None:  # noqa: ANN401 - an OAuth2TokenProvider, whose own way has no bounds
    with Session() as session:
        _bound(session)
        session.auth = (provider.client_id, provider.client_secret)
        sent = {"grant_type": "client_credentials", **({"scope": provider.scope} if provider.scope else {})}
        answer = session.post(provider.token_url, data=sent)
        answer.raise_for_status()
        given = answer.json()
    lasts = given.get("expires_in", provider.expires_in)
    if lasts is None:
        raise ValueError(f"{provider.token_url}: gives a token without expires_in: give the catalog one")
    provider._token = given["access_token"]
    provider._expires_at = time.monotonic() + lasts - provider.refresh_margin
