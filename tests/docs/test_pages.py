"""Links lead somewhere, pages are short enough to read, README lists them, and the tests that a page names exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
from fastkcl.cli.commands import COMMANDS
from pages import PAGES, Page
from paths import ROOT

GUARANTEES = [ROOT / "docs" / "guarantees.md", ROOT / "docs" / "guarantees-of-tables.md"]
LONGEST = 2500
"""Words: a longer page is split by question."""
HISTORY = ROOT / "CHANGELOG.md"
"""Nobody reads it from top to bottom."""
DOCS = [page for page in PAGES if page.path.parent == ROOT / "docs"]
NAMED = sorted({name for page in DOCS for name in re.findall(r"`(tests/[\w/]+\.py(?:::\w+)+)`", page.text)})


def name(page: Page) -> str:
    return page.name


def lost(page: Page, pages: list[Page] = PAGES) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    by_path = {each.path: each for each in pages}
    found = []
    for link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        if not target.exists() or (anchor and (target not in by_path or anchor not in by_path[target].anchors)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_each_link_leads_to_a_file_and_a_heading(page: Page) -> None:
    assert lost(page) == []


INSTALLED = re.compile(r"fastkcl\[([a-z0-9,]+)\]")


def brought(extras: str) -> set[str]:
    """The packages of extras, with those of the extras that they name."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found: set[str] = set()
    for requirement in (each for extra in extras.split(",") for each in known[extra]):
        if inner := INSTALLED.match(requirement):
            found |= brought(inner[1])
        else:
            found.add(re.split(r"[^\w-]", requirement)[0])
    return found


def lacking(text: str) -> list[str]:
    """Commands of a paragraph that what it installs does not bring; a comment tells what an option needs as well."""
    found, text = [], re.sub(r"  +#.*", "", text)
    installed = set().union(*map(brought, INSTALLED.findall(text)))
    for verb in re.findall(r"(?:`|^)fastkcl ([a-z]+)", text, re.MULTILINE) if installed else ():
        needed = set().union(*(brought(extra) for extra in COMMANDS[verb].extras)) if verb in COMMANDS else set()
        if not needed <= installed:
            found.append(f"fastkcl {verb}")
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if page.path != HISTORY], ids=name)
def test_what_a_paragraph_installs_brings_what_its_commands_need(page: Page) -> None:
    """The block after a paragraph that ends with a colon belongs to it."""
    paragraphs = re.split(r"(?<!:)\n\n", page.text)
    assert [(each, paragraph) for paragraph in paragraphs for each in lacking(paragraph)] == []


def test_a_command_whose_extra_is_not_installed_is_found() -> None:
    assert lacking("`pip install 'fastkcl[kinesis]'`, and `fastkcl kinesis list`") == ["fastkcl kinesis"]
    assert lacking("`pip install 'fastkcl[cli,kinesis]'`, and `fastkcl kinesis list`") == []
    assert lacking("`pip install 'fastkcl[local]'`:\n\n```\nfastkcl put orders\n```") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# One\n[a](#one)", []),
        ("# One\n[a](#two)", ["#two"]),
        ("# A `b`, and c's\n[a](#a-b-and-cs)", []),
        ("# One\n## One\n[a](#one-1)", []),
        ("```\n# Comment\n```\n[a](#comment)", ["#comment"]),
        ("[a](missing.md)", ["missing.md"]),
        ("![a](missing.svg)", ["missing.svg"]),
        ("[a](https://example.org/missing)", []),
        ("[a [b]](missing.md)", ["missing.md"]),
    ],
)
def test_a_lost_link_is_found(text: str, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(text)
    page = Page(path)
    assert lost(page, [page]) == expected


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_item_of_a_list_is_lost_in_the_text_before_it(page: Page) -> None:
    """As when a paragraph is wrapped again with the list below it."""
    text = re.sub("`[^`]*`", "`…`", page.prose)
    assert re.findall(r".*[.:;)] -(?: |\n).*", text) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.path != HISTORY], ids=name)
def test_a_page_is_short_enough(page: Page) -> None:
    assert page.words <= LONGEST


def test_readme_lists_every_page() -> None:
    (readme,) = [page for page in PAGES if page.name == "README.md"]
    linked = {link.partition("#")[0] for link in readme.links}
    assert {page.name for page in PAGES if page is not readme} - linked == set()


def test_readme_lists_every_extra() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (listed,) = re.findall(r"Extras: ([^.]*)\.", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert sorted(re.findall(r"`([\w-]+)`", listed)) == sorted(declared)


@pytest.mark.parametrize("test", NAMED)
def test_each_test_that_a_page_names_is_there(test: str) -> None:
    path, *parts = test.split("::")
    found: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body
    for part in parts:
        (node,) = [node for node in found if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part]
        found = node.body


def rows_without_a_test(text: str, head: str) -> tuple[int, list[str]]:
    """How many rows a table has, and those whose last cell names no test."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(head)]
    return len(rows), [row for row in rows if "`tests/" not in row.split("|")[-2]]


@pytest.mark.parametrize("page", GUARANTEES, ids=lambda page: page.name)
def test_each_row_names_one(page: Path) -> None:
    count, without = rows_without_a_test(page.read_text(), "| lost |")
    assert count > 10
    assert without == []


def test_each_bad_day_of_the_source_names_one() -> None:
    text = (ROOT / "docs" / "spark-source.md").read_text().partition("## When something dies")[2].partition("\n## ")[0]
    count, without = rows_without_a_test(text, "| event |")
    assert count > 14
    assert without == []
