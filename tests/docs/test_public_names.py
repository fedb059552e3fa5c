"""The comparison of public names and addresses with an earlier commit; the list of `fastkcl.kcl`'s names."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT
from site_build import tool


@pytest.fixture(scope="module")
def names() -> ModuleType:
    return tool("public_names")


def package(names: ModuleType, folder: Path, kcl: str, root: str = "") -> object:
    (folder / "python" / "fastkcl" / "kcl").mkdir(parents=True)
    (folder / "python" / "fastkcl" / "__init__.py").write_text(root)
    (folder / "python" / "fastkcl" / "kcl" / "__init__.py").write_text(kcl)
    (folder / "python" / "fastkcl" / "moved.py").write_text("def run(grace=1): ...\ndef stop(a, b=1): ...\n")
    return names.load(folder)


RUN = "def run(grace=1): ...\n__all__ = ['run']\n"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (RUN, RUN, []),
        (RUN, "from fastkcl.moved import run\n__all__ = ['run']\n", []),
        (RUN, "def run(grace=1, *, more=2): ...\n__all__ = ['run', 'run_more']\ndef run_more(): ...\n", []),
        (RUN, "def run(grace=1): ...\n__all__ = []\n", ["fastkcl.kcl.run: the name is gone"]),
        (RUN, "def run(): ...\n__all__ = ['run']\n", ["fastkcl.kcl.run: Parameter was removed: grace"]),
        (
            RUN,
            "def run(grace=2): ...\n__all__ = ['run']\n",
            ["fastkcl.kcl.run: Parameter default was changed: grace"],
        ),
        (
            "class A:\n    def b(self): ...\n    def _c(self): ...\n__all__ = ['A']\n",
            "class A: ...\n__all__ = ['A']\n",
            ["fastkcl.kcl.A.b: Public object was removed: b"],
        ),
    ],
)
def test_names_that_are_gone(names: ModuleType, before: str, after: str, expected: list[str], tmp_path: Path) -> None:
    old, new = package(names, tmp_path / "old", before), package(names, tmp_path / "new", after)
    assert list(names.gone(old, new)) == expected


def test_addresses_that_are_gone(names: ModuleType, tmp_path: Path) -> None:
    for side, text in (("old", "# T\n## A `b`\n## C\n## D"), ("new", '# U\n## A b\n<a id="c"></a>\n```\n## D\n```\n')):
        (tmp_path / side / "docs").mkdir(parents=True)
        (tmp_path / side / "docs" / "page.md").write_text(text)
    (tmp_path / "old" / "docs" / "gone.md").write_text("# Gone")
    found = list(names.lost(names.pages(tmp_path / "old"), names.pages(tmp_path / "new")))
    assert found == ["docs/gone.md: the page is gone", "docs/page.md#d: the heading is gone"]


def test_the_list_of_names_of_kcl_is_whole() -> None:
    import fastkcl.kcl

    text = (ROOT / "docs" / "versions.md").read_text()
    (listed,) = re.findall(r"of `fastkcl\.kcl` that is (.*?);", text, re.DOTALL)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(fastkcl.kcl.__all__)
