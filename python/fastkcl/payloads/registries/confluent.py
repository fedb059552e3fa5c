"""Schemas of a registry with Confluent's interface, over HTTP.

    GET  /schemas/ids/{id}                       a schema, and the names, subjects and versions of those that it uses
    GET  /subjects/{subject}/versions/{version}  one of those; ``latest`` is a version, too
    POST /subjects/{subject}/versions            registers a schema

Rules: redirects are not followed, as they would carry the credentials to another host. An answer is bounded in bytes
and time. References are followed to `MAX_DEPTH`, and no more than `MAX_REFERENCES` of them.
"""

from __future__ import annotations

import base64
import json
import ssl
import urllib.request
from http.client import HTTPException
from time import monotonic
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote

from fastkcl import ConfigurationError
from fastkcl.payloads.registries.answers import (
    MAX_DEPTH,
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    AwayError,
    MissingError,
    SchemaText,
    UnusableError,
    check_text,
    loads,
)
from fastkcl.payloads.registries.options import ConfluentRegistry

__all__ = ["ConfluentClient"]

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT: Final = 10.0  # seconds of silence
_DEADLINE: Final = 30.0  # seconds of an answer
_SHOWN: Final = 300


class ConfluentClient:
    """Calls of one registry.

    Args:
        options: where it is, and who calls.

    Raises:
        ConfigurationError: the bundle of certificates cannot be read.
    """

    def __init__(self, options: ConfluentRegistry) -> None:
        self.where = options.url.rstrip("/")
        self._headers = {"Accept": f"{_TYPE}, application/json"}
        if options.token is not None:
            self._headers["Authorization"] = f"Bearer {options.token}"
        elif options.user is not None:
            pair = base64.b64encode(f"{options.user}:{options.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        try:
            context = ssl.create_default_context(cafile=options.ca_bundle)
        except OSError as error:
            raise ConfigurationError(f"ca_bundle {options.ca_bundle} cannot be read: {error}") from error
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())

    def by_id(self, id: str) -> SchemaText:  # noqa: A002 - the field's word
        """The schema of an id.

        Raises:
            MissingError: there is none.
            UnusableError: it cannot be used.
            AwayError: no answer now.
        """
        return self._schema(f"/schemas/ids/{quote(id, safe='')}")

    def latest(self, name: str) -> SchemaText:
        """The newest version of a subject.

        Raises:
            MissingError: there is none.
            UnusableError: it cannot be used.
            AwayError: no answer now.
        """
        return self._schema(f"/subjects/{quote(name, safe='')}/versions/latest")

    def register(self, name: str, format: str, text: str) -> str:  # noqa: A002
        """The id of a schema's text under a subject, which is made if it is not there.

        Raises:
            UnusableError: the registry refuses the text, by its rules of compatibility for example.
            AwayError: no answer now.
        """
        body = json.dumps({"schema": text, "schemaType": format.upper()}).encode()
        answer = self._call(f"/subjects/{quote(name, safe='')}/versions", body)
        return _id_of(answer)

    def _schema(self, path: str) -> SchemaText:
        answer = self._call(path)
        format_, text = check_text(answer.get("schemaType") or "AVRO", answer.get("schema"))
        references: dict[str, str] = {}
        self._follow(answer, references, len(text), 0)
        version = answer.get("version")
        known = isinstance(answer.get("id"), int)
        return SchemaText(
            format_,
            text,
            references,
            version=version if isinstance(version, int) else None,
            id=_id_of(answer) if known else None,
        )

    def _follow(self, answer: dict[str, Any], found: dict[str, str], size: int, depth: int) -> int:
        """Adds the texts that an answer refers to, those that they refer to first; the bytes of all."""
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise UnusableError("its references are no list")
        if references and depth >= MAX_DEPTH:
            raise UnusableError(f"its references are deeper than {MAX_DEPTH}")
        for each in references:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise UnusableError("a reference of it has no name")
            name, subject, version = each["name"], each.get("subject"), each.get("version")
            if name in found:
                continue
            if not isinstance(subject, str) or not isinstance(version, int):
                raise UnusableError(f"its reference {name[:80]!r} has no subject and version")
            try:
                inner = self._call(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            except MissingError as error:
                raise UnusableError(f"its reference {name[:80]!r} is missing: {error}") from None
            _, text = check_text(inner.get("schemaType") or "AVRO", inner.get("schema"))
            size += len(text)
            if len(found) >= MAX_REFERENCES or size > MAX_SCHEMA_BYTES:
                raise UnusableError(f"it has more than {MAX_REFERENCES} references, or {MAX_SCHEMA_BYTES} bytes")
            found[name] = ""  # on the way: a circle ends here
            size = self._follow(inner, found, size, depth + 1)
            del found[name]
            found[name] = text  # after those that it refers to
        return size

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        headers = self._headers if body is None else {**self._headers, "Content-Type": _TYPE}
        request = urllib.request.Request(self.where + path, data=body, headers=headers)  # noqa: S310 - http or https
        call = f"{'GET' if body is None else 'POST'} {self.where}{path}"
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                text = _read(answer)
        except HTTPError as error:
            said = _said(error)
            if error.code == 404:
                raise MissingError(f"{call}: status 404: {said}") from None
            if error.code in (400, 409, 422):
                raise UnusableError(f"{call}: status {error.code}: {said}") from None
            raise AwayError(f"{call}: status {error.code}: {said}") from None
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, UnusableError):
                raise
            raise AwayError(f"{call}: {error}") from None
        value = loads(text, "the registry's answer")
        if not isinstance(value, dict):
            raise UnusableError(f"{call}: the answer is no object")
        return value


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # noqa: ANN401 - of the library
        """None: the redirect is an error of its status."""


def _said(error: HTTPError) -> str:
    """The beginning of what a registry says of an error."""
    try:
        with error:
            return error.read(_SHOWN).decode(errors="replace")
    except (OSError, HTTPException):
        return error.reason


def _read(answer: Any) -> str:  # noqa: ANN401 - of the library
    ends, parts, left = monotonic() + _DEADLINE, [], 2 * MAX_SCHEMA_BYTES
    while part := answer.read1(min(left + 1, 1 << 16)):
        left -= len(part)
        if left < 0:
            raise UnusableError(f"the registry's answer has more than {2 * MAX_SCHEMA_BYTES} bytes")
        if monotonic() > ends:
            raise TimeoutError(f"no whole answer in {_DEADLINE:g} s")
        parts.append(part)
    try:
        return b"".join(parts).decode()
    except UnicodeDecodeError:
        raise UnusableError("the registry's answer is no UTF-8") from None


def _id_of(answer: dict[str, Any]) -> str:
    number = answer.get("id")
    if not isinstance(number, int) or not 0 <= number < 1 << 32:
        raise UnusableError("the registry's answer has no id of 4 bytes")
    return str(number)
