"""Writes the pages of the documentation's site from the files of the repository: ``site_pages.py FOLDER``.

    README.md, docs/, and the other pages in Markdown   the same pages, with links that hold on the site
    examples/, and files that a page links to           a page that shows the file
    docstrings                                          a page for each public module (mkdocstrings)
    fastkcl --help                                      a page for each command

`make docs` calls it, then mkdocs with mkdocs.yml. Nothing of the result is edited or committed.
"""

from __future__ import annotations

import importlib
import inspect
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parent.parent
PUBLIC = (
    "fastkcl",
    "fastkcl.kcl",
    "fastkcl.monitoring",
    "fastkcl.kinesis",
    "fastkcl.kinesis.checkpoints",
    "fastkcl.kinesis.read.plan",
    "fastkcl.kinesis.testing",
    "fastkcl.pytest_plugin",
    "fastkcl.local_aws",
    "fastkcl.spark",
    "fastkcl.spark.sinks",
    "fastkcl.spark.source",
    "fastkcl.tables",
    "fastkcl.payloads",
    "fastkcl.kclpy",
    "fastkcl.kclpy.kcl",
    "fastkcl.kclpy.messages",
    "fastkcl.kclpy.checkpoint_error",
    "fastkcl.kclpy.v2.processor",
    "fastkcl.kclpy.v3.processor",
    "fastkcl.kclpy.per_record",
    "fastkcl.replay",
    "fastkcl.dkb",
    "fastkcl.processv1",
    "fastkcl.processv1.core",
)
"""Modules that programs import; each name of their `__all__` is on the site."""
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
MOVED |= {"bench/README.md": "bench.md", "SECURITY.md": "security.md"}
"""Pages that have another path on the site; those of docs/ lose the folder."""
LANGUAGES = {".py": "python", ".js": "javascript", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}

_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\]\()([^()\s]+)(\))")


def site_path(path: str) -> str:
    """Where a file of the repository is on the site.

    Raises:
        ValueError: the site does not have it.
    """
    if path in MOVED:
        return MOVED[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples") and (ROOT / path).is_dir():
        return "examples.md"
    if (ROOT / path).is_file() and Path(path).suffix in LANGUAGES:
        return f"files/{path}.md"
    raise ValueError(f"a page links to {path}, which the site does not have: add it to tools/site_pages.py")


def links_of(text: str, page: str) -> Iterator[tuple[re.Match[str] | str, str]]:
    """The parts of a page: text, or a link with the file of the repository that it leads to."""
    for index, part in enumerate(_FENCE.split(text)):
        end = 0
        for found in () if index % 2 else _LINK.finditer(part):
            target = found[2].partition("#")[0]
            if target and not re.match(r"[a-z]+:", target):
                yield part[end : found.start()], ""
                yield found, posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
                end = found.end()
        yield part[end:], ""


def with_links(text: str, page: str) -> str:
    """A page's text with the site's links.

    Args:
        text: in Markdown.
        page: its path in the repository.

    Raises:
        ValueError: a link leads to a file that the site does not have.
    """
    here = posixpath.dirname(site_path(page))
    parts = []
    for part, target in links_of(text, page):
        if isinstance(part, str):
            parts.append(part)
        else:
            _, hash_, anchor = part[2].partition("#")
            parts.append(f"{part[1]}{posixpath.relpath(site_path(target), here)}{hash_}{anchor}{part[3]}")
    return "".join(parts)


def repository_pages() -> Iterator[tuple[str, str]]:
    """Path and text of pages that the repository has as such, and of the files that they link to."""
    linked = set()
    for path in [*(ROOT / name for name in MOVED), *sorted((ROOT / "docs").glob("*.md"))]:
        page, text = path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        yield site_path(page), with_links(text, page)
        linked |= {target for _, target in links_of(text, page) if Path(target).suffix in LANGUAGES}
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.*")}
    examples = {name for name in examples if Path(name).suffix in LANGUAGES}
    for name in sorted(linked | examples):
        text = (ROOT / name).read_text("utf-8").rstrip()
        yield site_path(name), f"# {name}\n\n````{LANGUAGES[Path(name).suffix]}\n{text}\n````\n"
    listed = "\n".join(f"- [{name}]({site_path(name)})" for name in sorted(examples))
    yield "examples.md", f"# Examples\n\n{listed}\n"


def public_names(module: str) -> list[str]:
    """The names of a module's `__all__`, in their order, without modules."""
    found = importlib.import_module(module)
    return [name for name in found.__all__ if not inspect.ismodule(getattr(found, name))]


def reference_pages() -> Iterator[tuple[str, str]]:
    """A page for each public module, and one that lists them."""
    lines = ["# API reference\n"]
    for module in PUBLIC:
        purpose = (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0]
        text = f"# {module}\n\n::: {module}\n    options:\n      members: []\n      show_root_heading: false\n"
        text += "".join(f"\n::: {module}.{name}\n" for name in public_names(module))
        yield f"reference/{module}.md", text
        lines.append(f"- [`{module}`](reference/{module}.md): {purpose}")
    yield "reference.md", "\n".join(lines) + "\n"


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Name and help of a command and all below it."""
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, below.make_context(name, [], parent=context, resilient_parsing=True))


def command_pages() -> Iterator[tuple[str, str]]:
    """A page for each verb with those below it, and one that lists them."""
    from fastkcl.cli.main import cli

    context = cli.make_context("fastkcl", [], resilient_parsing=True, terminal_width=100, max_content_width=100)
    (_, overview), *rest = commands(cli, context)
    pages: dict[str, list[str]] = {}
    for name, text in rest:
        verb = name.split()[1]
        mark = "#" if name == f"fastkcl {verb}" else "##"
        pages.setdefault(verb, []).append(f"{mark} {name}\n\n```text\n{text}\n```\n")
    for verb, parts in pages.items():
        yield f"commands/{verb}.md", "\n".join(parts)
    listed = "\n".join(f"- [`fastkcl {verb}`](commands/{verb}.md)" for verb in pages)
    yield "commands.md", f"# Commands\n\n```text\n{overview}\n```\n\n{listed}\n"


def write(folder: Path) -> None:
    """Write all pages into a folder; what was in it goes."""
    shutil.rmtree(folder, ignore_errors=True)
    for pages in (repository_pages(), reference_pages(), command_pages()):
        for path, text in pages:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    shutil.copytree(ROOT / "docs" / "performance", folder / "performance")
    shutil.copy(ROOT / "tools" / "site.css", folder / "site.css")


def main(arguments: list[str]) -> int:
    """The command; the exit status."""
    if len(arguments) != 1:
        print("usage: site_pages.py FOLDER", file=sys.stderr)
        return 2
    os.environ["COLUMNS"] = "100"  # of the commands' help
    write(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
