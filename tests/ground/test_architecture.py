"""The rooms of docs/architecture.md: each uses only rooms below its own, and modules import each other in no circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import fastkcl
from paths import ROOT

PACKAGE = Path(fastkcl.__file__).parent
PAGE = ROOT / "docs" / "architecture.md"

CIRCLES_OF_TYPES = {
    # As amazon_kclpy has laid out its modules.
    frozenset(f"fastkcl.kclpy.{name}" for name in ("dispatch", "kcl", "messages", "v2.processor", "v3.processor")),
}
"""Circles that only imports under ``if TYPE_CHECKING`` close."""


def modules() -> dict[str, Path]:
    """All modules of the package, the extension by its stub."""
    found = {}
    for path in [*PACKAGE.rglob("*.py"), PACKAGE / "_core.pyi"]:
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(path: Path, *, types: bool) -> Iterator[tuple[str, str | None]]:
    """Names that a module imports anywhere in it, as (module, name or None); those for types only where asked for."""
    left: list[ast.AST] = [ast.parse(path.read_text())]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from ((name.name, None) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            assert node.level == 0, f"{path}: a relative import"
            yield from ((node.module, name.name) for name in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)


ORIGINS = {
    name: module
    for module, name in imports(MODULES["fastkcl"], types=False)
    if name is not None and module in MODULES and f"{module}.{name}" not in MODULES
}
"""Where the package has its public names from."""


def graph(*, types: bool) -> dict[str, set[str]]:
    """Which modules of the package each imports."""
    edges: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        edges[module] = set()
        for imported, name in imports(path, types=types):
            whole = f"{imported}.{name}"
            target = ORIGINS.get(name or "", imported) if imported == "fastkcl" else imported
            target = whole if whole in MODULES else target
            if target in MODULES and target != module:
                edges[module].add(target)
    return edges


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Sets of modules of which each reaches each other (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in edges[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            begin = stack.index(module)
            circle = frozenset(stack[begin:])
            del stack[begin:]
            if len(circle) > 1:
                found.add(circle)

    for module in edges:
        if module not in number:
            visit(module)
    return found


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": {"d"}, "f": {"a", "d"}}
    assert circles(edges) == {frozenset("abc"), frozenset("de")}


def test_modules_import_each_other_in_no_circle() -> None:
    """Imports inside of functions count."""
    assert circles(graph(types=False)) == set()


def test_types_close_no_other_circles() -> None:
    assert circles(graph(types=True)) == CIRCLES_OF_TYPES


OUTSIDE = {"fastkcl.__main__", "fastkcl.loading", "fastkcl.pytest_plugin"}
"""How Python, the package and pytest begin."""


def floors() -> dict[str, int]:
    """The rooms of the page and the number of their row, from the top; the package itself is on its highest room's."""
    rows = re.findall(r"^\| (`fastkcl\..*?) \|", PAGE.read_text(), re.MULTILINE)
    floors = {room: number for number, row in enumerate(rows) for room in re.findall(r"`(fastkcl\.\w+)`", row)}
    floors["fastkcl"] = min(floors[room_of(module)] for module in ORIGINS.values() if module not in OUTSIDE)
    return floors


def room_of(module: str) -> str:
    """The room that a module is in."""
    return ".".join(module.split(".")[:2])


def test_a_room_uses_only_rooms_below_its_own() -> None:
    row = floors()
    assert {room_of(module) for module in MODULES} - OUTSIDE == set(row)
    used = [
        (module, other)
        for module, others in graph(types=False).items()
        for other in others
        if module != "fastkcl" and room_of(module) not in OUTSIDE and room_of(module) != room_of(other)
    ]
    assert len(used) > 100
    assert [f"{module} imports {other}" for module, other in used if row[room_of(module)] >= row[room_of(other)]] == []


def test_the_page_names_files_that_are_there() -> None:
    """By the end of their path; and a name "in" a file occurs in one of that path."""
    folders = ("bench", "python", "rust", "tests", "tools")
    paths = [*ROOT.iterdir(), *(path for name in folders for path in (ROOT / name).rglob("*"))]
    there = [f"/{path.relative_to(ROOT)}" for path in paths]
    text = PAGE.read_text()
    named = re.findall(r"`([\w./]*/[\w./]*\w)/?`|`(\w+\.(?:py|pyi|rs))`", text)
    assert len(named) > 50
    assert [one for pair in named for one in pair if one and not any(path.endswith(f"/{one}") for path in there)] == []
    for name, file in re.findall(r"`(\w+)` in `([\w./]+\.\w+)`", text):
        found = [ROOT / path[1:] for path in there if path.endswith(f"/{file}")]
        assert any(re.search(rf"\b{name}\b", path.read_text()) for path in found), f"no {name} in {file}"


def test_tables_know_no_spark() -> None:
    used = {(module, name) for module, path in MODULES.items() for name, _ in imports(path, types=True)}
    spark = {module for module, name in used if name.split(".")[0] == "pyspark"}
    assert {room_of(module) for module in spark} == {"fastkcl.demo", "fastkcl.spark"}
