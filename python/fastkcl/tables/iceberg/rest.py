"""A REST catalog whose answers are read up to a bound, however they are packed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog as ItsRestCatalog
from requests import PreparedRequest, RequestException, Response, Session

__all__ = ["MOST_BYTES", "RestCatalog"]

MOST_BYTES: Final = 256 << 20
"""Of an answer: the metadata of a table with 100,000 snapshots has some 50 MB."""
_PART: Final = 1 << 16


class RestCatalog(ItsRestCatalog):
    """As pyiceberg's."""

    def _config_headers(self, session: Session) -> None:
        """Called first of all, before a token is asked for."""
        super()._config_headers(session)
        _bound(session)

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        _bound(session)


def _bound(session: Session) -> None:
    for adapter in session.adapters.values():
        if not isinstance(adapter.send, partial):
            adapter.send = partial(_send, adapter.send)  # type: ignore[method-assign]


def _send(send: Callable[..., Response], request: PreparedRequest, **options: Any) -> Response:  # noqa: ANN401
    response = send(request, **{**options, "stream": True})
    body = bytearray()
    for part in response.iter_content(_PART):
        body += part
        if len(body) > MOST_BYTES:
            response.close()
            raise RequestException(f"the catalog's answer has more than {MOST_BYTES >> 20} MiB", request=request)
    response._content = bytes(body)
    return response
