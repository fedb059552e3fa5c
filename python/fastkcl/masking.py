"""Texts without what is secret in them: URLs without users, and the words of servers without what was sent to them.

A proxy that is being debugged answers with the request's headers. Such an answer may be quoted in an error, and the
error is logged.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

__all__ = [
    "masked_errors",
    "remember",
    "remember_lasting",
    "remember_properties",
    "remember_token",
    "remember_url",
    "without_sent",
    "without_users",
]

_SECRET_PARAMETER = re.compile(
    r"([?&;#][\w.-]*(?:token|password|secret|credential|signature|sig)=)([^\s&;'\"]+)", re.ASCII | re.IGNORECASE
)
_SECRET_NAME = re.compile(
    r"(?:token|credential|authorization|cookie)$|password|secret|api-?key|^header\..*(?:auth|key)", re.IGNORECASE
)
_AUTHORITY = re.compile(r"[^/?#]*")
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
_ESCAPE = re.compile(
    r"(?P<u>(?:\\++u[0-9a-f]{4})+)|(?P<x>(?:\\++x[0-9a-f]{2})+)|\\++|(?P<url>%(?:25)*[0-7][0-9a-f])"
    r"|(?P<utf>(?:%(?:25)*[89a-f][0-9a-f])+)|&(?:amp;)*(?P<html>#0{0,16}[0-9]{1,7}|#x0{0,16}[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30});",
    re.ASCII | re.IGNORECASE,
)
_UNFINISHED = re.compile(r"(?:%[0-9a-f]?|\\+(?:u[0-9a-f]{0,3}|x[0-9a-f]?)?|&[#\w]*)\Z", re.ASCII | re.IGNORECASE)
_LONGEST_ESCAPE: Final = 40
_LONGEST: Final = 1 << 18  # characters of a server that are read; fewer are shown
_QUOTINGS: Final = 3  # one in another, such as HTML in JSON
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_MOST_KNOWN: Final = 64
_lock = threading.Lock()
_known: tuple[str, ...] = ()
_lasting: tuple[str, ...] = ()


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
    for name in _PROXIES:
        remember_url(os.environ.get(name, ""))
    secrets = tuple(dict.fromkeys(each for each in (*sent, *_lasting, *_known) if len(each) >= _SHORTEST))
    text = text[:_LONGEST]
    if secrets:
        text = _without(text, secrets)
    for pattern in (_AUTHORIZATION, _TOKEN, _SIGNATURE, _SCHEME):
        text = pattern.sub(r"\1…", text)
    return text


@contextmanager
def masked_errors() -> Iterator[None]:
    """Have errors of a client say what its server has answered as `without_sent` shows it."""
    try:
        yield
    except Exception as error:
        error.args = tuple(without_sent(each) if isinstance(each, str) else each for each in error.args)
        raise


def remember(*secrets: str | bytes | None) -> None:
    """Have secrets that are sent, such as a session's token, masked in all that servers answer from now on."""
    global _known  # noqa: PLW0603 - of the process
    with _lock:
        _known = _with(_known, secrets)


def remember_token(request: Any, **_: Any) -> None:  # noqa: ANN401 - of botocore, or of aiobotocore
    """Have the session's token of a request masked, if it comes back."""
    remember(request.headers.get("X-Amz-Security-Token"))


def remember_lasting(*secrets: str | bytes | None) -> None:
    """As `remember`, for those that the configuration has: tokens that are renewed again and again displace none."""
    global _lasting  # noqa: PLW0603
    with _lock:
        _lasting = _with(_lasting, secrets)


def remember_url(url: str) -> None:
    """Have a URL's password, and those parameters of it that are secret by their names, masked as `remember` does."""
    from base64 import b64encode
    from urllib.parse import unquote

    _, mark, rest = url.partition("://")
    rest = rest if mark else url
    # A password may have a slash that nobody has quoted; an @ may also be of a path.
    for user in {rest.rpartition("@")[0], _AUTHORITY.match(rest)[0].rpartition("@")[0]}:  # type: ignore[index]
        basic = b64encode(unquote(user).encode(errors="replace")) if ":" in user else None
        remember_lasting(user.partition(":")[2], basic)
    remember_lasting(*(found[2] for found in _SECRET_PARAMETER.finditer(url)))


def remember_properties(properties: Mapping[str, Any]) -> None:
    """Have those properties of a client that are secret by their names, and secrets of URLs, masked likewise.

    Args:
        properties: may have further ones in them. Of ``credential`` the part after the colon is secret, too, and of a
            header that after its scheme.
    """
    for name, value in properties.items():
        if isinstance(value, Mapping):
            remember_properties(value)
        elif isinstance(value, str):
            remember_url(value)
            if _SECRET_NAME.search(name):
                remember_lasting(value, value.partition(":")[2], value.partition(" ")[2])


def _with(known: tuple[str, ...], secrets: Iterable[str | bytes | None]) -> tuple[str, ...]:
    texts = [each.decode("latin-1") if isinstance(each, bytes) else each or "" for each in secrets]
    news = [each for each in dict.fromkeys(texts) if len(each) >= _SHORTEST and each not in known]
    return (*known, *news)[-_MOST_KNOWN:]


def _without(text: str, secrets: Iterable[str]) -> str:
    """Text without secrets, however they are quoted. One that it ends in the middle of is cut, and masked as well."""
    plain, spans = _read(text), [found for each in secrets for found in _places(each, text)]
    begins: list[int] = []
    for each in secrets:
        secret = _read(each)
        for begin, end in _places(secret, plain) if len(secret) >= _SHORTEST // 2 else ():
            if not begins:
                begins, ends = _origins(text)
            spans.append((begins[begin], ends[end - 1]))
    shown, done = [], 0
    for begin, end in sorted(spans):
        if begin >= done:
            shown += [text[done:begin], "…"]
        done = max(done, end)
    return "".join([*shown, text[done:]])


def _places(secret: str, text: str) -> list[tuple[int, int]]:
    """Where a secret begins and ends in a text, also one of which the text has only the beginning, at its end."""
    found, size = [], len(secret)
    at = text.find(secret)
    while at >= 0:
        found.append((at, at + size))
        at = text.find(secret, at + size)
    begin = max(0, len(text) - size - _LONGEST_ESCAPE)
    rest = text[begin:]
    unfinished = _UNFINISHED.search(rest, max(0, len(rest) - _LONGEST_ESCAPE))
    for part in (rest, rest[: unfinished.start()] if unfinished else ""):
        at = part.find(secret[:_SHORTEST])
        while at >= 0:
            if secret.startswith(part[at:]):
                return [*found, (begin + at, len(text))]
            at = part.find(secret[:_SHORTEST], at + 1)
    return found


def _read(text: str) -> str:
    """What a text says when its escapes of JSON, URLs and HTML are read, in lower case; backslashes are left out."""
    for _ in range(_QUOTINGS):
        if not _ESCAPE.search(text):
            break
        text = _ESCAPE.sub(_said, text)
    return _evenly(text)


def _origins(text: str) -> tuple[list[int], list[int]]:
    """For each character that `_read` gives, where in the text it begins and ends."""
    begins, ends = list(range(len(text))), list(range(1, len(text) + 1))
    for _ in range(_QUOTINGS):
        if not _ESCAPE.search(text):
            break
        from_: list[int] = []
        to: list[int] = []
        parts: list[str] = []
        done = 0
        for found in _ESCAPE.finditer(text):
            said, begin, end = _said(found), found.start(), found.end()
            from_ += begins[done:begin]
            to += ends[done:begin]
            from_ += [begins[begin]] * len(said)
            to += [ends[end - 1]] * len(said)
            parts += [text[done:begin], said]
            done = end
        begins, ends = [*from_, *begins[done:]], [*to, *ends[done:]]
        text = "".join([*parts, text[done:]])
    return begins, ends


def _evenly(text: str) -> str:
    lower = text.lower()
    if len(lower) != len(text):  # of İ there are two characters
        lower = "".join(low if len(low := each.lower()) == 1 else each for each in text)
    return lower.replace("+", " ")


def _said(found: re.Match[str]) -> str:
    """What an escape stands for."""
    if found["html"]:
        from html import unescape

        return unescape(f"&{found['html']};")
    if found["url"]:
        return chr(int(found["url"][-2:], 16))
    digits = re.sub(r"%(?:25)*(?=..)|\\+[ux]", "", found["utf"] or found["x"] or found["u"] or "", flags=re.IGNORECASE)
    data = bytes.fromhex(digits)
    try:
        return data.decode("utf-16-be" if found["u"] else "utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-16-be" if found["u"] else "latin-1", "replace")


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
