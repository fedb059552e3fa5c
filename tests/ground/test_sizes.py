"""Files of at most 500 lines, and functions of at most 60, but where a split would hide the idea."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from paths import ROOT

FILE_LINES, FUNCTION_LINES = 500, 60

LONG_FILES = {
    "python/fastkcl/_core.pyi": "the stub of the extension: one module for those who import it",
    "python/fastkcl/kclpy/kcl.py": "amazon_kclpy's module kcl, whose classes its users patch in one place",
    "python/fastkcl/kinesis/read/consumer.py": "Consumer: 110 lines are its options and their description",
    "python/fastkcl/kinesis/read/fetch.py": "one shard's reader: iterator, answer, errors and place change together",
    "python/fastkcl/kinesis/read/reading.py": "the reader of a stream: its shards' life from listed to finished",
    "python/fastkcl/kinesis/write/producer.py": "Producer: 100 lines are its options and their description",
    "python/fastkcl/tables/parquet/sink.py": "a commit of ParquetSink, in the order that power cuts demand",
    "python/fastkcl/write_after.py": "one state machine, and the thread that drives it",
    "rust/codec/src/pool.rs": "one module owns the unsafe memory: its proof is read as a whole",
}
LONG_FUNCTIONS = {
    "python/fastkcl/demo/daemon.py: run_daemon_demo": "the demo's steps, in the order in which its report has them",
    "python/fastkcl/demo/replayed.py: run_demo": "the demo's steps, in the order in which its report has them",
    "python/fastkcl/kinesis/read/consumer.py: __init__": "each option is checked and kept, one after the other",
    "python/fastkcl/kinesis/write/producer.py: __init__": "each option is checked and kept, one after the other",
}


def sources() -> Iterator[Path]:
    yield from sorted((ROOT / "python" / "fastkcl").rglob("*.py"))
    yield from sorted((ROOT / "python" / "fastkcl").rglob("*.pyi"))
    yield from sorted(path for path in (ROOT / "rust").rglob("*.rs") if "src" in path.parts)


def long_functions(path: Path) -> Iterator[str]:
    """By their body: neither the signature nor the docstring counts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body and (node.end_lineno or 0) - body[0].lineno + 1 > FUNCTION_LINES:
                yield node.name


def test_long_files_are_those_with_a_reason() -> None:
    found = {str(path.relative_to(ROOT)) for path in sources() if len(path.read_text().splitlines()) > FILE_LINES}
    assert found == LONG_FILES.keys()


def test_long_functions_are_those_with_a_reason() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources()
        if path.suffix == ".py"
        for name in long_functions(path)
    }
    assert found == LONG_FUNCTIONS.keys()
