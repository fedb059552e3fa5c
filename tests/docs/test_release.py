"""tools/release.py lets a tag through only where the sources and CHANGELOG.md agree with it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = loaded()


def sources(folder: Path, version: str, changelog: str) -> Path:
    (folder / "Cargo.toml").write_text(f'[workspace.package]\nversion = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    return folder


CHANGELOG = (
    "# Changes\n\n## 0.2.0\n\n- One thing.\n\n### A part\n\n- Another.\n\n## 0.1.0 (2026-01-02)\n\n- The first.\n"
)


def test_the_notes_are_the_section_of_the_tag(tmp_path: Path) -> None:
    root = sources(tmp_path, "0.2.0", CHANGELOG)
    assert release.notes("v0.2.0", root) == "- One thing.\n\n### A part\n\n- Another."
    assert "v0.2.0" in release.check("v0.2.0", root)


def test_a_candidate_is_spelt_as_python_does(tmp_path: Path) -> None:
    root = sources(tmp_path, "0.3.0-rc1", "## 0.3.0rc1\n\n- To try.\n")
    assert release.notes("v0.3.0rc1", root) == "- To try."


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "message"),
    [
        ("0.2.0", "0.2.0", CHANGELOG, "not a release's tag"),
        ("v0.2", "0.2.0", CHANGELOG, "not a release's tag"),
        ("v0.2.1", "0.2.0", CHANGELOG, "the tag is of 0.2.1, and Cargo.toml has 0.2.0"),
        ("v0.3.0", "0.3.0", CHANGELOG, "no section '## 0.3.0' with text"),
        ("v0.3.0", "0.3.0", "## 0.3.0\n\n## 0.2.0\n\n- Old.\n", "no section '## 0.3.0' with text"),
    ],
)
def test_what_disagrees_is_named(tmp_path: Path, tag: str, version: str, changelog: str, message: str) -> None:
    with pytest.raises(release.ReleaseError, match=message):
        release.check(tag, sources(tmp_path, version, changelog))


def test_a_section_without_text_is_found_before_a_tag_is(tmp_path: Path) -> None:
    root = sources(tmp_path, "0.2.0", "## Unreleased\n\n## 0.2.0\n\n- One.\n")
    with pytest.raises(release.ReleaseError, match="nothing below Unreleased"):
        release.check(None, root)


def test_these_sources_could_be_released() -> None:
    assert release.source_version() in release.check(None)
