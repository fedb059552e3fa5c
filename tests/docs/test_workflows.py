"""The workflows run make targets that exist and no other command, pin their actions, and ask for few permissions."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from paths import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ALLOWED = {
    ("ci.yml", "*"): {"contents": "read"},
    ("docs.yml", "*"): {"contents": "read"},
    ("release.yml", "*"): {"contents": "read"},
    ("release.yml", "pypi"): {"id-token": "write"},
    ("release.yml", "page"): {"contents": "write"},
}
"""What each job may do, by file and job; `*` is every job without a row."""


def workflow(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def jobs() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path.name, name, job) for path in WORKFLOWS for name, job in workflow(path)["jobs"].items()]


COMMANDS = sorted({(file, step["run"]) for file, _, job in jobs() for step in job.get("steps", []) if "run" in step})
USED = sorted({line.strip() for path in WORKFLOWS for line in path.read_text().splitlines() if "uses:" in line})


@pytest.fixture(scope="module")
def targets() -> set[str]:
    """All targets that make knows, without running one."""
    done = subprocess.run(
        ["make", "--print-data-base", "--question", "--no-builtin-rules", ".no-such-target"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    blocks = done.stdout.split("\n\n")
    return {
        match[1]
        for block in blocks
        if not block.lstrip().startswith("# Not a target:")
        and (match := re.search(r"^([\w-]+):(?!=)", block, re.MULTILINE))
    }


def test_there_are_three() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "docs.yml", "release.yml"]


@pytest.mark.parametrize(("file", "command"), COMMANDS, ids=[f"{file}: {command}" for file, command in COMMANDS])
def test_a_step_is_a_make_target(file: str, command: str, targets: set[str]) -> None:
    match = re.fullmatch(r"make ([\w-]+)", command)
    assert match is not None, f"{file} runs {command!r}; make it a target, which can be run without GitHub"
    assert match[1] in targets


def test_a_target_that_is_missing_is_seen(targets: set[str]) -> None:
    assert "test" in targets
    assert "no-such-target" not in targets


@pytest.mark.parametrize("line", USED)
def test_an_action_is_pinned_by_commit(line: str) -> None:
    assert re.fullmatch(
        r"uses: ([\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|\./\.github/workflows/ci\.yml # zizmor: .*)", line
    )


@pytest.mark.parametrize(("file", "name", "job"), jobs(), ids=[f"{file}: {name}" for file, name, _ in jobs()])
def test_a_job_may_do_little_and_ends(file: str, name: str, job: dict[str, Any]) -> None:
    assert job["permissions"] == ALLOWED.get((file, name), ALLOWED[file, "*"])
    if "uses" in job:  # another workflow, whose jobs are here as well
        return
    assert 0 < job["timeout-minutes"] <= 90
    for step in job["steps"]:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_is_allowed_by_default(path: Path) -> None:
    assert workflow(path)["permissions"] == {}
    # A job that waits on nobody's secret: only the publishing has an environment, and no step names a secret.
    assert "secrets." not in path.read_text()


def test_nothing_is_published_untested() -> None:
    """All tests have passed on the tag, each wheel's cases, and the import of what is built of the sources."""
    release = workflow(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert release["tests"]["uses"] == "./.github/workflows/ci.yml"
    assert {"tests", "tried", "sdist"} <= set(release["pypi"]["needs"])
    runs = {name: [step.get("run") for step in job.get("steps", [])] for name, job in release.items()}
    assert {"make check-wheels", "make test-wheel-cases"} <= set(runs["tried"])
    assert runs["sdist"].index("make check-sdist") > runs["sdist"].index("make sdist")
    assert release["page"]["needs"] == "pypi"


def test_the_oldest_rust_is_the_crates() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    (oldest,) = {
        rust
        for rust in workflow(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["crate"]["strategy"]["matrix"]["rust"]
        if rust != "stable"
    }
    assert oldest.removesuffix(".0") == manifest["workspace"]["package"]["rust-version"]
