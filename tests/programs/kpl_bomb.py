"""Takes an answer of aggregates apart that are made to harm; reports the result, and the memory that it needed.

kpl_bomb.py USERS KEY AGGREGATES [RECORD]
    user records in each, bytes of the key that all of them name, and a user record in hex: one of 6 bytes without it
"""

import base64
import hashlib
import json
import resource
import sys

from fastkcl import _core

users, key, aggregates = map(int, sys.argv[1:4])
record = bytes.fromhex(sys.argv[4] if len(sys.argv) > 4 else "1a0408001a00")


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


message = b"\x0a" + varint(key) + b"k" * key + record * users
data = base64.b64encode(b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()).decode()
records = [{"Data": data, "PartitionKey": "k", "SequenceNumber": "4" * 56, "EncryptionType": "NONE"}] * aggregates
batch = _core.decode_get_records(json.dumps({"Records": records}).encode()).batch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    result = _core.deaggregate(batch)
    plain = sum(result.fallbacks.values())
    outcome = f"{plain} plain" if plain else f"{len(result.batch)} users"
except OverflowError:
    outcome = "OverflowError"
print(outcome)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
