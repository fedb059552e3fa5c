"""The case files themselves: well formed, unique names, every (file, kind) known to a test."""

import json

import case_files
import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One item a file, and one more for each of its problems, named after the case."""
    if "problem" in metafunc.fixturenames:
        subjects = [(file.path.name, None) for file in case_files.files().values()]
        subjects += [(f"{f.path.name}-{p.name}", p.message) for f in case_files.files().values() for p in f.problems]
        metafunc.parametrize("problem", [message for _, message in subjects], ids=[name for name, _ in subjects])


def test_case_file_is_well_formed(problem: str | None) -> None:
    """Every line is a case of a known (file, kind) under a name of its own."""
    if problem is not None:
        pytest.fail(problem, pytrace=False)


def test_case_files_of_the_repository_are_complete() -> None:
    """Whatever --cases names, the bundled directory has all the files."""
    assert {path.stem for path in case_files.BUNDLED.glob("*.jsonl")} == set(case_files.KINDS)


def test_case_files_to_come_are_known() -> None:
    assert set(case_files.SYSTEMS_TO_COME) < set(case_files.KINDS)


def test_case_errata_are_still_needed() -> None:
    """An erratum whose case was corrected at its source, or is gone, has to go too."""
    published = {
        (path.stem, case["name"]): case
        for path in case_files.BUNDLED.glob("*.jsonl")
        for case in map(json.loads, path.read_text().splitlines())
    }
    for key, erratum in case_files.ERRATA.items():
        assert {path: case_files.value_at(published[key], path) for path in erratum.published} == erratum.published, key


def test_sizes_of_json_lists_are_still_estimates() -> None:
    """As for errata by name: a rule that no published case needs has to go."""
    lines = (case_files.BUNDLED / "aggregators.jsonl").read_text().splitlines()
    lists = [case for case in map(json.loads, lines) if case["name"].startswith("list_") and "records" in case]
    assert len(lists) == 5
    assert all(case_files.erratum_of("aggregators", case) for case in lists)
