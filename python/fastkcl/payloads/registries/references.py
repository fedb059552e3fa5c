"""Named types of other schemas, put where an Avro schema uses them first.

A registry keeps the types that a schema refers to as schemas of their own. Avro itself wants each named type defined
where it is used first (specification, "Names"). A name without dots is one of the enclosing namespace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from fastkcl.payloads.registries.answers import MAX_DEPTH, MAX_SCHEMA_BYTES, UnusableError, loads

__all__ = ["inlined"]

_NAMED: Final = ("record", "enum", "fixed", "error")


def inlined(text: str, references: Mapping[str, str]) -> str:
    """A schema that stands for itself.

    Args:
        text: of the schema.
        references: texts of the schemas that it uses, by any names.

    Raises:
        UnusableError: a text is no JSON, or the result is too large or too deep.
    """
    if not references:
        loads(text, "the schema")
        return text
    types: dict[str, Any] = {}
    for name, other in references.items():
        _collect(loads(other, f"the reference {name[:80]!r}"), "", types)
    whole = json.dumps(_Inliner(types).of(loads(text, "the schema"), "", 0))
    if len(whole) > MAX_SCHEMA_BYTES:
        raise UnusableError(f"it has more than {MAX_SCHEMA_BYTES} bytes with its references")
    return whole


def _collect(schema: Any, namespace: str, types: dict[str, Any]) -> None:  # noqa: ANN401 - JSON
    """Notes each named type of a schema that stands at its top, or in a union there."""
    for each in schema if isinstance(schema, list) else [schema]:
        if isinstance(each, dict) and each.get("type") in _NAMED and isinstance(each.get("name"), str):
            types.setdefault(_full(each, namespace), each)


def _full(schema: dict[str, Any], namespace: str) -> str:
    name = str(schema["name"])
    if "." in name:
        return name
    own = schema.get("namespace", namespace)
    return f"{own}.{name}" if own else name


class _Inliner:
    """Walks a schema in the order in which Avro reads it."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types
        self._defined: set[str] = set()
        self._bytes = 0

    def of(self, schema: Any, namespace: str, depth: int) -> Any:  # noqa: ANN401 - JSON
        if depth > MAX_DEPTH:
            raise UnusableError(f"it is deeper than {MAX_DEPTH} levels with its references")
        if isinstance(schema, str):
            return self._named(schema, namespace, depth)
        if isinstance(schema, list):
            return [self.of(each, namespace, depth + 1) for each in schema]
        if not isinstance(schema, dict):
            return schema
        made = dict(schema)
        kind = schema.get("type")
        if kind in _NAMED and isinstance(schema.get("name"), str):
            full = _full(schema, namespace)
            self._defined.add(full)
            namespace = full.rpartition(".")[0]
        if isinstance(schema.get("fields"), list):
            made["fields"] = [
                {**field, "type": self.of(field["type"], namespace, depth + 1)}
                if isinstance(field, dict) and "type" in field
                else field
                for field in schema["fields"]
            ]
        for part in ("items", "values"):
            if part in schema:
                made[part] = self.of(schema[part], namespace, depth + 1)
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind not in _NAMED):
            made["type"] = self.of(kind, namespace, depth + 1)
        return made

    def _named(self, name: str, namespace: str, depth: int) -> Any:  # noqa: ANN401 - JSON
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for each in (full, name):
            if each in self._types and each not in self._defined:
                definition = {**self._types[each], "name": each}
                definition.pop("namespace", None)
                return self.of(definition, "", depth + 1)
        return name
