"""The tests that async-kinesis has for itself, against fastkcl.kinesis under its name.

They are run where they lie and as they are, beside a local AWS and a Redis. Each test that may differ is in
data/async_kinesis_tests.toml with its reason; every other one passes, and every one in the table differs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
from fastkcl.local_aws import LocalAws
from foreign_packages import CACHE, fetch_source, install_modules, last_words
from original_async_kinesis import VERSION
from paths import DATA, PROGRAMS

pytestmark = pytest.mark.long

SECONDS = 900.0
TABLE = DATA / "async_kinesis_tests.toml"


class Outcome(NamedTuple):
    """What became of a test: passed, failed or skipped, and what it said."""

    outcome: str
    said: str


@pytest.fixture
def source() -> Path:
    """The unpacked source package."""
    try:
        return fetch_source(CACHE / f"async-kinesis-{VERSION}-source", f"async-kinesis=={VERSION}")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.fail(f"the source package of async-kinesis {VERSION} could not be had: {last_words(error)}")


@pytest.fixture
def modules() -> Path:
    """What its tests import beside it."""
    try:
        return install_modules(CACHE / "async-kinesis-test-modules", "pytest-asyncio", "python-dotenv", "aioboto3")
    except (OSError, subprocess.SubprocessError) as error:
        pytest.fail(f"the modules of its tests could not be had: {last_words(error)}")


@pytest.mark.timeout(SECONDS + 60)
def test_each_test_passes_or_is_in_the_table(
    source: Path, modules: Path, aws: LocalAws, redis: dict[str, str], tmp_path: Path
) -> None:
    outcomes = run(source, modules, {"ENDPOINT_URL": aws.url.replace("127.0.0.1", "localhost"), **redis}, tmp_path)
    groups = tomllib.loads(TABLE.read_text())["differs"]
    unused = {pattern for group in groups for pattern in group["tests"]}
    counts: Counter[str] = Counter()
    unexpected = []
    for name, (outcome, said) in outcomes.items():
        if outcome == "passed":
            counts["passed"] += 1
            continue
        matches = [(group, one) for group in groups for one in group["tests"] if fnmatchcase(name, one)]
        if len(matches) != 1:
            unexpected.append(f"{name}: {outcome}, in {len(matches)} rows: {said[:300]}")
            continue
        [(group, pattern)] = matches
        unused.discard(pattern)
        counts[group["why"]] += 1
    for why, count in counts.most_common():
        print(f"{count:5}  {why}")
    assert not unexpected, "\n".join(unexpected)
    assert not unused, f"no test differs that these rows name: {sorted(unused)}"


def run(source: Path, modules: Path, services: dict[str, str], folder: Path) -> dict[str, Outcome]:
    """Its tests; by ``file::Class::test``."""
    report = folder / "report.xml"
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "pytest",
                f"-c{source / 'pytest.ini'}",
                f"--rootdir={source}",
                f"--junitxml={report}",
            ),
            *("-p", "async_kinesis_alias", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:fastkcl_kinesis"),
            *("-p", "no:xdist", "--timeout=120", "--color=no", "-q", str(source / "tests")),
        ],
        cwd=source,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "PYTHONPATH": f"{PROGRAMS}{os.pathsep}{modules}",
            "PYTHONDONTWRITEBYTECODE": "1",
            **services,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "TMPDIR": str(folder),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert report.exists(), done.stdout + done.stderr
    outcomes = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = "::".join([*(case.get("classname") or "").removeprefix("tests.").rsplit(".", 1), case.get("name") or ""])
        bad = next((one for one in case if one.tag in ("failure", "error", "skipped")), None)
        if bad is None:
            outcomes.setdefault(name, Outcome("passed", ""))
        else:
            outcomes[name] = Outcome("skipped" if bad.tag == "skipped" else "failed", bad.get("message") or "")
    assert len(outcomes) > 300, done.stdout + done.stderr
    return outcomes
