"""Columns on standard output: text from anywhere, a line for each row where nobody looks at a terminal."""

from __future__ import annotations

import pytest
from fastkcl.cli.console import show_columns

NAMES = ("shard", "state")


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([("a", "open"), ("bbbbbbbb", "x")], [["shard", "state"], ["a", "open"], ["bbbbbbbb", "x"]]),
        ([("[red]a[/red]", ":smile:")], [["shard", "state"], ["[red]a[/red]", ":smile:"]]),
        ([("a\x1b[1m\n", "\u202e")], [["shard", "state"], ["a\\x1b[1m\\n", "\\u202e"]]),
        ([("日本" * 100, "x" * 500)], [["shard", "state"], ["日本" * 100, "x" * 500]]),
    ],
)
def test_a_line_for_each_row(
    rows: list[tuple[str, str]], expected: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    show_columns(NAMES, rows)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == expected


def test_columns_begin_at_the_same_place(capsys: pytest.CaptureFixture[str]) -> None:
    show_columns(NAMES, [("a", "open"), ("bbbbbbbb", "closed")])
    lines = capsys.readouterr().out.splitlines()
    assert {line.index(word) for line, word in zip(lines, ("state", "open", "closed"), strict=True)} == {10}
