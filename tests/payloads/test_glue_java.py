"""Records of AWS's own Java serialisers: the captured ones of tests/data are read with equal values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from glue_java import DATA, captured, readings
from opened_payloads import good, opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The schemas that the serialisers registered."""
    for name, text in json.loads((DATA / "schemas.json").read_text()).items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("compression", ["NONE", "ZLIB"])
def test_what_awss_java_serialisers_write(folder: Path, compression: str) -> None:
    for payload, data, rows in readings(folder, captured()[compression]):
        assert opened(payload, data) == good(rows), payload
