"""Hypothesis strategies for daemon messages: structure by strategy, spelling by a drawn random source.

A JSON object is a list of (key, value) pairs, so that keys can come twice and in any order. `spell` writes
such a structure with random white space and escapes; whatever it writes means the same.
"""

import base64
import random
from typing import Any

from hypothesis import strategies as st

Members = list[tuple[str, Any]]

_INTEGERS = st.one_of(st.integers(0, 100), st.integers(-(2**63), 2**63 - 1))
_TIMES = st.one_of(st.just(1_700_000_000_123), st.integers(-(2**63) // 1000 + 1, (2**63 - 1) // 1000))
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
"""Any text that Arrow can hold: no lone surrogates."""

_SIZES = st.sampled_from([0, 1, 2, 3, 11, 12, 23, 24, 35, 36, 47, 48, 49, 95, 96, 97, 143, 144, 145, 192, 600])
PAYLOADS = st.one_of(st.binary(max_size=80), _SIZES.flatmap(lambda size: st.binary(min_size=size, max_size=size)))

IGNORED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**64), 2**64 - 1), st.floats(allow_nan=False), TEXT).filter(
        lambda value: value not in (float("inf"), float("-inf"))
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.lists(st.tuples(TEXT, inner), max_size=4).map(lambda pairs: dict(pairs))
    ),
    max_leaves=6,
)
"""Any JSON value, for keys that nobody reads."""

_UNKNOWN_KEYS = TEXT.filter(
    lambda key: (
        key
        not in {
            "action",
            "records",
            "millisBehindLatest",
            "data",
            "partitionKey",
            "sequenceNumber",
            "subSequenceNumber",
            "approximateArrivalTimestamp",
            "shardId",
            "reason",
            "error",
            "checkpoint",
        }
    )
)


def _payload_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


_RECORD_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "data": st.one_of(PAYLOADS, st.none()).map(_payload_text),
    "partitionKey": TEXT,
    "sequenceNumber": st.one_of(st.integers(0, 10**56).map(str), TEXT),
    "subSequenceNumber": st.one_of(st.none(), _INTEGERS),
    "approximateArrivalTimestamp": st.one_of(st.none(), _TIMES),
}
_OPTIONAL = ("subSequenceNumber", "approximateArrivalTimestamp")


@st.composite
def daemon_records(draw: st.DrawFn) -> Members:
    """A record in the daemon's own key order, nothing missing or added."""
    fields = {name: draw(values) for name, values in _RECORD_FIELDS.items()}
    order = ("data", "partitionKey", "sequenceNumber", "approximateArrivalTimestamp", "subSequenceNumber")
    return [(name, fields[name]) for name in order] + [("action", "record")]


@st.composite
def any_records(draw: st.DrawFn) -> Members:
    """A valid record: any key order, unknown keys, duplicates, optional fields missing, any `action`."""
    return _disorder(draw, _RECORD_FIELDS, _OPTIONAL, [("action", IGNORED)])


def _disorder(
    draw: st.DrawFn,
    fields: dict[str, st.SearchStrategy[Any]],
    optional: tuple[str, ...],
    extra: list[tuple[str, st.SearchStrategy[Any]]],
) -> Members:
    names = [name for name in fields if name not in optional or draw(st.booleans())]
    names += draw(st.lists(st.sampled_from(names), max_size=2)) if names else []
    members = [(name, draw(fields[name])) for name in names]
    members += [(name, draw(values)) for name, values in extra if draw(st.booleans())]
    members += draw(st.lists(st.tuples(_UNKNOWN_KEYS, IGNORED), max_size=2))
    return draw(st.permutations(members))


_MESSAGE_FIELDS: dict[str, tuple[dict[str, st.SearchStrategy[Any]], tuple[str, ...]]] = {
    "processRecords": (
        {
            "records": st.lists(st.one_of(daemon_records(), any_records()), max_size=5).map(
                lambda r: [Object(m) for m in r]
            ),
            "millisBehindLatest": st.one_of(st.none(), _INTEGERS),
        },
        ("millisBehindLatest",),
    ),
    "initialize": (
        {
            "shardId": TEXT,
            "sequenceNumber": st.one_of(st.none(), TEXT),
            "subSequenceNumber": st.one_of(st.none(), _INTEGERS),
        },
        ("sequenceNumber", "subSequenceNumber"),
    ),
    "checkpoint": (
        {
            "sequenceNumber": st.one_of(st.none(), TEXT),
            "subSequenceNumber": st.one_of(st.none(), _INTEGERS),
            "error": st.one_of(st.none(), TEXT),
        },
        ("sequenceNumber", "subSequenceNumber", "error"),
    ),
    "shutdown": ({"reason": st.sampled_from(["TERMINATE", "ZOMBIE"])}, ()),
    "leaseLost": ({}, ()),
    "shardEnded": ({}, ()),
    "shutdownRequested": ({}, ()),
}


class Object:
    """A JSON object as pairs, inside another structure."""

    def __init__(self, members: Members) -> None:
        self.members = members

    def __repr__(self) -> str:
        return f"Object({self.members!r})"


@st.composite
def messages(draw: st.DrawFn) -> Object:
    """A valid message of any action, disorderly; processRecords half of the time."""
    action = draw(st.one_of(st.just("processRecords"), st.sampled_from(sorted(_MESSAGE_FIELDS))))
    fields, optional = _MESSAGE_FIELDS[action]
    return Object(draw(st.permutations([("action", action), *_disorder(draw, fields, optional, [])])))


@st.composite
def daemon_batches(draw: st.DrawFn) -> Object:
    """A processRecords message as KCL 3 writes it."""
    records = draw(st.lists(daemon_records(), max_size=8))
    behind = draw(st.one_of(st.none(), _INTEGERS))
    return Object(
        [("action", "processRecords"), ("records", [Object(m) for m in records]), ("millisBehindLatest", behind)]
    )


def spell(value: Any, source: random.Random, *, plain: bool = False) -> bytes:
    """JSON text of a structure.

    Args:
        value: Object, list, dict, str, int, float, bool or None.
        source: chooses white space, escapes and the spelling of numbers.
        plain: as a daemon writes: no white space, only what must be escaped.
    """
    return _spell(value, source, plain).encode()


def _spell(value: Any, source: random.Random, plain: bool) -> str:
    def space() -> str:
        if plain or source.random() < 0.8:
            return ""
        return "".join(source.choice(" \t\r") for _ in range(source.randint(1, 3)))

    def joined(items: list[str]) -> str:
        return ",".join(f"{space()}{item}{space()}" for item in items)

    if isinstance(value, Object | dict):
        pairs = value.members if isinstance(value, Object) else list(value.items())
        body = joined([f"{_string(k, source, plain)}{space()}:{space()}{_spell(v, source, plain)}" for k, v in pairs])
        return f"{{{body or space()}}}"
    if isinstance(value, list):
        return f"[{joined([_spell(item, source, plain) for item in value]) or space()}]"
    if isinstance(value, str):
        return _string(value, source, plain)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if source.random() < 0.5 else f"{value:.17E}"
    return "-0" if value == 0 and not plain and source.random() < 0.2 else str(value)


_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "/": "\\/"}


def _string(text: str, source: random.Random, plain: bool) -> str:
    rate = 0.0 if plain else source.choice((0.0, 0.0, 0.05, 0.5))
    out = []
    for character in text:
        must = character < " " or character in '"\\'
        if not must and source.random() >= rate:
            out.append(character)
        elif character in _SHORT and source.random() < 0.7:
            out.append(_SHORT[character])
        else:
            units = character.encode("utf-16-be").hex()
            units = units.upper() if source.random() < 0.5 else units
            out += [f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)]
    return f'"{"".join(out)}"'
