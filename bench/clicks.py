"""Clicks, of some 300 bytes in Avro: strings, an enum, a number that may be null, a list, a record inside."""

from __future__ import annotations

import io
import random
from typing import Any

import fastavro

__all__ = ["AVRO", "DDL", "PROTO", "avro_payloads", "clicks"]

KINDS = ("VIEW", "CLICK", "BUY")
AVRO = {
    "type": "record",
    "name": "Click",
    "fields": [
        *({"name": name, "type": "string"} for name in ("id", "user", "session", "url", "agent")),
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": list(KINDS)}},
        {"name": "price", "type": ["null", "double"]},
        {"name": "at", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "place",
            "type": {
                "type": "record",
                "name": "Place",
                "fields": [{"name": "country", "type": "string"}, {"name": "zip", "type": "int"}],
            },
        },
    ],
}
DDL = (
    "id string, user string, session string, url string, agent string, kind string, price double, at bigint, "
    "tags array<string>, place struct<country: string, zip: int>"
)
"""Spark's types of the same fields."""
PROTO = """syntax = "proto3";
enum Kind { VIEW = 0; CLICK = 1; BUY = 2; }
message Place { string country = 1; int32 zip = 2; }
message Click {
  string id = 1; string user = 2; string session = 3; string url = 4; string agent = 5; Kind kind = 6;
  optional double price = 7; int64 at = 8; repeated string tags = 9; Place place = 10;
}"""


def clicks(count: int) -> list[dict[str, Any]]:
    """The same each time."""
    chance = random.Random(7)  # noqa: S311 - no secret
    return [
        {
            "id": f"{chance.getrandbits(128):032x}",
            "user": f"user-{chance.randint(1, 10**6)}",
            "session": f"{chance.getrandbits(128):032x}",
            "url": "https://www.example.org/shop/items/" + "x" * chance.randint(20, 100),
            "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0",
            "kind": chance.choice(KINDS),
            "price": None if chance.random() < 0.5 else chance.random() * 100,
            "at": 1_700_000_000_000 + chance.randint(1, 10**9),
            "tags": [f"tag-{chance.randint(1, 100)}" for _ in range(chance.randint(0, 5))],
            "place": {"country": chance.choice(("DE", "FR", "US")), "zip": chance.randint(10_000, 99_999)},
        }
        for _ in range(count)
    ]


def avro_payloads(rows: list[dict[str, Any]]) -> list[bytes]:
    """Each click in Avro, without a header."""
    schema = fastavro.parse_schema(AVRO)
    payloads = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        payloads.append(out.getvalue())
    return payloads
