"""Services of this machine: a local AWS takes any credentials, and has no region."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import Final
from urllib.parse import urlsplit

__all__ = ["LOCAL", "LOCAL_REGION", "is_loopback"]

LOCAL: Final = ("local", "local")
"""Access key and secret key, where none are set."""
LOCAL_REGION: Final = "us-east-1"
"""Where none is set."""


def is_loopback(url: str | None) -> bool:
    """Whether a URL is one of this machine, where any credentials will do."""
    host = urlsplit(url or "").hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
