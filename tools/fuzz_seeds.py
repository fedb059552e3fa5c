"""Writes the seeds of the fuzz targets from the case files: tools/fuzz_seeds.py FOLDER."""

import base64
import json
import random
import sys
from pathlib import Path

CASES = Path(__file__).parent.parent / "tests/data/cases"
LIMIT_AND_PIECES = b"\xff\xff\x00\x06\x3f\x1e"
PIECES = b"\x00\x06\x3f\x1e"
PROTOBUF_WIRES = [0, 0, 5, 1, 0, 2, 2, 0, *[2] * 9, 0, *[2] * 12]
"""Wire types of the fields 1 to 30 in the target's message."""


def main() -> None:
    """One file a case: what the target expects in front, then the case's text."""
    texts: dict[str, list[bytes]] = {"base64": [], "line": [], "kpl": [], "frames": [], "markers": []}
    for path in sorted(CASES.glob("*.jsonl")):
        for row in path.read_text().splitlines():
            case = json.loads(row)
            if path.stem == "base64":
                texts["base64"].append(str(case.get("text", case.get("json"))).encode())
            elif path.stem == "processv1-frames":
                texts["frames"].append(base64.b64decode(case.get("input_b64", "")) or case.get("bytes", "").encode())
            elif path.stem == "processv1-json":
                texts["frames"].append(case["text"].encode() + b"\nend\n")
            elif path.stem == "kpl":
                # Without magic number and digest, which the target adds.
                texts["kpl"].append(base64.b64decode(case["data_b64"])[4:-16])
            elif isinstance(case.get("line"), str):
                texts["line"].append(case["line"].encode() + b"\n")
            elif path.stem == "dkb-frames" and case["kind"] == "decode":
                markers = [(case["markers"][name] or "").encode() for name in ("eom", "eop", "eob")]
                stream = b"".join(base64.b64decode(chunk) for chunk in case["chunks_b64"])
                texts["markers"].append(bytes([*map(len, markers), *PIECES[:2]]) + b"".join(markers) + stream)
    if not all(texts.values()):
        sys.exit(f"no lines, base64, aggregates, frames or markers among the cases in {CASES}")
    texts["get_records"] = [_answer(line) for line in texts["line"] if b'"records"' in line]
    prefixes = {"line": LIMIT_AND_PIECES, "framing": PIECES, "frames": PIECES, "get_records": b"j"}
    prefixes |= dict.fromkeys(("base64", "kpl", "markers"), b"")
    texts["framing"] = texts["line"]
    # Their bytes choose what the input is: noise chooses a bit of everything.
    for target in ("paths", "finish", "aggregates", "batches", "avro", "protobuf", "payload_framing"):
        noise = random.Random(target)  # noqa: S311 - the same seeds each time
        prefixes[target], texts[target] = b"", [noise.randbytes(400) for _ in range(200)]
    chance = random.Random(0)  # noqa: S311 - the same seeds each time
    texts["protobuf"] += [_message(chance, PROTOBUF_WIRES) for _ in range(400)]
    for target, prefix in prefixes.items():
        folder = Path(sys.argv[1]) / target
        folder.mkdir(parents=True, exist_ok=True)
        for index, text in enumerate(texts[target]):
            (folder / f"case-{index}").write_bytes(prefix + text)


def _message(chance: random.Random, wires: list[int], depth: int = 0) -> bytes:
    """Some fields by chance, each with its number, its wire type and, if it has a length, a text or a message."""
    fields = []
    for _ in range(chance.randint(0, 6 - depth)):
        number = chance.randint(1, len(wires))
        wire = wires[number - 1]
        body = bytes(chance.choice((0, 1, 2, 9)) for _ in range({0: 1, 1: 8, 5: 4}.get(wire, 0)))
        if wire == 2:
            inner = chance.choice(([0, 0, 0], [2, 2], [0, 2], [5, 2])) if depth < 3 else []
            body = (
                _message(chance, inner, depth + 1) if inner and chance.random() < 0.8 else b"a" * chance.randint(0, 3)
            )
            body = bytes([len(body)]) + body if len(body) < 128 else b"\0"
        tag = number << 3 | wire
        fields.append(bytes([tag] if tag < 128 else [tag & 127 | 128, tag >> 7]) + body)
    return b"".join(fields)


def _answer(line: bytes) -> bytes:
    """A daemon's line with the names of a GetRecords answer."""
    for name in (b"records", b"data", b"partitionKey", b"sequenceNumber", b"approximateArrivalTimestamp"):
        line = line.replace(b'"%s"' % name, b'"%s"' % (name[:1].upper() + name[1:]))
    return line


main()
