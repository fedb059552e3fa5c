"""Texts without what is secret in them: URLs without users, and the words of servers without what was sent to them.

A proxy that is being debugged answers with the request's headers. Such an answer may be quoted in an error, and the
error is logged.
"""

from __future__ import annotations

import re

__all__ = ["without_sent", "without_users"]

_SECRET_PARAMETER = re.compile(
    r"([?&;#][\w.-]*(?:token|password|secret|credential|signature|sig)=)[^\s&;'\"]+", re.ASCII | re.IGNORECASE
)
_USER = re.compile(r"(?<=://)(?:\S*|[^\n'\"]*)@|[^\s:/'\"]+:[^\s/@]+@")
_WORD = re.compile(r"[^\s'\"]+")
_MARK = r"(?:[\\\"'\s]|&quot;|&#\d{1,4};)*"  # between a header's name and its value, in JSON, HTML or Python
_AUTHORIZATION = re.compile(
    rf"(authorization{_MARK}(?:[:=]|,(?=\s*[\"'])){_MARK})(?:[^\"'<>\r\n\\&]|\\/)+", re.IGNORECASE
)
_TOKEN = re.compile(
    rf"(x-amz-security-token{_MARK}(?:[:=]|,(?=\s*[\"'])){_MARK})(?:[^\s\"'<>&,;\\]|\\/)+", re.IGNORECASE
)
_SCHEME = re.compile(r"\b((?i:bearer|basic)\s+)(?=[a-z.~+/=-]*[0-9A-Z_])[\w.~+/=-]+", re.ASCII)
_SHORTEST = 8  # characters: a shorter secret is of a test, and may be part of any word


def without_users(text: str) -> str:
    """Text whose URLs show no users, passwords, tokens or fragments; those without a scheme and in a query included."""
    text = _SECRET_PARAMETER.sub(r"\1…", text)
    return _WORD.sub(_without_fragment, _USER.sub("…@", text))


def without_sent(text: str, *sent: str) -> str:
    """What a server has answered, without the credentials of the request that it may repeat.

    Args:
        text: of the server.
        sent: secrets of the request; those of less than 8 characters are masked only after their header's name.
    """
    for secret in sent:
        text = text.replace(secret, "…") if len(secret) >= _SHORTEST else text
    for pattern in (_AUTHORIZATION, _TOKEN, _SCHEME):
        text = pattern.sub(r"\1…", text)
    return text


def _without_fragment(found: re.Match[str]) -> str:
    scheme, colon, rest = found[0].partition("://")
    address, mark, fragment = rest.partition("#")
    return f"{scheme}{colon}{address}#…" if mark and fragment else found[0]
