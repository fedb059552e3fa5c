"""Texts without what is secret in them: URLs without users, and the words of servers without what was sent to them.

A proxy that is being debugged answers with the request's headers. Such an answer may be quoted in an error, and the
error is logged.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from typing import Final

__all__ = ["remember", "without_sent", "without_users"]

_SECRET_PARAMETER = re.compile(
    r"([?&;#][\w.-]*(?:token|password|secret|credential|signature|sig)=)[^\s&;'\"]+", re.ASCII | re.IGNORECASE
)
_USER = re.compile(r"(?<![^\s:/'\"])(?:([^\s:/'\"]++:[^\s/@]++@)++|[^\s:/'\"]++:[^\s/@]++)")
_SPACE = re.compile(r"\s|\Z")
_END = re.compile(r"[\n'\"]|\Z")
_WORD = re.compile(r"[^\s'\"]+")
_MARK = r"(?:[\\\"'\s]|&quot;|&#\d{1,4};)*+"  # between a header's name and its value, in JSON, HTML or Python
_AUTHORIZATION = re.compile(
    rf"(authorization{_MARK}(?:[:=]|,(?=\s*[\"'])){_MARK})(?:[^\"'<>\r\n\\&]|\\++/)+", re.IGNORECASE
)
_TOKEN = re.compile(
    rf"(x-amz-security-token{_MARK}(?:[:=]|,(?=\s*[\"'])){_MARK})(?:[^\s\"'<>&,;\\]|\\++/)+", re.IGNORECASE
)
_SIGNATURE = re.compile(
    r"(\bsignature(?:[\\\"'\s:=]|%(?:25)*3d|u003d|&#(?:0*61|x0*3d);|&quot;){1,16})[0-9a-f]{16,}", re.IGNORECASE
)
_SCHEME = re.compile(r"\b((?i:bearer|basic)\s+)(?=[a-z.~+/=-]*[0-9A-Z_])[\w.~+/=-]+", re.ASCII)
_SHORTEST = 8  # characters: a shorter secret is of a test, and may be part of any word
_FORMS: Final = {
    "/": r"(?:\\*+/|\\+u002f|\\+x2f|&sol;|%(?:25)*2f|&#(?:0*47|x0*2f);)",
    "+": r"(?:\+| |\\+u002b|\\+x2b|%(?:25)*2b|&#(?:0*43|x0*2b);|&plus;)",
    "=": r"(?:=|\\+u003d|\\+x3d|%(?:25)*3d|&#(?:0*61|x0*3d);|&equals;)",
}
"""How a secret's characters are written in JSON, URLs and HTML."""
_MOST_KNOWN: Final = 64
_lock = threading.Lock()
_known: tuple[str, ...] = ()


def without_users(text: str) -> str:
    """Text whose URLs show no users, passwords, tokens or fragments; those without a scheme and in a query included."""
    text = _without_users_of_urls(_SECRET_PARAMETER.sub(r"\1…", text))
    return _WORD.sub(_without_fragment, _USER.sub(lambda found: "…@" if found[1] else found[0], text))


def without_sent(text: str, *sent: str) -> str:
    """What a server has answered, without the credentials of the request that it may repeat, and those of `remember`.

    Args:
        text: of the server.
        sent: secrets of the request; those of less than 8 characters are masked only after their header's name.
    """
    for secret in dict.fromkeys([*sent, *_known]):
        if len(secret) >= _SHORTEST:
            text = _in_any_form(secret).sub("…", text)
    for pattern in (_AUTHORIZATION, _TOKEN, _SIGNATURE, _SCHEME):
        text = pattern.sub(r"\1…", text)
    return text


def remember(secret: str | bytes | None) -> None:
    """Have a secret that is sent, such as a session's token, masked in all that servers answer from now on."""
    global _known  # noqa: PLW0603 - of the process
    if secret is None:
        return
    text = secret if isinstance(secret, str) else secret.decode("latin-1")
    if len(text) >= _SHORTEST and text not in _known:
        with _lock:
            _known = (*_known, text)[-_MOST_KNOWN:]


@lru_cache(_MOST_KNOWN)
def _in_any_form(secret: str) -> re.Pattern[str]:
    rest = "".join(_FORMS.get(each, re.escape(each)) for each in secret[1:])
    # Backslashes before the first character are not looked for: of many, each would be looked at from all before it.
    first = _FORMS.get(secret[0], re.escape(secret[0])).replace(r"\\*+", "").replace(r"\\+", r"\\")
    return re.compile(first + rest, re.IGNORECASE)


def _without_users_of_urls(text: str) -> str:
    """Text without what is between ``://`` and the last ``@`` of the word, or else of the line or what is quoted.

    A password may have any character. Each end is looked for once, however many ``://`` there are before it.
    """
    shown, done = [], 0
    word_end = part_end = word_at = part_at = -1
    begin = text.find("://") + 3
    while begin >= 3:
        if begin > word_end:
            word_end = _end(_SPACE, text, begin)
            word_at = text.rfind("@", begin, word_end)
        if begin > part_end:
            part_end = _end(_END, text, begin)
            part_at = text.rfind("@", begin, part_end)
        last = word_at if word_at >= begin else part_at
        if last >= begin:
            shown += [text[done:begin], "…@"]
            done = last + 1
        begin = text.find("://", max(begin, done)) + 3
    return "".join([*shown, text[done:]])


def _end(pattern: re.Pattern[str], text: str, begin: int) -> int:
    found = pattern.search(text, begin)
    return len(text) if found is None else found.start()


def _without_fragment(found: re.Match[str]) -> str:
    scheme, colon, rest = found[0].partition("://")
    address, mark, fragment = rest.partition("#")
    return f"{scheme}{colon}{address}#…" if mark and fragment else found[0]
