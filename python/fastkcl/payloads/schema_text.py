"""Schemas of JSON objects as text, in the words of Spark's DDL: ``id string, tags array<string>, at timestamp``.

    columns  name type, …                 also name: type
    type     boolean tinyint smallint int bigint float double date timestamp string
             array<type>  map<type, type>  struct<name: type, …>

Names are words, or anything in backticks (a backtick twice). Letters of types may be large or small.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parse_schema"]

_TOKEN: Final = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|(\w+)|([<>,:]))")
_MOST_NESTED: Final = 50
_TYPES: Final = {
    "boolean": "bool_",
    "tinyint": "int8",
    "byte": "int8",
    "smallint": "int16",
    "short": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "date": "date32",
    "string": "string",
}


def parse_schema(text: str) -> pa.Schema:
    """The schema that a text describes.

    Raises:
        ValueError: it is none; the message says where.
    """
    import pyarrow as pa

    parser = _Parser(text)
    return pa.schema(parser.fields(end="", depth=0))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fields(self, end: str, depth: int) -> list[Any]:
        """Columns up to `end`, which is taken; "" is the end of the text."""
        import pyarrow as pa

        found = []
        while True:
            name = self._name()
            if self._peek() == ":":
                self._take()
            found.append(pa.field(name, self._type(depth)))
            token = self._take()
            if token == end:
                return found
            if token != ",":
                raise self._error(f"expected ',' or {end!r}" if end else "expected ',' or the end", token)

    def _type(self, depth: int) -> Any:  # noqa: ANN401 - of pyarrow
        import pyarrow as pa

        if depth > _MOST_NESTED:
            raise self._error(f"more than {_MOST_NESTED} types in each other", "")
        word = self._take().lower()
        if word == "timestamp":
            return pa.timestamp("us", "UTC")
        if word in _TYPES:
            return getattr(pa, _TYPES[word])()
        if word == "array":
            self._expect("<")
            inner = self._type(depth + 1)
            self._expect(">")
            return pa.list_(pa.field("element", inner))
        if word == "map":
            self._expect("<")
            key = self._type(depth + 1)
            self._expect(",")
            value = self._type(depth + 1)
            self._expect(">")
            return pa.map_(key, value)
        if word == "struct":
            self._expect("<")
            return pa.struct(self.fields(">", depth + 1))
        raise self._error(f"expected a type, one of {', '.join((*_TYPES, 'timestamp', 'array, map, struct'))}", word)

    def _name(self) -> str:
        token = self._take()
        if token[:1] == "`":
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._error("expected the name of a column", token)
        return token

    def _expect(self, what: str) -> None:
        if (token := self._take()) != what:
            raise self._error(f"expected {what!r}", token)

    def _peek(self) -> str:
        at = self._at
        token = self._take()
        self._at = at
        return token

    def _take(self) -> str:
        """The next token; "" at the end."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            if self._text[self._at :].strip():
                raise self._error("expected a name, a type, or one of < > , :", self._text[self._at :].strip()[:1])
            return ""
        self._at = found.end()
        return found[found.lastindex or 0]

    def _error(self, what: str, token: str) -> ValueError:
        seen = repr(token) if token else "the end"
        return ValueError(f"schema={self._text!r}: {what}, not {seen}, before character {self._at + 1}")
