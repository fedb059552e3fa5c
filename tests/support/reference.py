"""Independent reference decoder: pysimdjson, Python's json and base64, pyarrow. It shares no code with fastkcl.

Two readers, for two purposes:
- `read_daemon_line` reads lines of a daemon (captures, profiles) with pysimdjson and base64's strict mode, and fails on
  anything else. Its results are the expected ones.
- `read_line` takes any bytes and follows the specification's rules (fields, types, ranges, duplicates,
  nulls, Jackson's base64) over Python's json. It returns the message or that there is none; it does not rank errors, so
  only acceptance and values are compared.

`record_batch` puts records into the canonical schema.
"""

import base64
import json
import re
from typing import Any, NoReturn

import pyarrow as pa
import simdjson

Message = dict[str, Any]
"""As the case files write it, but payloads are bytes: action, records, millisBehindLatest…"""

SCHEMA = pa.schema(
    [
        pa.field("data", pa.binary()),
        pa.field("partitionKey", pa.string()),
        pa.field("sequenceNumber", pa.string()),
        pa.field("subSequenceNumber", pa.int64()),
        pa.field("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
    ]
)
"""The canonical schema of a batch: all fields nullable, the names are the wire's."""

MAX_DEPTH = 128
_INT64 = range(-(2**63), 2**63)
_TIMES = range(-((2**63) // 1000), (2**63 - 1) // 1000 + 1)
"""Milliseconds that fit int64 microseconds."""


class RejectedError(Exception):
    """The line is no valid message."""


class UnspecifiedError(Exception):
    """The specification leaves open whether the line is valid; there is nothing to compare."""


def record_batch(records: list[Message]) -> pa.RecordBatch:
    """Records (keys as on the wire, payloads as bytes, times in ms) in the canonical schema."""
    times = [record["approximateArrivalTimestamp"] for record in records]
    columns = [
        pa.array([record["data"] for record in records], pa.binary()),
        pa.array([record["partitionKey"] for record in records], pa.string()),
        pa.array([record["sequenceNumber"] for record in records], pa.string()),
        pa.array([record["subSequenceNumber"] for record in records], pa.int64()),
        pa.array([None if t is None else t * 1000 for t in times], pa.int64()).view(
            SCHEMA.field("approximateArrivalTimestamp").type
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def comparable(message: Message | None) -> dict[str, Any] | None:
    """A message with its payloads in hex, as `codec_helpers.to_dict` writes it."""
    if message is None or "records" not in message:
        return message
    records = [
        {**record, "data": None if record["data"] is None else record["data"].hex()} for record in message["records"]
    ]
    return {**message, "records": records}


def read_daemon_line(line: bytes) -> Message:
    """A line as a daemon of any version writes it, read with pysimdjson.

    Raises:
        Exception: whatever pysimdjson, base64 or a missing key raises; such a line is not the daemon's.
    """
    fields = simdjson.Parser().parse(line, recursive=True)
    action = fields["action"]
    if action == "processRecords":
        return {
            "action": action,
            "records": [
                {
                    "data": None if record["data"] is None else base64.b64decode(record["data"], validate=True),
                    "partitionKey": record["partitionKey"],
                    "sequenceNumber": record["sequenceNumber"],
                    "subSequenceNumber": record.get("subSequenceNumber"),
                    "approximateArrivalTimestamp": record.get("approximateArrivalTimestamp"),
                }
                for record in fields["records"]
            ],
            "millisBehindLatest": fields.get("millisBehindLatest"),
        }
    if action == "initialize":
        modern = "sequenceNumber" in fields or "subSequenceNumber" in fields
        return {
            "action": action,
            "shardId": fields["shardId"],
            "sequenceNumber": fields.get("sequenceNumber"),
            "subSequenceNumber": fields.get("subSequenceNumber"),
            "dialect": "modern" if modern else "legacy",
        }
    if action == "checkpoint":
        return {
            "action": action,
            "sequenceNumber": fields.get("sequenceNumber", fields.get("checkpoint")),
            "subSequenceNumber": fields.get("subSequenceNumber"),
            "error": fields.get("error"),
        }
    if action == "shutdown":
        return {"action": action, "reason": fields["reason"]}
    if action in ("leaseLost", "shardEnded", "shutdownRequested"):
        return {"action": action}
    raise ValueError(f"no action of a daemon: {action!r}")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its members in order, duplicates included."""


class _Fraction:
    """A JSON number with a fraction or an exponent."""


def _refuse(constant: str) -> NoReturn:
    raise RejectedError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_float=lambda text: _Fraction(),
    parse_int=lambda text: int(text) if len(text) <= 30 else 10**30 * (-1 if text.startswith("-") else 1),
    parse_constant=_refuse,
    strict=True,
)


def parse_json(content: bytes) -> Any:
    """Strict RFC 8259 on UTF-8 over Python's json: no NaN, no BOM, no depth beyond `MAX_DEPTH`.

    Objects come as lists of pairs; integers beyond 30 characters as ±10**30 (Python refuses very long ones).

    Raises:
        RejectedError: no JSON, or too deep.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RejectedError(str(error)) from None
    if _deepest(text) > MAX_DEPTH:  # before json recurses into it
        raise RejectedError("too deep, if it is JSON at all")
    if text.startswith("\ufeff"):
        raise RejectedError("byte order mark")
    text = text.strip(" \t\r\n")
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise RejectedError(str(error)) from None
    if end != len(text):
        raise RejectedError("more than one value")
    return value


_NOT_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*"?|[^"\[\]{}]+', re.DOTALL)


def _deepest(text: str) -> int:
    """Open brackets outside strings at the deepest place, before any error that closes more than was open."""
    depth = deepest = 0
    for bracket in _NOT_STRUCTURE.sub("", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def read_line(line: bytes) -> Message | None:
    """Any line, without its line feed; None for a blank one.

    Raises:
        RejectedError: it is no valid message.
        UnspecifiedError: the action is given twice, so which rules hold at which byte is left open.
    """
    if not line.strip(b" \t\r\n"):
        return None
    root = parse_json(line)
    if not isinstance(root, _Pairs):
        raise RejectedError("no object")
    actions = [value for key, value in root if key == "action"]
    if not actions:
        raise RejectedError("no action")
    for action in actions:
        _string("action", action, null=False)
    if len(actions) > 1:
        raise UnspecifiedError("two actions")
    action = actions[0]
    if action == "processRecords":
        return {
            "action": action,
            "records": _required(root, "records", _records),
            "millisBehindLatest": _optional(root, "millisBehindLatest", _integer),
        }
    if action == "initialize":
        keys = {key for key, _ in root}
        return {
            "action": action,
            "shardId": _required(root, "shardId", _text),
            "sequenceNumber": _optional(root, "sequenceNumber", _text_or_null),
            "subSequenceNumber": _optional(root, "subSequenceNumber", _integer),
            "dialect": "modern" if keys & {"sequenceNumber", "subSequenceNumber"} else "legacy",
        }
    if action == "checkpoint":
        numbers = [value for key, value in root if key in ("sequenceNumber", "checkpoint")]
        if len({key for key, _ in root} & {"sequenceNumber", "checkpoint"}) > 1:
            raise UnspecifiedError("the sequence number in both dialects")
        return {
            "action": action,
            "sequenceNumber": [_text_or_null("sequenceNumber", value) for value in numbers][-1] if numbers else None,
            "subSequenceNumber": _optional(root, "subSequenceNumber", _integer),
            "error": _optional(root, "error", _text_or_null),
        }
    if action == "shutdown":
        reason = _required(root, "reason", _reason)
        return {"action": action, "reason": reason}
    if action in ("leaseLost", "shardEnded", "shutdownRequested"):
        return {"action": action}
    raise RejectedError(f"unknown action {action!r}")


def _optional(members: _Pairs, name: str, read: Any) -> Any:
    """The last value of a field, None without one; an error in an earlier duplicate counts."""
    values = [read(name, value) for key, value in members if key == name]
    return values[-1] if values else None


def _required(members: _Pairs, name: str, read: Any) -> Any:
    if not any(key == name for key, _ in members):
        raise RejectedError(f"no {name}")
    return _optional(members, name, read)


def _string(name: str, value: object, *, null: bool) -> str | None:
    if value is None and null:
        return None
    if not isinstance(value, str):
        raise RejectedError(f"{name} is no string")
    if re.search("[\ud800-\udfff]", value):
        raise RejectedError(f"lone surrogate in {name}")
    return value


def _text(name: str, value: object) -> str | None:
    return _string(name, value, null=False)


def _text_or_null(name: str, value: object) -> str | None:
    return _string(name, value, null=True)


def _reason(name: str, value: object) -> str | None:
    if _text(name, value) not in ("TERMINATE", "ZOMBIE"):
        raise RejectedError(f"unknown reason {value!r}")
    return str(value)


def _integer(name: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise RejectedError(f"{name} is no integer")
    if value not in _INT64:
        raise RejectedError(f"{name} is out of range")
    return value


def _time(name: str, value: object) -> int | None:
    millis = _integer(name, value)
    if millis is not None and millis not in _TIMES:
        raise RejectedError(f"{name} is out of range")
    return millis


def _payload(name: str, value: object) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise RejectedError(f"{name} is no string")
    decoded = jackson_base64(value)
    if not isinstance(decoded, bytes):
        raise RejectedError(f"{name}: {decoded[0]} at {decoded[1]}")
    return decoded


def _records(name: str, value: object) -> list[Message]:
    if isinstance(value, _Pairs) or not isinstance(value, list):
        raise RejectedError(f"{name} is no array")
    records = []
    for members in value:
        if not isinstance(members, _Pairs):
            raise RejectedError("a record is no object")
        records.append(
            {
                "data": _required(members, "data", _payload),
                "partitionKey": _required(members, "partitionKey", _text),
                "sequenceNumber": _required(members, "sequenceNumber", _text),
                "subSequenceNumber": _optional(members, "subSequenceNumber", _integer),
                "approximateArrivalTimestamp": _optional(members, "approximateArrivalTimestamp", _time),
            }
        )
    return records


_ALPHABET = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}


def jackson_base64(text: str) -> bytes | tuple[str, int]:
    """Base64 as Jackson's MIME_NO_LINEFEEDS reads it: the specification's table, a character at a time.

    Returns:
        The bytes, or (reason, index of the first offending character; the length for truncated).
    """
    out = bytearray()
    unit: list[int] = []
    closing = False  # the second of two padding characters has to follow
    for index, character in enumerate(text):
        if closing:
            if character != "=":
                return "bad_padding", index
            out.append(unit[0] << 2 | unit[1] >> 4)
            unit, closing = [], False
        elif character in _ALPHABET:
            unit.append(_ALPHABET[character])
            if len(unit) == 4:
                bits = unit[0] << 18 | unit[1] << 12 | unit[2] << 6 | unit[3]
                out += bits.to_bytes(3, "big")
                unit = []
        elif character == "=":
            if len(unit) < 2:
                return "bad_padding", index
            if len(unit) == 2:
                closing = True
            else:
                out += bytes((unit[0] << 2 | unit[1] >> 4, (unit[1] & 15) << 4 | unit[2] >> 2))
                unit = []
        elif character > " " or unit:
            return "invalid_character", index
    if unit or closing:
        return "truncated", len(text)
    return bytes(out)
