"""AWS's own Java serialisers and Avro's own library, run beside fastkcl. Maven fetches them once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fastkcl._core import avro_fingerprint
from fastkcl.local_aws import LocalAws
from fastkcl.payloads.registries.options import GlueRegistry
from glue_java import by_compression, readings, run_java, write_records
from opened_payloads import good, opened
from schema_helpers import Schemas

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
SCHEMAS = 2000


def with_namespaces(node: Any, chance: random.Random) -> Any:
    """The same schema with namespaces in all ways that there are, at some of its names."""
    if isinstance(node, list):
        return [with_namespaces(each, chance) for each in node]
    if not isinstance(node, dict):
        return node
    changed = {key: with_namespaces(value, chance) for key, value in node.items()}
    if node.get("type") in ("record", "enum", "fixed"):
        ways = (
            {},
            {},
            {"namespace": ""},
            {"namespace": "n"},
            {"name": f".{node['name']}"},
            {"name": f"m.k.{node['name']}"},
        )
        changed |= chance.choice(ways)
    return changed


def test_what_awss_java_serialisers_write_into_local_awss_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalAws() as aws:
        for name, value in aws.environment.items():
            monkeypatch.setenv(name, value)
        found = by_compression(write_records(aws, tmp_path))
        assert set(found) == {"NONE", "ZLIB"}
        for records in found.values():
            for payload, data, rows in readings(GlueRegistry(endpoint_url=aws.url, region="us-east-1"), records):
                assert opened(payload, data) == good(rows), payload


def test_fingerprints_are_those_of_avros_java_library(tmp_path: Path) -> None:
    texts = []
    for seed in range(SCHEMAS):
        schemas = Schemas(seed)
        texts.append(json.dumps(with_namespaces(schemas.record(), schemas.chance)))
    (tmp_path / "schemas").write_text("".join(f"{text}\n" for text in texts))
    lines = run_java("fingerprints", str(tmp_path / "schemas")).splitlines()
    for text, line in zip(texts, lines, strict=True):
        number, _, form = line.partition(" ")
        assert avro_fingerprint(text) == number, (text, form)
