"""Compares the public names of two commits, and the addresses of their documentation: none may be gone in silence.

    python tools/public_names.py [--pages] BASE

BASE is a commit, a tag or a branch; the other side is this checkout. For each module of `PUBLIC` (tools/site_pages.py)
and each name in its `__all__`, griffe reads the sources of both sides and reports names that are gone, parameters
that moved or went, and defaults that changed. With ``--pages`` each page of docs/ must exist, and each heading of it,
or an anchor ``<a id="..."></a>`` that leads on. tools/public_moves.toml has the exceptions, each with its reason. Exits
1 for any other.

Nothing of BASE is run or installed.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import griffe

sys.path.insert(0, str(Path(__file__).parent))
import site_pages

ROOT = Path(__file__).parent.parent
MOVES = Path(__file__).with_name("public_moves.toml")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{2,6} (.*)$", re.MULTILINE)
"""The title of a page is the page's address."""
_ANCHOR = re.compile(r'<a id="([^"]+)"></a>')
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def checkout(commit: str, folder: Path, *paths: str) -> None:
    """Write the files of a commit into a folder, without a work tree."""
    packed = subprocess.run(["git", "archive", commit, "--", *paths], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def load(folder: Path) -> griffe.Module:
    """The package of a folder, read from its sources and the extension's stub."""
    found = griffe.load("fastkcl", search_paths=[folder / "python"], allow_inspection=False, resolve_aliases=True)
    assert isinstance(found, griffe.Module)
    return found


def module_of(package: griffe.Module, name: str) -> griffe.Module | None:
    """A module by its whole name; None where there is none."""
    for part in name.split(".")[1:]:
        member = package.members.get(part)
        if not isinstance(member, griffe.Module):
            return None
        package = member
    return package


def exported(module: griffe.Module) -> list[str]:
    """The names in a module's `__all__`."""
    return [str(name) for name in module.exports or ()]


def target(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """What a name stands for."""
    found = member.final_target if isinstance(member, griffe.Alias) else member
    assert isinstance(found, griffe.Object)
    return found


def gone(before: griffe.Module, after: griffe.Module) -> Iterator[str]:
    """Public names that are not there any more, and changes that break those who use one."""
    for name in site_pages.PUBLIC:
        old, new = module_of(before, name), module_of(after, name)
        if old is None:
            continue
        if new is None:
            yield f"{name}: the module is gone"
            continue
        for each in exported(old):
            if each not in exported(new):
                yield f"{name}.{each}: the name is gone"
            elif not isinstance(old.members.get(each), griffe.Module | None):
                yield from broken(f"{name}.{each}", old.members[each], new.members[each])


def broken(name: str, old: griffe.Object | griffe.Alias, new: griffe.Object | griffe.Alias) -> Iterator[str]:
    """Changes of one public name that break those who use it."""
    holders = []
    for each in (old, new):
        holder = griffe.Module("holder")
        holder.set_member("name", griffe.Alias("name", target(each)))
        holder.exports = ["name"]
        holders.append(holder)
    for breakage in griffe.find_breaking_changes(*holders):
        if breakage.kind.name == "OBJECT_REMOVED" and breakage.obj.name.startswith("_"):
            continue
        where = "" if breakage.obj.path in (target(old).path, target(new).path) else f".{breakage.obj.name}"
        changed = getattr(breakage.old_value, "name", None) or getattr(breakage.new_value, "name", "")
        yield f"{name}{where}: {breakage.kind.value}: {changed}"


def pages(folder: Path) -> dict[str, set[str]]:
    """The anchors of each page, by its path."""
    found = {}
    for path in sorted((folder / "docs").glob("*.md")):
        prose = _FENCE.sub("", path.read_text("utf-8"))
        headings = [_LINK.sub(r"\1", heading).lower() for heading in _HEADING.findall(prose)]
        anchors = {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}
        found[path.relative_to(folder).as_posix()] = anchors | set(_ANCHOR.findall(prose))
    return found


def lost(before: dict[str, set[str]], after: dict[str, set[str]]) -> Iterator[str]:
    """Pages and headings whose addresses lead nowhere."""
    for page, anchors in before.items():
        if page not in after:
            yield f"{page}: the page is gone"
        else:
            yield from (f"{page}#{anchor}: the heading is gone" for anchor in sorted(anchors - after[page]))


def main(arguments: list[str]) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("base", help="a commit, a tag or a branch")
    parser.add_argument("--pages", action="store_true", help="compare pages and headings of docs/, too")
    options = parser.parse_args(arguments)
    reasons: dict[str, str] = tomllib.loads(MOVES.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        checkout(options.base, Path(folder), "python", "docs")
        before = load(Path(folder))
        found = list(gone(before, load(ROOT)))
        if options.pages:
            found += lost(pages(Path(folder)), pages(ROOT))
        count = sum(len(exported(module)) for name in site_pages.PUBLIC if (module := module_of(before, name)))
    unexplained = [line for line in found if line.partition(": ")[0] not in reasons]
    print(f"{count} public names at {options.base}: {len(found)} changes, {len(unexplained)} without a reason")
    print("\n".join(unexplained))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
