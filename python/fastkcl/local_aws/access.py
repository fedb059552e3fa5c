"""Admits requests of programs, on this machine and on named ones, and refuses web pages in a browser.

A page of any site can make a browser send requests to a loopback port. These signs reveal it, or stop it:

=====================================  ===============================================================================
a request of a page to another origin  has ``Origin``, or ``Sec-Fetch-Site`` other than ``none``; no AWS client has them
DNS rebinding                          the page's own name is in ``Host``: only loopback names and named ones are taken
an answer to another origin            is not readable without CORS headers, of which there are none
a "simple" request                     cannot have a custom header: the paths that control the server need one
=====================================  ===============================================================================

Rules: no I/O. Of a refused request only the path and the headers are read.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Collection, Mapping

__all__ = ["CONTROL_HEADER", "Access"]

CONTROL_HEADER = "x-local-aws"
"""With any value, on requests to paths that control the server."""

_CONTROL = ("_clock", "_faults", "moto-api")


class Access:
    """Decides on requests.

    Args:
        names: host names and addresses, besides those of loopback, by which clients may call the server.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(_bare(name) if name.count(":") > 1 else _name_in(name) for name in names)

    def refusal(self, path: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused, with advice; None if it is not.

        Args:
            path: of its target, decoded.
            headers: with names in lower case.
        """
        name = _name_in(headers.get("host", ""))
        if not (name in self._names or _is_loopback(name)):
            return (
                f"the request is for the host {name!r}, and local-aws answers to loopback names and those given by "
                "--allow-host"
            )
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            return "a web page has sent this request, and local-aws is for programs only"
        if CONTROL_HEADER not in headers and any(part.startswith(_CONTROL) for part in path.lower().split("/")):
            return f"{path} needs a header that web pages cannot send: add '{CONTROL_HEADER}: 1'"
        return None


def _name_in(host: str) -> str:
    """The name or address in a ``Host`` header, without its port; all of it where that is none."""
    name, _, port = host.rpartition("]") if host.startswith("[") else host.partition(":")
    is_port = re.fullmatch(r"(:\d*)?" if host.startswith("[") else r"\d*", port, re.ASCII)
    return _bare(name) if is_port else host


def _bare(name: str) -> str:
    """A name or an address in one spelling; an IPv6 address may be in brackets."""
    name = name.lower().removeprefix("[").removesuffix("]").rstrip(".")
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(name))
    return name


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761: no name of anybody else's
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
