"""Credentials for tests that expire after 2 s, as the option ``credentials=two_second_credentials:get``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

given = 0
"""How often they were asked for."""


def get() -> tuple[str, str, str, datetime]:
    global given
    given += 1
    return "AKIDOFTWOSECONDS", "secret", f"token-{given}", datetime.now(UTC) + timedelta(seconds=2)
