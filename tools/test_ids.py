"""Compares the tests of two commits: none may be gone without a reason.

    python tools/test_ids.py BASE

Collects the tests of commit BASE in a work tree and an environment of their own, which takes some minutes, and those of
this checkout. tools/test_moves.toml has the fate of tests since: files that moved, tests that were renamed, and tests
that are gone, each with the reason. Prints a table of rooms and the tests that do not fit, and exits 1 if there are
any.

``--save FILE`` writes the ids of this checkout instead, and BASE may be such a file.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOVES = Path(__file__).with_name("test_moves.toml")


def collect(checkout: Path, python: Path) -> list[str]:
    """The ids of all tests of a checkout, without its path."""
    listed = subprocess.run(
        [python, "-m", "pytest", "--collect-only", "--quiet", "-m", "", "-p", "no:randomly", "--import-mode=importlib"],
        cwd=checkout,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if listed.returncode:
        sys.exit(f"the tests of {checkout} cannot be collected:\n{listed.stdout[-3000:]}")
    lines = listed.stdout.splitlines()
    return [line.replace(str(checkout), "ROOT") for line in lines if re.match(r"tests/\S+\.py::", line)]


def collect_at(commit: str) -> list[str]:
    """The ids of a commit, collected in a work tree of its own, with an environment built from it."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            subprocess.run(["make", ".venv/.built"], cwd=tree, check=True, stdout=sys.stderr)
            return collect(tree, tree / ".venv/bin/python")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)


@dataclass
class Moves:
    """What has become of tests: tools/test_moves.toml.

    Attributes:
        files: old to new path.
        tests: old to new name of a test, as ``path::test``, by the new path; of all its cases.
        cases: patterns of tests whose cases have other ids now, with the reason; their number has to be the same.
        gone: patterns of ids that are gone, with the reason.
    """

    files: dict[str, str]
    tests: dict[str, str]
    cases: dict[str, str]
    gone: dict[str, str]
    used: set[str] = field(default_factory=set)

    @classmethod
    def read(cls) -> Moves:
        """From the file."""
        return cls(**{name: dict(rows) for name, rows in tomllib.loads(MOVES.read_text()).items()})

    def now(self, old: str) -> str:
        """What an id is called now."""
        path, _, rest = old.partition("::")
        moved = f"{self.files.get(path, path)}::{rest}"
        test, bracket, case = moved.partition("[")
        return self.tests.get(test, test) + bracket + case

    def reason(self, table: dict[str, str], id: str) -> str | None:
        """Why it may differ."""
        for pattern, why in table.items():
            if id == pattern or fnmatch.fnmatchcase(id.partition("[")[0], pattern):
                self.used.add(pattern)
                return why
        return None


def room(id: str) -> str:
    """The folder of a test."""
    return id.split("/")[1] if id.count("/") > 1 else "-"


def compare(before: list[str], after: list[str], moves: Moves) -> list[str]:
    """What does not fit, and a table on standard output."""
    expected = collections.Counter(moves.now(id) for id in before)
    found = collections.Counter(after)
    problems, reasons = [], collections.Counter[str]()
    missing = collections.Counter(id.partition("[")[0] for id in (expected - found).elements())
    for id in sorted((expected - found).elements()):
        test = id.partition("[")[0]
        if why := moves.reason(moves.gone, id):
            reasons[f"gone: {why}"] += 1
        elif why := moves.reason(moves.cases, test):
            new = sum(count for name, count in (found - expected).items() if name.partition("[")[0] == test)
            if new < missing[test]:
                problems.append(f"fewer cases: {test}: {missing[test]} had other ids, {new} are there now")
            reasons[f"other ids: {why}"] += 1
        else:
            problems.append(f"gone without a reason: {id}")
    problems += [f"still there, though said to be gone: {id}" for id in sorted(found) if id in moves.gone]
    rooms = sorted({room(id) for id in [*expected, *found]})
    was, is_now = collections.Counter(map(room, expected.elements())), collections.Counter(map(room, found.elements()))
    print(f"{'room':12} {'before':>7} {'after':>7}")
    for name in rooms:
        print(f"{name:12} {was[name]:7,} {is_now[name]:7,}")
    print(f"{'all':12} {len(before):7,} {len(after):7,}")
    for why, count in sorted(reasons.items()):
        print(f"{count:6,} {why}")
    return list(dict.fromkeys(problems))


def main() -> int:
    """Compare, or save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", nargs="?", metavar="BASE", help="a commit, or a file that --save has written")
    parser.add_argument("--save", metavar="FILE", type=Path)
    given = parser.parse_args()
    after = collect(ROOT, ROOT / ".venv/bin/python")
    if given.save:
        given.save.write_text("".join(f"{id}\n" for id in after))
        return 0
    if given.base is None:
        parser.error("name a commit to compare with, or --save FILE")
    saved = Path(given.base)
    before = saved.read_text().splitlines() if saved.is_file() else collect_at(given.base)
    problems = compare(before, after, Moves.read())
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
