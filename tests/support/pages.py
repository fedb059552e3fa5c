"""The pages of the documentation: anchors, links, words and blocks of code of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paths import ROOT

__all__ = ["PAGES", "Block", "Page"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- make bench: begin -->.*?<!-- make bench: end -->", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Its path within the checkout."""
    number: int
    """From 1, among the page's blocks of its language."""
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        """E.g. ``docs/kcl.md 2``."""
        return f"{self.page} {self.number}"


@dataclass(frozen=True)
class Page:
    """A file in Markdown."""

    path: Path

    @property
    def name(self) -> str:
        """The path within the checkout."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text("utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without blocks of code."""
        return _FENCE.sub("", self.text)

    @property
    def words(self) -> int:
        """How many there are to read: without figures that the bench writes, whose tables nobody reads as prose."""
        return len(_GENERATED.sub("", self.text).split())

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Those of its headings, as GitHub and the site make them."""
        found: dict[str, int] = {}
        anchors = set()
        for heading in _HEADING.findall(self.prose):
            slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
            times = found.get(slug, 0)
            found[slug] = times + 1
            anchors.add(f"{slug}-{times}" if times else slug)
        return frozenset(anchors)

    @property
    def links(self) -> list[str]:
        """Targets of links and pictures, as they are written."""
        return _LINK.findall(self.prose)

    def blocks(self, language: str) -> Iterator[Block]:
        """Those in one language."""
        number = 0
        for found in _FENCE.finditer(self.text):
            if found[1] == language:
                number += 1
                yield Block(self.name, number, self.text.count("\n", 0, found.start(2)) + 1, language, found[2])


PAGES = [
    Page(path)
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md")), ROOT / "bench" / "README.md"]
]
"""README, CONTRIBUTING, the changes, docs/ and the bench's page."""
