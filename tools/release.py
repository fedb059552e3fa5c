"""Checks that a tag, the sources and CHANGELOG.md name one version, and prints the notes of a release.

    tools/release.py check [TAG]    the tag (v1.2.3) is the version of the sources, and the CHANGELOG has its section
    tools/release.py notes TAG      that section, without its heading

Without a tag, `check` only requires that the sources have one version and that no section of the CHANGELOG is empty.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)")


class ReleaseError(Exception):
    """The release must not be made. `str()` says what disagrees, and what to change."""


def source_version(root: Path = ROOT) -> str:
    """The version in Cargo.toml, which the wheel and the crate take theirs from."""
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert isinstance(version, str)
    return version


def sections(changelog: str) -> dict[str, str]:
    """The CHANGELOG's sections, by their headings: a version, or Unreleased."""
    parts = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)[1:]
    return {heading.split()[0]: text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def notes(tag: str, root: Path = ROOT) -> str:
    """What a release's page says.

    Raises:
        ReleaseError: the tag is not one of a version, is not the version of the sources, or has no section.
    """
    match = _TAG.fullmatch(tag)
    if match is None:
        raise ReleaseError(f"{tag!r} is not a release's tag; write v1.2.3, or v1.2.3rc1")
    # Cargo writes 0.2.0-rc1 where Python writes 0.2.0rc1.
    wanted, version = match[1], source_version(root).replace("-", "")
    if wanted != version:
        raise ReleaseError(f"the tag is of {wanted}, and Cargo.toml has {version}; change one of them")
    found = sections((root / "CHANGELOG.md").read_text())
    if not found.get(wanted):
        raise ReleaseError(f"CHANGELOG.md has no section '## {wanted}' with text; rename '## Unreleased'")
    return found[wanted]


def check(tag: str | None, root: Path = ROOT) -> str:
    """What was checked, for a person to read.

    Raises:
        ReleaseError: as `notes` does; or a section of the CHANGELOG is empty.
    """
    if tag is not None:
        notes(tag, root)
        return f"{tag} is what the sources are, and CHANGELOG.md has its section"
    empty = [name for name, text in sections((root / "CHANGELOG.md").read_text()).items() if not text]
    if empty:
        raise ReleaseError(f"CHANGELOG.md has nothing below {', '.join(empty)}; write it or remove the heading")
    return f"the sources are of {source_version(root)}; no tag was named"


def main(arguments: list[str]) -> None:
    """Do what the command line says.

    Raises:
        SystemExit: with a message where the release must not be made, or the command line is wrong.
    """
    try:
        match arguments:
            case ["check", *tags] if len(tags) <= 1:
                print(check(tags[0] if tags else None))
            case ["notes", tag]:
                print(notes(tag))
            case _:
                sys.exit("usage: release.py check [TAG] | release.py notes TAG")
    except ReleaseError as error:
        sys.exit(f"release.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
