"""tools/licences.py finds the linked crates, and lets no unknown licence and no missing text pass."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import licences


@pytest.mark.parametrize(
    ("expression", "accepted"),
    [
        ("MIT", True),
        ("MIT/Apache-2.0", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("GPL-3.0 AND MIT", False),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", True),
        ("(MIT OR Apache-2.0) AND GPL-3.0", False),
        ("GPL-3.0 AND MIT OR Zlib", True),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", True),
    ],
)
def test_an_expression_is_met_or_not(expression: str, accepted: bool) -> None:
    assert licences.is_accepted(expression) is accepted


def package(name: str, folder: Path | None = None, kind: str = "lib", licence: str | None = "MIT") -> dict[str, Any]:
    return {
        "id": name,
        "name": name,
        "version": "1.0.0",
        "license": licence,
        "authors": ["Ada"],
        "source": None if name == "fastkcl-python" else "registry",
        "targets": [{"kind": [kind]}],
        "manifest_path": str((folder or Path("/none")) / "Cargo.toml"),
    }


def dependency(name: str, kind: str | None = None) -> dict[str, Any]:
    return {"pkg": name, "dep_kinds": [{"kind": kind}]}


def test_what_is_linked() -> None:
    """What builds, and macros with all that they use, is not."""
    metadata = {
        "packages": [
            package("fastkcl-python"),
            package("linked"),
            package("below"),
            package("builds"),
            package("macro", kind="proc-macro"),
            package("of-the-macro"),
        ],
        "resolve": {
            "nodes": [
                {"id": "fastkcl-python", "deps": [dependency("linked"), dependency("builds", "build")]},
                {"id": "linked", "deps": [dependency("below"), dependency("macro")]},
                {"id": "below", "deps": []},
                {"id": "builds", "deps": []},
                {"id": "macro", "deps": [dependency("of-the-macro")]},
                {"id": "of-the-macro", "deps": []},
            ]
        },
    }
    assert [each["name"] for each in licences.linked(metadata)] == ["below", "linked"]


def test_texts_are_there_once_and_a_missing_one_is_written_or_refused(tmp_path: Path) -> None:
    text = "Copyright (c) Eve\n\nPermission is hereby granted, free of charge, to all."
    for name in ("one", "two", "bare"):
        (tmp_path / name).mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "LICENSE-MIT").write_text(text)
    crates = [licences.crate(package(name, tmp_path / name)) for name in ("one", "two", "bare")]
    written = licences.text_of(crates)
    assert written.count("Copyright (c) Eve") == 1
    assert "\none 1.0.0, two 1.0.0\n" in written
    assert "\nbare 1.0.0\n\nCopyright (c) Ada\n\nPermission is hereby granted" in written
    zlib = licences.crate(package("bare", tmp_path / "bare", licence="Zlib"))
    with pytest.raises(licences.LicenceError, match=r"bare 1\.0\.0 came without the text of its licence, Zlib"):
        licences.text_of([crates[0], zlib])


@pytest.mark.parametrize("licence", [None, "GPL-3.0"])
def test_a_licence_that_nobody_has_read(tmp_path: Path, licence: str | None) -> None:
    with pytest.raises(licences.LicenceError, match="read it, then add it"):
        licences.crate(package("other", tmp_path, licence=licence))
