"""A REST catalog that is waited for up to a bound, and whose answers are read up to one; what it was sent is masked."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import BOTOCORE_SESSION
from pyiceberg.catalog.rest import RestCatalog as ItsRestCatalog
from pyiceberg.catalog.rest.auth import OAuth2AuthManager
from requests import PreparedRequest, RequestException, Response, Session
from urllib3.exceptions import HTTPError

from fastkcl.http_bodies import BodyError, answered, bound_session
from fastkcl.masking import remember
from fastkcl.tables.iceberg.io import OURS

__all__ = ["ANSWER_SECONDS", "CONNECT_SECONDS", "MOST_BYTES", "SILENT_SECONDS", "RestCatalog"]

MOST_BYTES: Final = 256 << 20
"""Of an answer: the metadata of a table with 100,000 snapshots has some 50 MB."""
CONNECT_SECONDS: Final = 10
SILENT_SECONDS: Final = 60
"""A commit takes a server some seconds, beside others."""
ANSWER_SECONDS: Final = 300
"""For all of an answer."""


class RestCatalog(ItsRestCatalog):
    """As pyiceberg's."""

    def _fetch_config(self) -> None:
        mine = {name: self.properties[name] for name in OURS if name in self.properties}
        super()._fetch_config()
        self.properties = {name: value for name, value in self.properties.items() if name not in OURS} | mine

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
        from botocore.session import get_session

        self.properties[BOTOCORE_SESSION] = bound_session(get_session())
        super()._init_sigv4(session)
        _bound(session)


def _bound(session: Session) -> None:
    for adapter in session.adapters.values():
        if not isinstance(adapter.send, partial):
            adapter.send = partial(_send, adapter.send)  # type: ignore[method-assign]


def _send(send: Callable[..., Response], request: PreparedRequest, **options: Any) -> Response:  # noqa: ANN401
    token = request.headers.get("Authorization", "")
    remember((token.decode("latin-1") if isinstance(token, bytes) else token).partition(" ")[2])
    given = {**options, "timeout": options.get("timeout") or (CONNECT_SECONDS, SILENT_SECONDS), "stream": True}
    try:
        response, body = answered(lambda: send(request, **given), MOST_BYTES, ANSWER_SECONDS, unpack=True)
    except BodyError as error:
        raise RequestException(f"the catalog's answer {error}", request=request) from None
    except HTTPError as error:
        raise RequestException(error, request=request) from error
    finally:
        remember(request.headers.get("X-Amz-Security-Token"))  # signed on the way
    response._content = body
    return response


def _refresh(provider: Any) -> None:  # noqa: ANN401 - an OAuth2TokenProvider, whose own way has no bounds
    pair = f"{provider.client_id}:{provider.client_secret}"
    sent = {"grant_type": "client_credentials", **({"scope": provider.scope} if provider.scope else {})}
    with Session() as session:
        _bound(session)
        header = {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
        # Its `auth` keeps ~/.netrc out.
        answer = session.post(provider.token_url, data=sent, headers=header, auth=lambda request: request)
        answer.raise_for_status()
        given = answer.json()
    lasts = given.get("expires_in", provider.expires_in)
    if lasts is None:
        raise ValueError(f"{provider.token_url}: gives a token without expires_in: give the catalog's oauth2 one")
    provider._token = given["access_token"]
    provider._expires_at = time.monotonic() + float(lasts) - float(provider.refresh_margin)  # texts, of a file
