"""Takes an answer of aggregates apart that are made to harm; says what came of it, and how much memory it needed.

kpl_bomb.py USERS KEY AGGREGATES       user records of 6 bytes in each, and bytes of the key that all of them name
"""

import base64
import hashlib
import json
import resource
import sys

from fastkcl import _core

users, key, aggregates = map(int, sys.argv[1:])


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


message = b"\x0a" + varint(key) + b"k" * key + b"\x1a\x04\x08\x00\x1a\x00" * users
data = base64.b64encode(b"\xf3\x89\x9a\xc2" + message + hashlib.md5(message).digest()).decode()
records = [{"Data": data, "PartitionKey": "k", "SequenceNumber": "4" * 56, "EncryptionType": "NONE"}] * aggregates
batch = _core.decode_get_records(json.dumps({"Records": records}).encode()).batch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    result = _core.deaggregate(batch)
    outcome = f"{result.fallbacks['key_length']} plain" if result.fallbacks else f"{len(result.batch)} users"
except OverflowError:
    outcome = "OverflowError"
print(outcome)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
