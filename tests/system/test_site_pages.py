"""The documentation's site: every page, public name, command and picture is on it, and it needs no other host."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pages import PAGES
from paths import ROOT
from site_build import build, site_pages

LOADED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}
"""Elements that a browser loads without being asked, and where their address is."""


class Html(HTMLParser):
    """A page as a browser reads it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Html]:
    """By path; without the page for addresses that do not exist, whose links begin at the host."""
    found = {path.relative_to(site).as_posix(): Html(path) for path in site.rglob("*.html")}
    del found["404.html"]
    return found


def targets(page: str, addresses: list[str]) -> Iterator[tuple[str, str]]:
    """File and anchor of each address on this site."""
    for address in addresses:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://site/{page}", address))
        if parts.netloc == "site":
            path = urllib.parse.unquote(parts.path).removeprefix("/")
            yield f"{path}index.html" if path.endswith("/") or not path else path, urllib.parse.unquote(parts.fragment)


def test_links_and_anchors_hold(site: Path, pages: dict[str, Html]) -> None:
    lost = []
    for page, html in pages.items():
        for path, anchor in targets(page, html.links + html.loaded):
            known = pages.get(path)
            if not (site / path).is_file() or (anchor and known is not None and anchor not in known.ids):
                lost.append(f"{page}: {path}#{anchor}")
    assert lost == []


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[str, Html]) -> None:
    abroad = [f"{page}: {address}" for page, html in pages.items() for address in html.loaded if "//" in address]
    assert abroad == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import) *[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_every_page_is_on_it(pages: dict[str, Html]) -> None:
    tool = site_pages()
    expected = {tool.site_path(page.name) for page in PAGES}
    assert {path for path in expected if not {path.replace(".md", "/index.html"), "index.html"} & set(pages)} == set()


def test_every_public_name_is_on_it(pages: dict[str, Html]) -> None:
    tool = site_pages()
    missing = [
        f"{module}.{name}"
        for module in tool.PUBLIC
        for name in tool.public_names(module)
        if f"{module}.{name}" not in pages[f"reference/{module}/index.html"].ids
    ]
    assert missing == []


def test_modules_that_pages_and_examples_import_are_public() -> None:
    texts = [page.text for page in PAGES] + [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    imported = {name for text in texts for name in re.findall(r"(?m)^\s*(?:from|import) (fastkcl[\w.]*)", text)}
    assert imported - set(site_pages().PUBLIC) == set()


def test_every_command_is_on_it(site: Path) -> None:
    from fastkcl.cli.main import COMMANDS

    for verb in COMMANDS:
        assert f"Usage: fastkcl {verb}" in (site / "commands" / verb / "index.html").read_text("utf-8")


def test_the_figures_are_on_it_as_pictures(site: Path, pages: dict[str, Html]) -> None:
    drawn = {path.name for path in (ROOT / "docs" / "performance").glob("*.svg")}
    shown = {Path(path).name for path, _ in targets("performance/index.html", pages["performance/index.html"].loaded)}
    assert len(drawn) >= 4
    assert drawn <= shown


@pytest.mark.parametrize(
    ("page", "text", "expected"),
    [
        ("README.md", "[a](docs/kcl.md#signals)", "[a](kcl.md#signals)"),
        ("docs/kcl.md", "[a](../examples/to_spark.py)", "[a](files/examples/to_spark.py.md)"),
        ("docs/kcl.md", "[a](../bench/README.md)", "[a](bench.md)"),
        ("docs/kcl.md", "[a](#signals) [b](https://example.org/x.md)", "[a](#signals) [b](https://example.org/x.md)"),
        ("docs/kcl.md", "```\n[a](missing.md)\n```", "```\n[a](missing.md)\n```"),
        ("bench/README.md", "![a](../docs/performance/throughput.svg)", "![a](performance/throughput.svg)"),
    ],
)
def test_links_of_a_page(page: str, text: str, expected: str) -> None:
    assert site_pages().with_links(text, page) == expected


def test_a_link_to_a_file_that_the_site_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"links to Makefile, which the site does not have"):
        site_pages().with_links("[a](../Makefile)", "docs/kcl.md")
