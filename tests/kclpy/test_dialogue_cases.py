"""Conformance: the dialogues of the case files through the drop-in, in all versions of processors.

A case describes `fastkcl.run`; kclpy_helpers.expectation lists the differences. `MENDED` adds, in the same format, the
faults of the original in a dialogue that the published cases do not show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import case_files
import pytest
from fastkcl.kclpy import kcl
from kcl_helpers import INITIALIZE, LEASE_LOST, checkpoint, checkpoint_reply, process_records, status
from kclpy_helpers import ORIGINAL, VERSIONS, expectation, play_child, play_in_memory

Case = dict[str, Any]
PUBLISHED = [case for file in ("kcl-modern.jsonl", "kcl-legacy.jsonl") for case in case_files.load(file, "dialogue")]


def parameters(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def own_choice(case: Case) -> str | None:
    """The `on_error` that a case asks for."""
    choice: str | None = case.get("on_error")
    return choice


ALL = parameters(PUBLISHED)
WITH_FAILURES = parameters([case for case in PUBLISHED if expectation(case, 3, "skip").failures])
# The original refuses no checkpoint on the spot, as ours does.
RAISING = parameters(
    [case for case in PUBLISHED if any("raise" in step["user"] for _, step in expectation(case, 3, "skip").failures)]
)
FREE_TO_STOP = parameters([case for case in PUBLISHED if own_choice(case) is None])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ALL)
def test_dialogue_case_in_memory(case: Case, version: int) -> None:
    play_in_memory(case, version, own_choice(case))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", FREE_TO_STOP)
def test_dialogue_case_in_memory_when_errors_stop(case: Case, version: int) -> None:
    play_in_memory(case, version, "stop")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", ALL)
def test_dialogue_case_with_a_real_child(case: Case, version: int, tmp_path: Path) -> None:
    play_child(case, version, tmp_path, own_choice(case))


@pytest.mark.parametrize("case", ALL)
def test_dialogue_case_with_a_real_child_one_byte_at_a_time(case: Case, tmp_path: Path) -> None:
    play_child(case, 3, tmp_path, own_choice(case), bytewise=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", WITH_FAILURES)
def test_dialogue_case_with_a_real_child_when_errors_stop(case: Case, version: int, tmp_path: Path) -> None:
    play_child(case, version, tmp_path, own_choice(case) or "stop")


@pytest.mark.parametrize("case", RAISING)
def test_dialogue_case_skips_as_the_original_does(case: Case) -> None:
    """What is expected after an error of user code is not our rule alone: the case file says it of the original."""
    expected = expectation(case, 3, "skip")
    original = case[ORIGINAL]
    if original == "same":
        assert own_choice(case) == "skip"
    elif isinstance(original, dict):
        assert expected.children == original["child_sends"]
        assert expected.exit == original["exit"]
    else:
        assert original.startswith("cannot read this dialect")


# ---- what the original does wrong -------------------------------------------------------------------------------


def daemon(line: bytes | dict[str, Any]) -> dict[str, Any]:
    return {"daemon": json.dumps(line) if isinstance(line, dict) else line.decode().removesuffix("\n")}


def asks(*arguments: Any) -> list[dict[str, Any]]:
    """User code checkpoints, and the request is written."""
    return [{"user": {"checkpoint": [*arguments]}}, {"child": checkpoint(*arguments)}]


def refused(error: str) -> dict[str, Any]:
    return {"raises": {"type": error}}


START = [daemon(INITIALIZE), {"calls": "initialize"}, {"child": status("initialize")}]
BATCH = [daemon(process_records(100, 101)), {"calls": "process_records"}]
DONE = [{"child": status("processRecords")}]
LOST = [daemon(LEASE_LOST), {"calls": "lease_lost"}, {"child": status("leaseLost")}]
# A record, a batch and a message as a newer daemon may write them.
NEWER = {
    "action": "processRecords",
    "records": [
        {
            "data": "aGVsbG8=",
            "partitionKey": "k",
            "sequenceNumber": "100",
            "approximateArrivalTimestamp": None,
            "schema": {"id": 7, "versions": [{"of": "it"}]},
        }
    ],
    "origin": {"action": "none that anybody knows"},
}
UNEXPECTED = {"raises": {"type": "UnexpectedReplyError", "value": "InvalidStateException"}}
MENDED: list[Case] = [
    {
        "name": "another_message_instead_of_a_reply",
        "steps": [*START, *BATCH, *asks(), daemon(LEASE_LOST)],
        "exit": 1,
        "stderr_contains": ["unexpected_message: leaseLost came where a checkpoint waits for its reply"],
    },
    {
        "name": "another_message_instead_of_a_reply_swallowed",
        "steps": [*START, *BATCH, *asks(), daemon(LEASE_LOST), UNEXPECTED],
        "exit": 1,
        "stderr_contains": ["unexpected_message"],
    },
    {
        "name": "another_message_instead_of_a_reply_then_a_second_checkpoint",
        "steps": [
            *(*START, *BATCH, *asks(), daemon(LEASE_LOST), UNEXPECTED),
            *({"user": {"checkpoint": ["100"]}}, UNEXPECTED),
        ],
        "exit": 1,
        "stderr_contains": ["unexpected_message"],
    },
    {
        "name": "a_reply_that_nobody_waits_for",
        "steps": [*START, daemon(checkpoint_reply())],
        "exit": 1,
        "stderr_contains": ["unexpected_message: a checkpoint's reply that nobody waits for"],
    },
    {
        "name": "no_json_instead_of_a_reply_swallowed",
        "steps": [*START, *BATCH, *asks("100"), daemon(b"hello"), refused("DecodeError")],
        "exit": 1,
        "stderr_contains": ["json"],
    },
    {
        "name": "end_of_input_instead_of_a_reply",
        "steps": [*START, *BATCH, *asks()],
        "exit": 1,
        "stderr_contains": ["closed_while_waiting: end of input where a checkpoint waits for its reply"],
    },
    {
        "name": "end_of_input_instead_of_a_reply_swallowed",
        "steps": [*START, *BATCH, *asks("100", 0), refused("RemoteProtocolError")],
        "exit": 1,
        "stderr_contains": ["closed_while_waiting"],
    },
    {
        "name": "sub_sequence_number_without_a_sequence_number",
        "steps": [*START, *BATCH, {"user": {"checkpoint": [None, 5]}}],
        "exit": 1,
        "stderr_contains": ["ValueError: a sub-sequence number (5) without a sequence number"],
    },
    {
        "name": "sub_sequence_number_without_a_sequence_number_caught",
        "steps": [
            *(*START, *BATCH, {"user": {"checkpoint": [None, 5]}}, refused("ValueError")),
            *(*asks("100", 5), daemon(checkpoint_reply()), *DONE),
        ],
        "exit": 0,
    },
    {"name": "blank_lines", "steps": [daemon(b""), *START, daemon(b" \t"), *BATCH, *DONE, *LOST], "exit": 0},
    {
        "name": "newer_daemon",
        "steps": [*START, daemon(NEWER), {"calls": "process_records"}, *DONE, *LOST],
        "exit": 0,
    },
    {
        "name": "no_number",
        "steps": [*START, daemon({"action": "processRecords", "records": [], "millisBehindLatest": float("nan")})],
        "exit": 1,
        "stderr_contains": ["json"],
    },
    {
        "name": "time_beyond_datetime",
        "steps": [
            *(*START, daemon(process_records(1).replace(b"1700000000123", b"9000000000000000"))),
            *({"calls": "process_records"}, *DONE),
        ],
        "exit": 0,
    },
]


@pytest.mark.parametrize("on_error", [None, "stop"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", parameters(MENDED))
def test_mended_case_in_memory(case: Case, version: int, on_error: str | None) -> None:
    play_in_memory(case, version, on_error)


@pytest.mark.parametrize("on_error", [None, "stop"])
@pytest.mark.parametrize("case", parameters(MENDED))
def test_mended_case_with_a_real_child(case: Case, on_error: str | None, tmp_path: Path) -> None:
    play_child(case, 3, tmp_path, on_error)


def test_case_of_a_processor_without_a_version() -> None:
    with pytest.raises(TypeError, match="^Processor has no attribute version"):
        kcl.KCLProcess(type("Processor", (), {})())
