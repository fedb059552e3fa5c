"""Options with numbers: each refuses a value that is no number of its range, and the error names the option."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest
from fastkcl.kinesis import (
    Consumer,
    DynamoDBCheckPointer,
    KCLCheckPointer,
    Producer,
    RedisCheckPointer,
    ValidationError,
    run_processors,
)
from fastkcl.kinesis.options import StreamOptions
from fastkcl.kinesis.testing import MockConsumer

MAKERS: dict[str, Callable[..., object]] = {
    "Consumer": Consumer,
    "Producer": Producer,
    "RedisCheckPointer": RedisCheckPointer,
    "DynamoDBCheckPointer": DynamoDBCheckPointer,
    "KCLCheckPointer": KCLCheckPointer,
    "MockConsumer": MockConsumer,
}


def numbers_of(what: Callable[..., object]) -> dict[str, str]:
    """The names of the options that are numbers, with their types."""
    types = {name: str(option.annotation) for name, option in inspect.signature(what).parameters.items()}
    if "options" in types:
        types |= {name: str(kind) for name, kind in StreamOptions.__annotations__.items()}
    plain = {name: kind.replace("ForwardRef('", "").split("'")[0] for name, kind in types.items()}
    return {name: kind for name, kind in plain.items() if kind.split(" | ")[0] in ("int", "float")}


OPTIONS = [(maker, name) for maker in MAKERS for name in numbers_of(MAKERS[maker])]
BAD = {
    "NaN": (math.nan, ValidationError),
    "below": (-1, ValidationError),
    "text": ("3", TypeError),
    "list": ([], TypeError),
    "huge": (-(10**400), ValidationError),
}


def test_all_are_found() -> None:
    assert len(OPTIONS) >= 40


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("maker", "option"), OPTIONS)
def test_no_number_of_its_range(maker: str, option: str, bad: str) -> None:
    value, error = BAD[bad]
    with pytest.raises(error, match=f"{option} must be"):
        MAKERS[maker]("s", **{option: value})


@pytest.mark.parametrize("kind", [RedisCheckPointer, DynamoDBCheckPointer, KCLCheckPointer])
@pytest.mark.parametrize("value", [math.inf, 1e308, 10**400, True])
def test_leases_that_no_timer_ends(kind: Any, value: float) -> None:
    with pytest.raises((ValidationError, TypeError), match="session_timeout must be"):
        kind("g", session_timeout=value)


@pytest.mark.parametrize(
    ("kind", "session_timeout", "heartbeat"),
    [
        (RedisCheckPointer, 60, 15),
        (RedisCheckPointer, 16, 16 / 3),
        (DynamoDBCheckPointer, 3, 1),
        (KCLCheckPointer, 10, 3),
        (KCLCheckPointer, 30, 3),
        (KCLCheckPointer, 3, 1),
    ],
)
def test_heartbeats_of_a_short_session(kind: Any, session_timeout: float, heartbeat: float) -> None:
    assert kind("g", session_timeout=session_timeout).heartbeat_frequency == heartbeat


@pytest.mark.parametrize("value", [math.inf, 1e308, 10**400])
def test_an_expiry_beyond_all_dates(value: float) -> None:
    """It would have ended the look at the shards, when the first of them left the list."""
    with pytest.raises(ValidationError, match="ttl_hours must be above 0 h, up to 277,777 h"):
        DynamoDBCheckPointer("g", ttl_hours=value)


def test_no_limit_is_a_number() -> None:
    Producer("s", put_rate_limit_per_shard=math.inf, expo_backoff_limit=math.inf)
    Consumer("s", idle_timeout=math.inf, ack_timeout=math.inf)


def test_run_processors_has_them_too() -> None:
    assert {"sleep_time_no_records", "shard_fetch_rate", "idle_timeout"} <= numbers_of(run_processors).keys()
