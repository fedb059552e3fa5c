"""Answers that cannot be AWS's: a page of a proxy, a redirect, JSON of something else.

200                 an object of JSON that has the members of the call's answer, each of its type
4xx                 an error of AWS's: JSON with its name, or the header with the number of the request
5xx, 408, 429       may also be a load balancer's, of any form: botocore and the client try again
anything else       not AWS's

Credentials may be other services' answers, e.g. of STS, in XML. They are only seen to be of their service's form.
"""

from __future__ import annotations

import binascii
import json
from typing import Any

__all__ = ["bound_answers", "check_answers"]

_BEGINNING = 64
_SERVICES = ("kinesis", "dynamodb")
"""Those that commands call themselves."""
_OK, _ERRORS, _FAILURES = 200, 400, (408, 429, *range(500, 600))
_MARKS = ("x-amzn-requestid", "x-amzn-errortype")
"""Headers of AWS's errors."""
_QUESTIONS = ("Describe", "List", "Query", "Scan")
"""Names of calls whose answers are never empty."""
_TYPES: dict[str, Any] = {
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
    "string": (str,),
    "blob": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "long": (int, float),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
}
_LAST_SECOND = 253_370_764_800
"""The beginning of the year 9999, which is a time in all zones."""
_NUMBERS, _DIGITS = ("HashKey", "SequenceNumber"), 129
"""Text that is a number, and its longest."""


def check_answers(emitter: Any) -> None:  # noqa: ANN401 - botocore has no types
    """Have the calls of a session raise a BotoCoreError at an answer that cannot be AWS's, also those for credentials.

    Args:
        emitter: of the session's events, with a method `register`. Clients that are there already are not checked.
    """
    from fastkcl.kinesis.failures import BODY
    from fastkcl.masking import remember_token

    urls: dict[str, str] = {}
    seen_records = False

    def note_url(event_name: str, request: Any, **_: object) -> None:  # noqa: ANN401
        remember_token(request)
        urls[event_name.partition(".")[2]] = request.url

    def check(event_name: str, response_dict: dict[str, Any], operation_model: Any, **options: Any) -> None:  # noqa: ANN401
        nonlocal seen_records
        service = operation_model.service_model
        if service.service_name in _SERVICES:
            fault = _fault(response_dict, operation_model)
        else:
            fault = _fault_of_form(response_dict, service.metadata.get("protocol"))
        if BODY in options["customized_response_dict"]:
            body, content_type = options["customized_response_dict"][BODY]
            if "json" in content_type and body[:_BEGINNING].lstrip()[:1] != b"{":
                fault = "is no object of JSON"
            elif "json" in content_type and not seen_records:  # later ones are read once, in Rust
                fault = _fault({**response_dict, "body": body}, operation_model)
                seen_records = b"SequenceNumber" in body
        if fault is not None:
            raise _error(operation_model.name, fault, urls.get(event_name.partition(".")[2], ""))

    emitter.register("before-send", note_url)
    emitter.register("before-parse", check)


def bound_answers(session: Any) -> Any:  # noqa: ANN401 - of botocore
    """A session whose clients read no more than an answer of AWS may have, those for its credentials too."""
    from fastkcl.http_bodies import bound_session

    return bound_session(session, _error)


def _error(call: str, fault: str, url: str) -> Exception:
    from botocore.exceptions import BotoCoreError

    from fastkcl.kinesis.failures import NotKinesisError

    class AnswerError(BotoCoreError, NotKinesisError):  # type: ignore[misc]
        fmt = (
            "the answer to {call} {fault}: a proxy, or something else that is not AWS, has answered {url};"
            " look at --endpoint-url, AWS_ENDPOINT_URL and HTTPS_PROXY"
        )

    return AnswerError(call=call, fault=fault, url=url)  # type: ignore[call-arg]


def _fault(answer: dict[str, Any], model: Any) -> str | None:  # noqa: ANN401
    status, headers = answer["status_code"], answer["headers"]
    value = _object_of(answer["body"])
    if status >= _ERRORS:
        named = value is not None and isinstance(value.get("__type", value.get("code", "")), str)
        if not named:
            answer["body"] = b""  # which botocore's parser may not be able to read
        if value and named and ("__type" in value or "code" in value):
            return None
        if status in _FAILURES or any(mark in headers for mark in _MARKS):
            return None
        return f"has the status {status}, and no error of AWS's"
    if status != _OK:
        return f"has the status {status}"
    if value is None:
        return "is no object of JSON"
    shape = model.output_shape
    if shape is None:
        return None
    if (wrong := _wrong(shape, value, "")) is not None:
        return wrong
    return "has no content" if not value and model.name.startswith(_QUESTIONS) else None


def _fault_of_form(answer: dict[str, Any], protocol: str | None) -> str | None:
    status = answer["status_code"]
    if _OK < status < _ERRORS:
        return f"has the status {status}"
    fault = _fault_of_xml(answer["body"]) if protocol == "query" else None
    if protocol != "query" and not _object_of(answer["body"]):
        fault = "is no object of JSON"
    if status in _FAILURES:
        if fault is not None:
            answer["body"] = b""  # which botocore's parser may not be able to read
        return None
    return fault


def _fault_of_xml(body: bytes) -> str | None:
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - as botocore's parser
    except (ElementTree.ParseError, ValueError, LookupError):  # the two are of its encoding
        return "is no XML"
    return None if root.tag.endswith("Response") else "is XML of something else"


def _object_of(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a body, and an empty one for no body; None where there is anything else."""
    if not body:
        return {}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _wrong(shape: Any, value: Any, name: str) -> str | None:  # noqa: ANN401
    """Which part of a value is not of its shape's type, or lacks a member."""
    if value is None:
        return None
    kind: str = shape.type_name
    if not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "boolean"):
        return f"has a {name} that is no {kind}"
    if (kind == "timestamp" and not _is_time(value)) or (kind == "blob" and not _is_base64(value)):
        return f"has a {name} that is no {kind}"
    if shape.name in _NUMBERS and not (value.isascii() and value.isdecimal() and len(value) <= _DIGITS):
        return f"has a {name} that is no number of Kinesis's"
    parts: list[tuple[Any, Any, str]] = []
    if kind == "structure":
        if lacking := [member for member in shape.required_members if value.get(member) is None]:
            return f"has no {lacking[0]}"
        parts = [(shape.members[key], part, key) for key, part in value.items() if key in shape.members]
    elif kind == "list":
        parts = [(shape.member, part, name) for part in value]
    elif kind == "map":
        parts = [(shape.value, part, name) for part in value.values()]
    return next((wrong for part in parts if (wrong := _wrong(*part)) is not None), None)


def _is_time(value: float | str) -> bool:
    if not isinstance(value, str):
        return 0 <= value < _LAST_SECOND
    from botocore.utils import parse_timestamp

    try:
        parse_timestamp(value)
    except (ValueError, OverflowError, RuntimeError):
        return False
    return True


def _is_base64(value: str) -> bool:
    try:
        binascii.a2b_base64(value)
    except ValueError:
        return False
    return True
