"""Checks of options, each with one wording: the option, the expected value, the given value."""

from __future__ import annotations

__all__ = ["check_choice", "check_endpoint", "check_not_negative", "check_sendable", "check_whole_number"]

_CONTROLS = frozenset(map(chr, (*range(32), *range(127, 160))))


def check_choice(name: str, value: object, *choices: str) -> None:
    """Refuse a value that is none of the choices.

    Raises:
        ValueError: it is none.
    """
    if value not in choices:
        expected = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise ValueError(f"{name} must be {expected}, not {value!r}")


def check_not_negative(**options: float) -> None:
    """Refuse numbers below 0, and NaN.

    Raises:
        ValueError: there is one; all of them are named.
    """
    if not all(value >= 0 for value in options.values()):
        raise ValueError(f"{' and '.join(options)} must not be negative: {', '.join(map(str, options.values()))}")


def check_whole_number(name: str, value: object) -> None:
    """Refuse fractions, and everything that is not a number.

    Raises:
        TypeError: it is one.
    """
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")


def check_sendable(name: str, value: str, *, is_header: bool = False) -> None:
    """Refuse a secret that no request can carry; its value is not shown.

    Args:
        name: of the option or the variable.
        value: the secret.
        is_header: it is in a header as it is, so it has to be of ASCII.

    Raises:
        ValueError: it has a control character, or another one that a header cannot have.
    """
    if not _CONTROLS.isdisjoint(value):
        raise ValueError(f"{name} has a line feed or another control character, which no request can carry: correct it")
    if is_header and not value.isascii():
        raise ValueError(f"{name} has a character that is not ASCII, which no header can carry: correct it")


def check_endpoint(name: str, url: str) -> None:
    """Refuse what is no URL of a service; its text is not shown, as it may have a password.

    Raises:
        ValueError: another scheme than http and https, no host, a port that is no number, or a space.
    """
    from urllib.parse import urlsplit  # children that have no endpoint never import it

    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or any(c.isspace() for c in url) or not _CONTROLS.isdisjoint(url):
        raise ValueError(f"{name} is not a URL such as http://127.0.0.1:4567")
