"""Seeded payloads like those that people put on a stream: the profiles that replay, benches and tests share.

A benchmark on random bytes says little about JSON telemetry, and the other way round. So every figure of this project
names a profile: the content of a record, its size, and the number of records in a batch.

==============  =====================  ===========================================================
profile         a batch                content
==============  =====================  ===========================================================
iot             10,000 x ~87 B         compact JSON telemetry
clickstream     10,000 x ~500 B        JSON events of a web shop
logs            800 x ~12.5 KB         gzip of a CloudWatch Logs subscription message
blob            9 x ~1 MB              random bytes, near the service's limit of a record
keys            10,000 x ~100 B        partition keys with escapes, non-ASCII, up to 256 characters
tiny            10,000 x 0-8 B         per-record overhead
==============  =====================  ===========================================================

Rules: the same (profile, seed) gives the same bytes on every machine (logs: for one version of zlib);
``payloads(n)`` is a prefix of ``payloads(n + 1)``; large payloads repeat after a few dozen, so that a long
stream costs no more memory than a short one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice
from random import Random

from fastkcl import _core
from fastkcl.replay.child_lines import ReplayDialect
from fastkcl.shard import sequence_numbers

__all__ = ["PROFILES", "Profile", "line", "timestamps"]

EPOCH_MILLIS = 1_748_736_000_000
"""When the generated streams begin: 2025-06-01T00:00:00Z, in ms since the epoch."""

_RECORDS_PER_SECOND = 1000  # of a shard, as the service allows

_DISTINCT_LOGS = 48
_DISTINCT_BLOBS = 18


@dataclass(frozen=True, slots=True)
class Profile:
    """A kind of payload.

    Attributes:
        name: on the command line.
        records: records of one batch, as performance figures use it.
        describe: one line for people.
    """

    name: str
    records: int
    describe: str
    _payloads: Callable[[int, int], list[bytes]]
    _partition_keys: Callable[[int, int], list[str]]

    def payloads(self, n: int, seed: int = 0) -> list[bytes]:
        """The first `n` payloads for this seed."""
        return self._payloads(n, seed)

    def partition_keys(self, n: int, seed: int = 0) -> list[str]:
        """The first `n` partition keys for this seed."""
        return self._partition_keys(n, seed)


def _random(profile: str, what: str, seed: int) -> Random:
    # Seeding with a string hashes it by SHA-512: equal on every machine and in every process.
    return Random(f"fastkcl/{profile}/{what}/{seed}")


def _iot(n: int, seed: int) -> list[bytes]:
    rnd = _random("iot", "data", seed).random
    return [
        b'{"d":"dev-%05d","t":%d,"temp":%.2f,"hum":%.1f,"v":%.2f,"rssi":-%d,"ok":true}'
        % (rnd() * 20_000, EPOCH_MILLIS + i, 18 + 9 * rnd(), 30 + 40 * rnd(), 3 + rnd(), 40 + 50 * rnd())
        for i in range(n)
    ]


_TYPES = (*[b"page_view"] * 3, b"product_view", b"product_view", b"search", b"add_to_cart", b"purchase")
_COUNTRIES = (b"DE", b"FR", b"US", b"IN", b"BR", b"JP", b"GB", b"ES", b"PL", b"KE")
_PAGES = (b"/", b"/search", b"/category/outdoor", b"/category/kitchen", b"/product", b"/cart", b"/checkout")
_AGENTS = (
    b"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/137.0.0.0 Safari/537.36",
    b"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Version/18.5 Mobile Safari/604.1",
    b"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari",
    b"Mozilla/5.0 (Android 15; Mobile; rv:139.0) Gecko/139.0 Firefox/139.0 like a fairly usual phone browser",
)
_CLICK = (
    b'{"event_id":"%08x-%04x-4%03x-a%03x-%012x","type":"%s","ts":%d,"user_id":"u-%06d","session_id":"s-%010x",'
    b'"country":"%s","page":{"path":"%s","referrer":"https://www.example.com/landing?campaign=%d","load_ms":%d},'
    b'"device":{"agent":"%s","width":%d,"height":%d},"item":{"sku":"SKU-%05d","price":%d.%02d,"quantity":%d},'
    b'"experiment":"%s","consent":true}'
)


def _clickstream(n: int, seed: int) -> list[bytes]:
    rng = _random("clickstream", "data", seed)
    rnd, bits = rng.random, rng.getrandbits
    return [
        _CLICK
        % (
            bits(32),
            bits(16),
            bits(12),
            bits(12),
            bits(48),
            _TYPES[int(rnd() * len(_TYPES))],
            EPOCH_MILLIS + i,
            rnd() * 200_000,
            bits(40),
            _COUNTRIES[int(rnd() * len(_COUNTRIES))],
            _PAGES[int(rnd() * len(_PAGES))],
            rnd() * 10_000,
            80 + rnd() * 2000,
            _AGENTS[int(rnd() * len(_AGENTS))],
            320 + rnd() * 2000,
            560 + rnd() * 1000,
            rnd() * 50_000,
            1 + rnd() * 200,
            rnd() * 100,
            1 + rnd() * 4,
            b"checkout-b" if rnd() < 0.5 else b"checkout-a",
        )
        for i in range(n)
    ]


@lru_cache(maxsize=4)
def _distinct_logs(count: int, seed: int) -> tuple[bytes, ...]:
    rng = _random("logs", "data", seed)
    levels = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")
    logs = []
    for i in range(count):
        events = [
            {
                "id": f"{rng.getrandbits(184):056d}",
                "timestamp": EPOCH_MILLIS + 1000 * i + j,
                "message": f"{rng.choice(levels)} request {rng.getrandbits(64):016x} served"
                f" {rng.choice(_PAGES).decode()} in {rng.randrange(1, 900)} ms for user-{rng.randrange(100_000)}"
                f" trace={rng.getrandbits(128):032x}",
            }
            for j in range(155)
        ]
        message = {
            "messageType": "DATA_MESSAGE",
            "owner": "123456789012",
            "logGroup": "/shop/frontend",
            "logStream": f"frontend/{rng.getrandbits(64):016x}",
            "subscriptionFilters": ["everything"],
            "logEvents": events,
        }
        logs.append(gzip.compress(json.dumps(message, separators=(",", ":")).encode(), compresslevel=6, mtime=0))
    return tuple(logs)


def _logs(n: int, seed: int) -> list[bytes]:
    return list(islice(cycle(_distinct_logs(_DISTINCT_LOGS, seed)), n))


@lru_cache(maxsize=2)
def _distinct_blobs(count: int, seed: int) -> tuple[bytes, ...]:
    rng = _random("blob", "data", seed)
    return tuple(rng.randbytes(rng.randrange(1_000_000, 1_048_000)) for _ in range(count))


def _blob(n: int, seed: int) -> list[bytes]:
    # The distinct ones are made nine at a time: a single batch need not wait for all of them.
    distinct = _distinct_blobs(9 if n <= 9 else _DISTINCT_BLOBS, seed)
    return list(islice(cycle(distinct), n))


def _keys(n: int, seed: int) -> list[bytes]:
    rng = _random("keys", "data", seed)
    rnd, bits = rng.random, rng.getrandbits
    return [
        b'{"tenant":%d,"entity":"%012x","change":"update","field":"address","version":%d,"at":%d}'
        % (rnd() * 1000, bits(48), rnd() * 100, EPOCH_MILLIS + i)
        for i in range(n)
    ]


def _tiny(n: int, seed: int) -> list[bytes]:
    rng = _random("tiny", "data", seed)
    rnd, randbytes = rng.random, rng.randbytes
    return [randbytes(int(rnd() * 9)) for _ in range(n)]


def _numbered_keys(profile: str, pattern: str, count: int) -> Callable[[int, int], list[str]]:
    def keys(n: int, seed: int) -> list[str]:
        rnd = _random(profile, "keys", seed).random
        return [pattern % int(rnd() * count) for _ in range(n)]

    return keys


# Characters that a daemon escapes ('"', '\', control characters), odd ones that it writes raw ('/', DEL, line
# separators,
# byte order mark, non-characters), and text of one to four bytes a character.
_KEY_ALPHABETS = (
    "abcdefghijklmnopqrstuvwxyz0123456789-_.",
    'tenant/"quoted"\\path\\',
    "tab\tline\ncarriage\rnul\x00unit\x1fdel\x7f",
    "äöüßéèñçøåßÆÐ",
    "客户编号分区键日本語한국어",
    "😀🚀🧪\U0010ffff",
    "\u2028\u2029\x85\ufeff\uffff",
)


def _odd_keys(n: int, seed: int) -> list[str]:
    rng = _random("keys", "keys", seed)
    keys = []
    for _ in range(n):
        # Two of three keys are of everyday length; the rest goes up to the service's limit.
        length = rng.randrange(1, 40) if rng.random() < 0.67 else rng.randrange(40, 257)
        first, second = rng.choice(_KEY_ALPHABETS), rng.choice(_KEY_ALPHABETS)
        start = rng.randrange(64)
        text = (first + second) * (1 + (start + length) // (len(first) + len(second)))
        keys.append(text[start : start + length])
    return keys


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("iot", 10_000, "compact JSON telemetry, ~87 B", _iot, _numbered_keys("iot", "dev-%05d", 20_000)),
        Profile(
            "clickstream",
            10_000,
            "JSON events of a web shop, ~500 B",
            _clickstream,
            _numbered_keys("clickstream", "u-%06d", 200_000),
        ),
        Profile(
            "logs",
            800,
            "gzip of CloudWatch Logs messages, ~12.5 KB",
            _logs,
            _numbered_keys("logs", "%032x", 2**52),
        ),
        Profile("blob", 9, "random bytes, ~1 MB", _blob, _numbered_keys("blob", "object-%d", 2**40)),
        Profile("keys", 10_000, "~100 B under odd partition keys of up to 256 characters", _keys, _odd_keys),
        Profile("tiny", 10_000, "0-8 random bytes", _tiny, _numbered_keys("tiny", "k%d", 100)),
    )
}
"""All profiles by name."""


def timestamps(first: int, count: int) -> list[int]:
    """Arrival times of records `first` to ``first + count`` of a generated shard, ms since the epoch."""
    step = 1000 // _RECORDS_PER_SECOND
    return list(range(EPOCH_MILLIS + first * step, EPOCH_MILLIS + (first + count) * step, step))


def line(
    profile: Profile | str,
    seed: int = 0,
    records: int | None = None,
    dialect: ReplayDialect = "modern",
    first_sequence: int = 0,
) -> bytes:
    """One processRecords line of a profile, as a daemon writes it, LF at the end.

    Args:
        profile: a profile or its name.
        seed: of payloads and keys.
        records: how many; the profile's batch without it.
        dialect: whose keys it has.
        first_sequence: records of the shard that came before, so that lines of one shard can follow each other.

    Raises:
        KeyError: no such profile.
    """
    if isinstance(profile, str):
        profile = PROFILES[profile]
    count = profile.records if records is None else records
    return _core.encode_process_records(
        profile.payloads(count, seed),
        profile.partition_keys(count, seed),
        sequence_numbers(first_sequence, count, created=EPOCH_MILLIS // 1000, arrival=EPOCH_MILLIS // 1000),
        [0] * count,
        timestamps(first_sequence, count),
        millis_behind_latest=0,
        dialect=dialect,
    )
