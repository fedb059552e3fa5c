"""What the documentation names is there."""

from __future__ import annotations

import ast
import re

import pytest
from paths import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
PAGES = "".join(path.read_text() for path in sorted(ROOT.glob("docs/*.md")))
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)+)`", PAGES)))


@pytest.mark.parametrize("name", NAMED, ids=NAMED)
def test_each_test_that_a_page_names_is_there(name: str) -> None:
    path, *parts = name.split("::")
    found: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for part in parts:
        (node,) = [node for node in found if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part]
        found = node.body


def test_each_row_names_one() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if "`tests/" not in row.split("|")[-2]] == []
