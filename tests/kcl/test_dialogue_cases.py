"""Conformance: the dialogues of the case files, in process and with a real child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import case_files
import kcl_helpers
import pytest

DIALOGUES = [
    pytest.param(case, id=case["name"])
    for file in ("kcl-modern.jsonl", "kcl-legacy.jsonl")
    for case in case_files.load(file, "dialogue")
]


@pytest.mark.parametrize("case", DIALOGUES)
def test_dialogue_case_in_process(case: dict[str, Any]) -> None:
    kcl_helpers.play_in_process(case, bytewise=False)


@pytest.mark.parametrize("case", DIALOGUES)
def test_dialogue_case_in_process_one_byte_at_a_time(case: dict[str, Any]) -> None:
    kcl_helpers.play_in_process(case, bytewise=True)


@pytest.mark.parametrize("case", DIALOGUES)
def test_dialogue_case_with_a_real_child(case: dict[str, Any], tmp_path: Path) -> None:
    kcl_helpers.play_child(case, tmp_path)


@pytest.mark.parametrize("case", DIALOGUES)
def test_dialogue_case_with_a_real_child_one_byte_at_a_time(case: dict[str, Any], tmp_path: Path) -> None:
    kcl_helpers.play_child(case, tmp_path, bytewise=True)
