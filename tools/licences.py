"""Writes LICENSE-THIRD-PARTY.txt: each crate that is linked into a wheel, its licence, and the texts.

    tools/licences.py          for all platforms that wheels are built for
    tools/licences.py --list   name, version and licence of each; writes nothing

cargo lists the linked crates: the dependencies of the extension, but none that only builds or only expands macros. A
licence that is not in ACCEPTED is an error: somebody has to read it first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platforms import PLATFORMS

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "LICENSE-THIRD-PARTY.txt"
TARGETS = tuple(platform.target for platform in PLATFORMS)
ACCEPTED = {"Apache-2.0", "MIT", "Zlib", "BSD-2-Clause", "Unicode-3.0", "CC0-1.0", "Unlicense", "BSL-1.0"}
_FILE = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
_MIT = "Permission is hereby granted, free of charge"


class LicenceError(Exception):
    """The wheel must not be published so. `str()` names the crate and its licence."""


@dataclass(frozen=True, slots=True)
class Crate:
    """A crate that is linked."""

    name: str
    version: str
    licence: str
    authors: tuple[str, ...]
    texts: tuple[str, ...]


def linked(metadata: dict[str, Any], root: str = "fastkcl-python") -> list[dict[str, Any]]:
    """The packages that end up in the extension, ours left out; by name."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [each for each, package in packages.items() if package["name"] == root]
    seen: set[str] = set()
    while left:
        each = left.pop()
        if each in seen or any("proc-macro" in target["kind"] for target in packages[each]["targets"]):
            continue
        seen.add(each)
        left += [
            dependency["pkg"]
            for dependency in nodes[each]["deps"]
            if any(kind["kind"] is None for kind in dependency["dep_kinds"])
        ]
    others = [packages[each] for each in seen if packages[each]["source"] is not None]
    return sorted(others, key=lambda package: (package["name"], package["version"]))


def is_accepted(licence: str) -> bool:
    """Whether an SPDX expression can be met by accepted licences: one of each OR, all of each AND."""
    words = re.findall(r"[()]|[^\s()]+", re.sub(r" WITH \S+", "", licence.replace("/", " OR ")))

    def alternatives() -> bool:
        met = all_of()
        while words and words[0] == "OR":
            words.pop(0)
            met = all_of() or met
        return met

    def all_of() -> bool:
        met = one()
        while words and words[0] == "AND":
            words.pop(0)
            met = one() and met
        return met

    def one() -> bool:
        word = words.pop(0)
        if word != "(":
            return word in ACCEPTED
        met = alternatives()
        words.pop(0)
        return met

    return alternatives()


def crate(package: dict[str, Any]) -> Crate:
    """What a package says of its licence.

    Raises:
        LicenceError: nothing, or a licence that nobody has read.
    """
    name, version, licence = package["name"], package["version"], package["license"]
    if not licence or not is_accepted(licence):
        raise LicenceError(
            f"{name} {version} has the licence {licence}; read it, then add it to ACCEPTED or drop the crate"
        )
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and _FILE.fullmatch(path.name))
    texts = tuple(path.read_text("utf-8", "replace").strip() for path in files)
    return Crate(name, version, licence, tuple(package["authors"]), texts)


def text_of(crates: list[Crate]) -> str:
    """The file: a table, then each text once, below the names of those whose it is.

    Raises:
        LicenceError: a crate came without a text, and its licence is not MIT or Apache-2.0.
    """
    owners: dict[str, list[str]] = defaultdict(list)
    permission = next(text[text.index(_MIT) :] for each in crates for text in each.texts if _MIT in text)
    for each in crates:
        texts = each.texts
        if not texts and "MIT" in each.licence:
            owner = (
                f"Copyright (c) {', '.join(each.authors)}" if each.authors else "(It names no holder of its copyright.)"
            )
            texts = (f"{owner}\n\n{permission}",)
        elif not texts and "Apache-2.0" not in each.licence:
            raise LicenceError(f"{each.name} {each.version} came without the text of its licence, {each.licence}")
        for text in texts:
            owners[text].append(f"{each.name} {each.version}")
    rows = "".join(f"{each.name} {each.version}: {each.licence}\n" for each in crates)
    blocks = "".join(f"\n{'=' * 100}\n{', '.join(names)}\n\n{text}\n" for text, names in owners.items())
    return (
        "Linked into fastkcl's extension, besides fastkcl itself: the Rust standard library (MIT OR Apache-2.0), what\n"
        "the linker adds of its system's runtime (on Linux LLVM's libunwind: Apache-2.0 WITH LLVM-exception), and\n"
        "these crates. The text of Apache-2.0 is in LICENSE; other texts, and notices, follow.\n\n" + rows + blocks
    )


def main(arguments: list[str]) -> None:
    """Do what the command line says.

    Raises:
        SystemExit: the command line or a licence is wrong.
    """
    if arguments not in ([], ["--list"]):
        sys.exit("usage: licences.py [--list]")
    targets = [word for target in TARGETS for word in ("--filter-platform", target)]
    command = ["cargo", "metadata", "--locked", "--format-version", "1", *targets]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=300)
    try:
        crates = [crate(package) for package in linked(json.loads(done.stdout))]
        if arguments:
            print("\n".join(f"{each.name} {each.version}: {each.licence}" for each in crates))
            return
        OUTPUT.write_text(text_of(crates), "utf-8")
    except LicenceError as error:
        sys.exit(f"licences.py: {error}")
    print(f"{OUTPUT.name}: {len(crates)} crates, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
