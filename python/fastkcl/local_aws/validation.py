"""Requests by the service's own model: botocore carries it, with every type, range, pattern and enumeration.

A valid request has the types of the model: ``bytes`` for blobs, seconds since the epoch for timestamps. Any other is
refused as the service refuses it. Members that the model does not know are left out, as the service does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel

from fastkcl import _core
from fastkcl.local_aws.errors import ServiceError

__all__ = ["OPERATIONS", "conform"]

_MODEL = ServiceModel(Loader().load_service_model("kinesis", "service-2"), "kinesis")

OPERATIONS = frozenset(_MODEL.operation_names)
"""Operations that the service has."""

_Check = Callable[[Any, str], Any]
_TYPES = {"string": str, "integer": int, "long": int, "boolean": bool, "list": list, "map": dict, "structure": dict}


def conform(operation: str, request: object) -> dict[str, Any]:
    """The request with the types of the model.

    Args:
        operation: one of `OPERATIONS`.
        request: as decoded from JSON (blobs as base64 text) or CBOR (blobs as bytes).

    Raises:
        ServiceError: SerializationException for a wrong type, ValidationException for a value that is not allowed.
    """
    return dict(_operation(operation)(request, ""))


@cache
def _operation(operation: str) -> _Check:
    shape = _MODEL.operation_model(operation).input_shape
    return _check_of(shape) if shape is not None else lambda value, path: {}


def _check_of(shape: Any) -> _Check:  # noqa: ANN401 - botocore has no types
    """Compile the check of a shape, once: a PutRecords call has 500 records to go through it."""
    match shape.type_name:
        case "structure":
            return _structure(shape)
        case "list":
            return _list(shape)
        case "map":
            return _map(shape)
        case "blob":
            return _blob(shape)
        case "timestamp":
            return _timestamp
        case _:
            return _scalar(shape)


def _structure(shape: Any) -> _Check:  # noqa: ANN401
    members = {name: _check_of(member) for name, member in shape.members.items()}
    required = shape.required_members

    def check(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
        _typed(value, dict, path)
        prefix = f"{path}." if path else ""
        for name in required:
            if value.get(name) is None:
                raise _invalid(prefix + name, None, "Member must not be null")
        return {
            name: member(value[name], prefix + name) for name, member in members.items() if value.get(name) is not None
        }

    return check


def _list(shape: Any) -> _Check:  # noqa: ANN401
    member = _check_of(shape.member)
    length = _length(shape)

    def check(value: Any, path: str) -> list[Any]:  # noqa: ANN401
        _typed(value, list, path)
        length(len(value), path)
        return [member(each, f"{path}.{index}") for index, each in enumerate(value, 1)]

    return check


def _map(shape: Any) -> _Check:  # noqa: ANN401
    key, value_ = _check_of(shape.key), _check_of(shape.value)
    length = _length(shape)

    def check(value: Any, path: str) -> dict[str, Any]:  # noqa: ANN401
        _typed(value, dict, path)
        length(len(value), path)
        return {key(name, path): value_(each, f"{path}.{name}") for name, each in value.items()}

    return check


def _blob(shape: Any) -> _Check:  # noqa: ANN401
    length = _length(shape)

    def check(value: Any, path: str) -> bytes:  # noqa: ANN401
        if isinstance(value, str):
            try:
                value = _core.decode_base64(value.encode())
            except ValueError as error:
                raise ServiceError("SerializationException", f"{path}: {error}") from None
        _typed(value, bytes, path)
        length(len(value), path)
        return bytes(value)

    return check


def _timestamp(value: Any, path: str) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ServiceError("SerializationException", f"{path}: seconds since the epoch expected")
    return float(value)


def _scalar(shape: Any) -> _Check:  # noqa: ANN401
    kind = _TYPES[shape.type_name]
    metadata = shape.metadata
    pattern = re.compile(metadata["pattern"]) if "pattern" in metadata else None
    allowed = metadata.get("enum")
    limits = _length(shape)

    def check(value: Any, path: str) -> Any:  # noqa: ANN401
        _typed(value, kind, path)
        limits(len(value) if kind is str else value, path, value)
        if allowed is not None and value not in allowed:
            raise _invalid(path, value, f"Member must satisfy enum value set: [{', '.join(allowed)}]")
        if pattern is not None and not pattern.fullmatch(value):
            raise _invalid(path, value, f"Member must satisfy regular expression pattern: {pattern.pattern}")
        return value

    return check


def _length(shape: Any) -> Callable[..., None]:  # noqa: ANN401
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    what = "value" if shape.type_name in ("integer", "long") else "length"

    def check(size: int, path: str, value: object = None) -> None:
        if low is not None and size < low:
            raise _invalid(path, value, f"Member must have {what} greater than or equal to {low}")
        if high is not None and size > high:
            raise _invalid(path, value, f"Member must have {what} less than or equal to {high}")

    return check


def _typed(value: object, kind: type, path: str) -> None:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ServiceError(
            "SerializationException", f"{path or 'request'}: {kind.__name__} expected, not {type(value).__name__}"
        )


def _invalid(path: str, value: object, constraint: str) -> ServiceError:
    shown = "" if value is None else f" '{str(value)[:80]}'"
    return ServiceError(
        "ValidationException",
        f"1 validation error detected: Value{shown} at '{path}' failed to satisfy constraint: {constraint}",
    )
