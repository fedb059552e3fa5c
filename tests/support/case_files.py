"""Conformance case files: their names, their content, and where they are read from.

A case file is JSON Lines; its format is described in tests/data/cases/README.md. The cases come from
tests/data/cases, or from the directory that ``pytest --cases DIR`` (or the environment variable
FASTKCL_CASES) names; such a directory may hold only some of the files.

Rules:
- Tests use `load` at collection time. It returns [] for a file that the directory does not hold, so that nothing is
  parametrised over it (conftest deselects empty parameter sets of case tests).
- Nothing is lost silently. A part that `load` cannot hand to a test (a malformed line, a second case of the same name,
  a file or kind that no test knows) is a problem, and tests/ground/test_case_files.py fails with it.
- `SYSTEMS_TO_COME` lists the files whose system does not exist yet. They are checked for form and
  reported in the terminal summary, neither failed nor skipped. Who builds the system deletes the entry.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from paths import CASES

Case = dict[str, Any]

BUNDLED = CASES
ENVIRONMENT_VARIABLE = "FASTKCL_CASES"

KINDS: dict[str, frozenset[str]] = {
    "aggregators": frozenset({"round_trip", "parse", "options", "limit"}),
    "base64": frozenset(
        {
            "rfc4648",
            "canonical",
            "alphabet",
            "trailing_bits",
            "truncated",
            "padding",
            "concatenated",
            "white_space",
            "invalid_character",
            "block_boundary",
            "json_escape",
            "raw_control",
        }
    ),
    "dkb-frames": frozenset({"decode", "dialogue", "options"}),
    "json-grammar": frozenset({"accept", "reject", "either"}),
    "kcl-legacy": frozenset({"decode", "decode_error", "dialogue", "child_line"}),
    "kcl-modern": frozenset({"decode", "decode_error", "dialogue", "child_line"}),
    "kpl": frozenset({"aggregated", "plain", "hash_range", "encode"}),
    "processv1-args": frozenset({"args", "args_error", "group", "address"}),
    "processv1-frames": frozenset({"frames", "write"}),
    "processv1-json": frozenset({"json", "json_either", "json_error"}),
}
"""Known kinds by file name without ``.jsonl``."""

SYSTEMS_TO_COME: dict[str, str] = {}
"""Files whose system does not exist yet, and the topic that brings it."""


class Erratum(NamedTuple):
    """A published case that contradicts itself: what it says, what the tests read instead, and why.

    Keys are paths in the case, e.g. ``records/0/size``.
    """

    published: dict[str, Any]
    corrected: dict[str, Any]
    why: str


ERRATA: dict[tuple[str, str], Erratum] = {
    ("kcl-modern", "b64_truncated"): Erratum(
        published={"error": {"kind": "base64", "record": 1, "reason": "truncated", "offset": 54}},
        corrected={"error": {"kind": "base64", "record": 1, "reason": "truncated", "offset": 198}},
        why="byte 54 is the good padding of record 0; the closing quote that `why` speaks of, of record 1, is byte 198",
    ),
}
"""By (file, name of the case). Applied where a case still says what was published; reported in the summary."""


def _list_sizes(case: Case) -> Erratum | None:
    """JSON lists have the size of their bytes; published is async-kinesis' estimate, a byte an item short."""
    if case.get("processor") != "JsonListProcessor" or case["kind"] != "round_trip":
        return None
    published, corrected = {}, {}
    for index, record in enumerate(case["records"]):
        size = len(base64.b64decode(record["data_b64"]))
        if record["size"] == size - record["n"]:
            published[f"records/{index}/size"] = record["size"]
            corrected[f"records/{index}/size"] = size
    why = (
        "`size` counts a byte an item, as async-kinesis estimates it; the bytes are those in data_b64, brackets and all"
    )
    return Erratum(published, corrected, why) if published else None


def erratum_of(stem: str, case: Case) -> Erratum | None:
    """What is wrong with a published case: one that `ERRATA` names, or one of a rule that was published wrong."""
    named = ERRATA.get((stem, case["name"]))
    if named is not None and all(value_at(case, at) == value for at, value in named.published.items()):
        return named
    return _list_sizes(case) if stem == "aggregators" else None


class Problem(NamedTuple):
    """What keeps a line of a case file from being tested."""

    name: str
    """Name of the case, or ``line-N`` where it has none."""
    message: str


class CaseFile(NamedTuple):
    """One file of the directory: the cases that tests get, and the problems that they must not hide."""

    stem: str
    path: Path
    cases: list[Case]
    problems: list[Problem]
    corrected: list[tuple[str, Erratum]]
    """Names of the cases that an erratum was applied to."""


_directory: Path | None = None
_files: dict[str, CaseFile] | None = None


def configure(directory: str | None) -> None:
    """Choose the directory for this process; called by conftest before collection.

    Args:
        directory: value of ``--cases``; None for FASTKCL_CASES or, without that, the bundled cases.

    Raises:
        ValueError: there is no such directory, or no case file in it.
    """
    global _directory, _files
    chosen = directory or os.environ.get(ENVIRONMENT_VARIABLE)
    _directory = Path(chosen).resolve() if chosen else BUNDLED
    _files = None
    if not _directory.is_dir():
        raise ValueError(f"--cases: {_directory} is no directory")
    if not any(path.stem in KINDS for path in _directory.glob("*.jsonl")):
        known = ", ".join(f"{stem}.jsonl" for stem in KINDS)
        raise ValueError(f"--cases: {_directory} holds no case file; expected one or more of {known}")


def directory() -> Path:
    """Where the cases are read from."""
    if _directory is None:
        configure(None)
    assert _directory is not None
    return _directory


def is_bundled() -> bool:
    """Whether the cases are the repository's own, which must be complete."""
    return directory() == BUNDLED


def files() -> dict[str, CaseFile]:
    """All ``*.jsonl`` files of the directory by name without suffix, read once."""
    global _files
    if _files is None:
        _files = {path.stem: _read(path) for path in sorted(directory().glob("*.jsonl"))}
    return _files


def load(file_name: str, kind: str) -> list[Case]:
    """The cases of one kind, in the order of the file.

    Args:
        file_name: with or without ``.jsonl``.
        kind: one of `KINDS` of that file.

    Returns:
        [] when the directory does not hold the file or the file has no such case.

    Raises:
        LookupError: `KINDS` does not know (file_name, kind).
    """
    stem = file_name.removesuffix(".jsonl")
    if kind not in KINDS.get(stem, frozenset()):
        raise LookupError(f"{stem}.jsonl has no kind {kind!r}; add it to case_files.KINDS")
    file = files().get(stem)
    return [case for case in file.cases if case["kind"] == kind] if file else []


def postponed() -> list[tuple[CaseFile, str]]:
    """Files present whose system does not exist yet, with the topic that brings it."""
    return [(file, SYSTEMS_TO_COME[stem]) for stem, file in files().items() if stem in SYSTEMS_TO_COME]


def _read(path: Path) -> CaseFile:
    cases: list[Case] = []
    problems: list[Problem] = []
    corrected: list[tuple[str, Erratum]] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            case = json.loads(line.decode("ascii"))
        except ValueError as error:
            problems.append(Problem(f"line-{number}", f"line {number} is no ASCII JSON: {error}"))
            continue
        problem = _problem(path.stem, case, seen)
        if problem is not None:
            name = str(case.get("name", f"line-{number}")) if isinstance(case, dict) else f"line-{number}"
            problems.append(Problem(name, f"line {number}: {problem}"))
            continue
        seen[case["name"]] = number
        erratum = erratum_of(path.stem, case)
        if erratum is not None:
            for at, value in erratum.corrected.items():
                _set_value_at(case, at, value)
            corrected.append((case["name"], erratum))
        cases.append(case)
    if not cases and not problems:
        problems.append(Problem("empty", "the file holds no case"))
    return CaseFile(path.stem, path, cases, problems, corrected)


def value_at(case: Any, path: str) -> Any:
    """What stands at a path of names and indexes; None where there is nothing."""
    for key in path.split("/"):
        try:
            case = case[int(key) if isinstance(case, list) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return case


def _set_value_at(case: Any, path: str, value: object) -> None:
    parent, _, key = path.rpartition("/")
    container = value_at(case, parent) if parent else case
    container[int(key) if isinstance(container, list) else key] = value


def _problem(stem: str, case: object, seen: dict[str, int]) -> str | None:
    """What is wrong with the form of a case, None if nothing is."""
    if not isinstance(case, dict):
        return "not an object"
    for key in ("name", "why", "kind"):
        if not isinstance(case.get(key), str) or not case[key]:
            return f"no {key!r}"
    if case["name"] in seen:
        return f"the name is taken by line {seen[case['name']]}"
    if stem not in KINDS:
        return f"no test knows the file {stem}.jsonl (kind {case['kind']!r}); known: {', '.join(KINDS)}"
    if case["kind"] not in KINDS[stem]:
        return f"no test knows the kind {case['kind']!r} of {stem}.jsonl; known: {', '.join(sorted(KINDS[stem]))}"
    return None
