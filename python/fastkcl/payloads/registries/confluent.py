"""Schemas of a registry with Confluent's interface, over HTTP.

    GET  /schemas/ids/{id}                       a schema, and the names, subjects and versions of those that it uses
    GET  /subjects/{subject}/versions/{version}  one of those; ``latest`` is a version, too
    POST /subjects/{subject}/versions            registers a schema

Rules: an answer that is not a registry's (of a proxy or a wrong address: HTML, a redirect, no JSON, no schema) is no
word about the id: the registry is away. Answers are bounded in bytes and time, those of all references of a schema
together, too. References are followed to `MAX_DEPTH`, and no more than `MAX_REFERENCES` of them.
"""

from __future__ import annotations

import base64
import json
from time import monotonic
from typing import Any, Final
from urllib.parse import quote

from fastkcl import ConfigurationError
from fastkcl.masking import remember_lasting, without_sent
from fastkcl.payloads.registries.answers import (
    MAX_DEPTH,
    MAX_REFERENCES,
    MAX_SCHEMA_BYTES,
    AwayError,
    MissingError,
    SchemaFormat,
    SchemaText,
    UnusableError,
    check_text,
    whole_number,
)
from fastkcl.payloads.registries.http import LONGEST_ANSWER, Http
from fastkcl.payloads.registries.options import ConfluentRegistry
from fastkcl.stdio.given_files import trusting

__all__ = ["ConfluentClient"]

_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LONGEST_LOOK: Final = 2  # answers' time for a schema with all of its references
_MOST_ID: Final = (1 << 32) - 1


class ConfluentClient:
    """Calls of one registry.

    Args:
        options: where it is, and who calls.
        longest: seconds of one answer.

    Raises:
        ConfigurationError: the bundle of certificates cannot be read.
    """

    def __init__(self, options: ConfluentRegistry, longest: float = LONGEST_ANSWER) -> None:
        self.where = options.url.rstrip("/")
        self._headers = {"Accept": f"{_TYPE}, application/json"}
        if options.token is not None:
            remember_lasting(options.token)
            self._headers["Authorization"] = f"Bearer {options.token}"
        elif options.user is not None:
            pair = base64.b64encode(f"{options.user}:{options.password}".encode()).decode()
            remember_lasting(options.password, pair)
            self._headers["Authorization"] = f"Basic {pair}"
        try:
            context = trusting(options.ca_bundle)
        except OSError as error:
            raise ConfigurationError(f"ca_bundle {options.ca_bundle} cannot be read: {error}") from error
        self._http = Http(context, longest)
        self._longest = longest

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
        ends = monotonic() + _LONGEST_LOOK * self._longest
        answer = self._call(path)
        format_, text = check_text(answer.get("schemaType", "AVRO"), answer.get("schema"), f"GET {self.where}{path}")
        references: dict[str, str] = {}
        self._follow(answer, format_, references, len(text), 0, ends)
        number = answer.get("id")
        return SchemaText(
            format_,
            text,
            references,
            version=whole_number(answer.get("version"), _MOST_ID),
            id=None if number is None else _id_of(answer),
        )

    def _follow(  # noqa: PLR0913 - what is known on the way
        self,
        answer: dict[str, Any],
        format: SchemaFormat,
        found: dict[str, str],
        size: int,
        depth: int,
        ends: float,  # noqa: A002
    ) -> int:
        """Adds the texts that an answer refers to, those that they refer to first; the bytes of all."""
        references = answer.get("references")
        if references is None:
            return size
        if not isinstance(references, list):
            raise UnusableError("its references are no list")
        if references and depth >= MAX_DEPTH:
            raise UnusableError(f"its references are deeper than {MAX_DEPTH}")
        for each in references:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise UnusableError("a reference of it has no name")
            name, subject, version = each["name"], each.get("subject"), whole_number(each.get("version"), _MOST_ID)
            shown = without_sent(name)[:80]
            if name in found:
                continue
            if not isinstance(subject, str) or version is None:
                raise UnusableError(f"its reference {shown!r} has no subject and version")
            if monotonic() > ends:
                raise AwayError(f"{self.where}: {len(found)} references of a schema, and no more in the time of a look")
            try:
                path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
                inner = self._call(path)
            except MissingError as error:
                raise UnusableError(f"its reference {shown!r} is missing: {error}") from None
            other, text = check_text(inner.get("schemaType", "AVRO"), inner.get("schema"), f"GET {self.where}{path}")
            if other != format:
                raise UnusableError(f"its reference {shown!r} is {other.upper()}, and it is {format.upper()}")
            size += len(text)
            if len(found) >= MAX_REFERENCES or size > MAX_SCHEMA_BYTES:
                raise UnusableError(f"it has more than {MAX_REFERENCES} references, or {MAX_SCHEMA_BYTES} bytes")
            found[name] = ""  # on the way: a circle ends here
            size = self._follow(inner, format, found, size, depth + 1, ends)
            del found[name]
            found[name] = text  # after those that it refers to
        return size

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        method, url = "GET" if body is None else "POST", self.where + path
        headers = self._headers if body is None else {**self._headers, "Content-Type": _TYPE}
        answer = self._http.call(method, url, headers, body)
        call = f"{method} {url}: status {answer.status}"
        value = answer.json_object(call)
        if answer.status == 200:
            return value
        code, said = whole_number(value.get("error_code"), 99_999), answer.shown()
        if code is not None and answer.status == 404:
            raise MissingError(f"{call}: {said}")
        if code is not None and answer.status in (400, 409, 422):
            raise UnusableError(f"{call}: {said}")
        raise AwayError(f"{call}: {said}")


def _id_of(answer: dict[str, Any]) -> str:
    number = whole_number(answer.get("id"), _MOST_ID)
    if number is None:
        raise UnusableError("the registry's answer has no id of 4 bytes")
    return str(number)
