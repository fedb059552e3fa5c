r"""The daemon's reaction to a line of a child: accept, skip or fatal.

The daemon reads a child's standard output with `BufferedReader.readLine` and gives each line to Jackson's
`ObjectMapper.readValue(line, Message.class)`, which accepts more than a JSON grammar and less than a person would. This
module repeats it, for the classes of one dialect:

- A line ends at LF, CR or CR LF. Bytes that are no UTF-8 become U+FFFD.
- The first JSON value counts; text after it is not looked at. Text *before* it loses the message.
- The word ``null`` is a value that deserialises to no object at all: a NullPointerException, and the end of
  the daemon with every shard it serves.
- Anything else that is not a message (no JSON, no object, unknown ``action``, unknown key, wrong type) is logged
  and skipped, and the daemon goes on waiting. A checkpoint in the other dialect has an unknown key: nobody
  ever answers it.
- Scalars are coerced: a number to the text of a string field, ``"4"`` and ``1.7`` to a long.

One rule is ours: of a line only the first MiB is kept. The daemon has no limit but its memory.

Sources: KCL 3.1.3 and 1.7.1 message classes with Jackson 2.20 and 2.6; the child_line cases of the
conformance data were produced by those classes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from fastkcl import _core

if TYPE_CHECKING:
    from fastkcl._core import DaemonDialect

__all__ = ["ChildLine", "ReplayDialect", "Verdict", "read_child_line"]

ReplayDialect: TypeAlias = "DaemonDialect"
"""One of `_core.DIALECTS`."""

Verdict: TypeAlias = Literal["accept", "skip", "fatal"]


@dataclass(frozen=True, slots=True)
class ChildLine:
    """A line of a child as the daemon understands it.

    Attributes:
        verdict: accept (a message), skip (the daemon waits on), or fatal (the daemon ends).
        message: for accept, all fields of the daemon's class for this action, absent ones as None.
        why: for skip and fatal, the fault of the line; empty for a blank line.
    """

    verdict: Verdict
    message: dict[str, Any] | None = None
    why: str = ""


class _Number(str):
    """A JSON number as its text: the daemon gives that text to string fields."""

    __slots__ = ()


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _DuplicateActionError(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs) and sum(key == "action" for key, _ in pairs) > 1:
        # Jackson takes the first as the type and meets the second as a key that no class has.
        raise _DuplicateActionError
    return fields


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant
)
_JSON_SPACE = " \t\n\r"
_NULL = re.compile(r"null(?![\w$])")

_STRING, _LONG, _RECORDS = "string", "long", "records"


def _classes_of(dialect: _core.Capabilities) -> dict[str, dict[str, str]]:
    start = {"shardId": _STRING}
    batch = {"records": _RECORDS}
    checkpoint = {"checkpoint": _STRING, "error": _STRING}
    if dialect.sub_sequence_numbers:
        start |= {"sequenceNumber": _STRING, "subSequenceNumber": _LONG}
        batch |= {"millisBehindLatest": _LONG}
        checkpoint = {"sequenceNumber": _STRING, "subSequenceNumber": _LONG, "error": _STRING}
    classes: dict[str, dict[str, str]] = {
        "status": {"responseFor": _STRING},
        "shutdown": {"reason": _STRING},
        "checkpoint": checkpoint,
        "initialize": start,
        "processRecords": batch,
    }
    if dialect.named_ends:
        classes |= {"leaseLost": {}, "shardEnded": {}}
    if dialect.shutdown_requested:
        classes |= {"shutdownRequested": {}}
    return classes


_CLASSES = {name: _classes_of(dialect) for name, dialect in _core.DIALECTS.items()}
"""Fields of each message class, by dialect and action."""


def read_child_line(line: bytes, dialect: ReplayDialect = "modern") -> ChildLine:
    """Read one line of a child as the daemon of that dialect does.

    Args:
        line: the line without its end.
        dialect: of the daemon.
    """
    text = line.decode("utf-8", errors="replace").lstrip(_JSON_SPACE)
    if not text.strip():
        return ChildLine("skip")
    if _NULL.match(text):
        return ChildLine("fatal", why="a line with only the word null stops the daemon (NullPointerException)")
    try:
        value, _ = _DECODER.raw_decode(text)
    except _DuplicateActionError:
        return ChildLine("skip", why="the key action stands in it twice")
    except (ValueError, RecursionError):
        return ChildLine("skip", why="it is not JSON" if text[0] != "{" else "it is not a complete JSON object")
    if not isinstance(value, dict):
        return ChildLine("skip", why="it is not a JSON object")
    action = value.pop("action", None)
    fields = _CLASSES[dialect].get(action) if isinstance(action, str) else None
    if fields is None:
        what = "it has no action" if action is None else f"the action {str(action)[:60]!r} is unknown"
        return ChildLine("skip", why=what)
    message: dict[str, Any] = {"action": action, **dict.fromkeys(fields)}
    for key, item in value.items():
        kind = fields.get(key)
        if kind is None:
            return ChildLine("skip", why=f"a {dialect} {action} message has no key {key[:60]!r}")
        try:
            message[key] = _COERCE[kind](item)
        except (ValueError, OverflowError):
            return ChildLine("skip", why=f"{key} has a wrong type or is out of range")
    return ChildLine("accept", message)


def _coerce_string(item: object) -> str | None:
    if item is None:
        return None
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str):  # a number included: its text
        return str(item)
    raise ValueError


_DECIMAL = re.compile(r"[+-]?[0-9]+")


def _coerce_long(item: object) -> int | None:
    if item is None or item == "":
        return None
    if isinstance(item, _Number):
        number = int(item) if _DECIMAL.fullmatch(item) and len(item) < 25 else int(float(item))
    elif isinstance(item, str) and _DECIMAL.fullmatch(item.strip()) and len(item) < 100:
        number = int(item)
    else:
        raise ValueError
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _coerce_records(item: object) -> list[Any] | None:
    if item is None or isinstance(item, list):
        return item
    raise ValueError


_COERCE = {_STRING: _coerce_string, _LONG: _coerce_long, _RECORDS: _coerce_records}
