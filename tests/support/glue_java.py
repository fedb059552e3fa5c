"""Records of AWS's own Java serialisers for Glue's registry: how they are made, and the values that they have.

`python tests/support/glue_java.py` makes the records of tests/data/glue-java again: it needs Maven and a JDK.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastkcl._core import compile_proto
from fastkcl.local_aws import LocalAws
from fastkcl.payloads.options import AvroPayload, JsonPayload, Payload, ProtobufPayload
from fastkcl.payloads.registries.options import RegistryOptions
from foreign_packages import CACHE, jars_of
from paths import ROOT
from proto_helpers import message_class

DATA = ROOT / "tests" / "data" / "glue-java"
PROGRAM = ROOT / "tests" / "programs" / "glue_java"

AVRO: list[dict[str, Any]] = [
    {
        "id": 1,
        "page": None,
        "kind": "VIEW",
        "price": Decimal("0.00"),
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "day": date(1970, 1, 1),
        "ratio": 0.5,
        "weight": -0.25,
        "seen": False,
        "raw": b"\x00\x01\xfe\xff",
        "tags": [],
        "counts": [],
        "place": {"zip": -1},
    },
    {
        "id": -(2**63),
        "page": "/é",
        "kind": "BUY",
        "price": Decimal("-1.23"),
        "at": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        "day": date(2023, 11, 14),
        "ratio": -1e300,
        "weight": 1.5,
        "seen": True,
        "raw": b"abcd",
        "tags": ["x", "", "é"],
        "counts": [("k", 2**31 - 1)],
        "place": {"zip": 10115},
    },
]
"""Values of avro.jsonl."""

_EMPTY: dict[str, Any] = {
    "id": 0,
    "page": None,
    "kind": "VIEW",
    "ratio": 0.0,
    "tags": [],
    "counts": [],
    "inner": None,
    "user": None,
    "guest": None,
    "raw": b"",
}
PROTOBUF: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Click", {}, _EMPTY),
    (
        "Click",
        {
            "id": -5,
            "page": "",
            "kind": 1,
            "ratio": 2.5,
            "tags": ["é", ""],
            "counts": {"k": -1},
            "inner": {"x": 7, "deepest": {"z": -(2**63)}},
            "guest": 2**32 - 1,
            "raw": b"\x00\xff",
        },
        {
            **_EMPTY,
            "id": -5,
            "page": "",
            "kind": "BUY",
            "ratio": 2.5,
            "tags": ["é", ""],
            "counts": [("k", -1)],
            "inner": {"x": 7, "deepest": {"z": -(2**63)}},
            "guest": 2**32 - 1,
            "raw": b"\x00\xff",
        },
    ),
    ("Click.Inner", {"x": 7}, {"x": 7, "deepest": None}),
    ("Click.Inner.Deepest", {"z": 1}, {"z": 1}),
    ("Apple", {"ripe": True}, {"ripe": True}),
    ("Zebra", {"x": "stripes"}, {"x": "stripes"}),
]
"""Messages by their names in the file: of Protobuf's library, and as columns."""

JSON: list[dict[str, Any]] = [{"id": 1, "page": None, "tags": None}, {"id": -5, "page": "/é", "tags": ["x", ""]}]
"""Values of json.jsonl."""


def readings(registry: RegistryOptions | Path, records: dict[str, list[bytes]]) -> Iterator[tuple[Payload, Any, Any]]:
    """Options, payloads of a format, and the columns that they have to have."""
    known: dict[str, Any] = {"framing": "glue", "registry": registry}
    yield AvroPayload(schema=DATA / "click.avsc", **known), records["avro"], AVRO
    yield JsonPayload("id long, page string, tags array<string>", **known), records["json"], JSON
    for name in dict.fromkeys(name for name, *_ in PROTOBUF):
        rows = [
            (payload, row) for payload, (own, _, row) in zip(records["protobuf"], PROTOBUF, strict=True) if own == name
        ]
        payload = ProtobufPayload(schema=DATA / "click.proto", message=f"web.{name}", **known)
        yield payload, [each for each, _ in rows], [row for _, row in rows]


def captured() -> dict[str, dict[str, list[bytes]]]:
    """The records of tests/data, by compression and format, in the order of the values."""
    return by_compression((DATA / "records.txt").read_text())


def run_java(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """What the Java program writes."""
    folder = jars_of(CACHE / "glue-java", PROGRAM / "pom.xml")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{folder}/*", str(PROGRAM / "GlueWriter.java"), *arguments]
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def write_records(aws: LocalAws, folder: Path) -> str:
    """Lines of records that AWS's serialisers make of the values, with the schemas in that registry.

    Args:
        aws: which has the registry.
        folder: for the program's input.
    """
    name = f"java-{uuid.uuid4()}"
    aws.client("glue").create_registry(RegistryName=name)
    for file in ("click.avsc", "click.json", "avro.jsonl", "json.jsonl"):
        (folder / file).write_bytes((DATA / file).read_bytes())
    described = compile_proto({"click.proto": (DATA / "click.proto").read_text()}, "click.proto")
    (folder / "click.desc").write_bytes(described)
    lines = []
    for kind, values, _ in PROTOBUF:
        message = message_class(described, f"web.{kind}")(**values)
        lines.append(f"{kind} {base64.b64encode(message.SerializeToString()).decode()}".strip())
    (folder / "protobuf.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return run_java("records", aws.url, name, str(folder), environment=dict(aws.environment))


def by_compression(lines: str) -> dict[str, dict[str, list[bytes]]]:
    found: dict[str, dict[str, list[bytes]]] = {}
    for line in lines.splitlines():
        kind, compression, payload = line.split()
        found.setdefault(compression, {}).setdefault(kind, []).append(base64.b64decode(payload))
    return found


def _capture() -> None:
    import tempfile

    with LocalAws() as aws, tempfile.TemporaryDirectory() as folder:
        lines = write_records(aws, Path(folder))
        suffixes = {"avro": "avsc", "protobuf": "proto", "json": "json"}
        schemas = {}
        for kind, payloads in by_compression(lines)["NONE"].items():
            id = str(uuid.UUID(bytes=payloads[0][2:18]))  # noqa: A001 - the field's word
            found = aws.client("glue").get_schema_version(SchemaVersionId=id)
            schemas[f"{id}.{suffixes[kind]}"] = found["SchemaDefinition"]
    (DATA / "records.txt").write_text(lines)
    (DATA / "schemas.json").write_text(json.dumps(schemas, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _capture()
