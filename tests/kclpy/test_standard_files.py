"""Standard input, output and errors that a program has replaced: it is served as it is by amazon_kclpy.

The original binds its default files when the program imports kcl. Whatever the program has put in their place by then
has to be read and written, to the last byte.
"""

from __future__ import annotations

import subprocess
import sys
import zipapp
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import fastkcl.kclpy
import pytest
from kcl_helpers import INITIALIZE, SHARD_ENDED, SHUTDOWN_REQUESTED, checkpoint_reply, process_records
from kclpy_helpers import Program, Shard, converse, environment
from paths import PROGRAMS
from waiting import PATIENCE

PROGRAM = PROGRAMS / "kclpy_standard_files.py"
EARLY = PROGRAMS / "kclpy_early.py"
INSTALL = "import fastkcl.kclpy\nfastkcl.kclpy.install()\n"
OURS = {"PYTHONPATH": str(Path(fastkcl.kclpy.__file__).parents[2])}
SHARD = Shard(
    "all",
    [
        INITIALIZE,
        process_records(1, 2),
        process_records(3).replace(b'"k"', '"\u00fc\u2028"'.encode()),
        process_records(*range(4, 500)),
        SHUTDOWN_REQUESTED,
        SHARD_ENDED,
    ],
    [],
)
END = "end: ''\n"
# What the program does with the standard files, by its functions.
REPLACED = [
    line.removeprefix("def ").removesuffix("():")
    for line in PROGRAM.read_text().partition("# ---- descriptors")[2].splitlines()
    if line.startswith("def ")
]


class Seen(NamedTuple):
    stdout: bytes
    stderr: str
    exit: int
    notes: str
    """Of the program: what its records were, and what its own files have seen."""


def as_it_is(folder: Path) -> list[str]:
    return ["-m", "fastkcl", "run", str(PROGRAM)]


def installed(folder: Path) -> list[str]:
    path = folder / "installed.py"
    path.write_text(INSTALL + PROGRAM.read_text())
    return [str(path)]


def with_the_name_replaced(folder: Path) -> list[str]:
    path = folder / "replaced.py"
    path.write_text(PROGRAM.read_text().replace("amazon_kclpy", "fastkcl.kclpy"))
    return [str(path)]


def play(command: list[str], replaced: str, notes: Path, **variables: str) -> Seen:
    with Program([*command, replaced, str(notes)], environment(LC_ALL="C.UTF-8", **variables)) as program:
        ended = converse(program, SHARD)
    seen, end, _ = notes.read_text().partition(END)  # as the interpreter ends, it flushes what is left of its modules
    return Seen(ended.stdout, ended.stderr, ended.exit, seen + end)


@pytest.mark.parametrize(
    ("way", "unbuffered"),
    [(as_it_is, False), (as_it_is, True), (installed, False), (with_the_name_replaced, False)],
    ids=["run", "run unbuffered", "installed", "name replaced"],
)
@pytest.mark.parametrize("replaced", REPLACED)
def test_a_program_that_replaces_them_is_served_the_same(
    replaced: str,
    way: Callable[[Path], list[str]],
    unbuffered: bool,
    original_python: Path,
    tmp_path: Path,
) -> None:
    variables = {"PYTHONUNBUFFERED": "1"} if unbuffered else {}
    with ThreadPoolExecutor(2) as threads:
        plays = [
            threads.submit(play, command, replaced, tmp_path / f"{number}.txt", **variables, **ours)
            for number, (command, ours) in enumerate(
                [
                    ([str(original_python), str(PROGRAM)], {}),
                    ([sys.executable, *way(tmp_path)], OURS),
                ]
            )
        ]
        original, seen = (each.result() for each in plays)
    assert original.notes.endswith(END)
    assert original.stdout.endswith(b'\n{"action": "status", "responseFor": "shardEnded"}\n')
    if "errors" in replaced:
        caught = "Caught exception from action dispatch: boom"
        assert original.stderr.count(caught) == seen.stderr.count(caught) == 3
        original, seen = original._replace(stderr=""), seen._replace(stderr="")
    assert seen == original


# ---- what is loaded when ----------------------------------------------------------------------------------------


def as_a_file(folder: Path) -> list[str]:
    return ["-m", "fastkcl", "run", str(EARLY)]


def as_a_module(folder: Path) -> list[str]:
    (folder / "early.py").write_text(EARLY.read_text())
    return ["-m", "fastkcl", "run", "-m", "early"]


def as_a_folder(folder: Path) -> list[str]:
    (folder / "__main__.py").write_text(EARLY.read_text())
    return ["-m", "fastkcl", "run", str(folder)]


def as_an_archive(folder: Path) -> list[str]:
    as_a_folder(folder)
    archive = folder.with_suffix(".pyz")
    zipapp.create_archive(folder, archive, interpreter="/usr/bin/env python3")
    return ["-m", "fastkcl", "run", str(archive)]


def after_install(folder: Path) -> list[str]:
    path = folder / "installed.py"
    path.write_text(INSTALL + EARLY.read_text())
    return [str(path)]


# Python imports the __main__ of a folder or an archive in no worker that starts afresh.
@pytest.mark.parametrize(
    ("way", "method"),
    [
        *((way, method) for way in (as_a_file, as_a_module, after_install) for method in (None, "spawn", "forkserver")),
        (as_a_folder, None),
        (as_an_archive, None),
    ],
)
def test_nothing_is_bound_before_the_program_runs(
    way: Callable[[Path], list[str]], method: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    methods = [method] if method else []
    done = subprocess.run(
        [sys.executable, *way(folder), *methods],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(**OURS),
        timeout=PATIENCE,
    )
    seen = [f"{where} []\n" for where in ("here", *methods)]
    assert (done.stdout, done.stderr) == ("".join([*seen, "fastkcl.kclpy.kcl\n"]), "")


AFRESH = """
import io
import sys

def serve(text, *names):
    for name in names:
        del sys.modules[name]
    sys.stdin, sys.stdout = io.StringIO(text), io.StringIO()
    from amazon_kclpy import kcl
    from amazon_kclpy.v3 import processor
    class Processor(processor.RecordProcessorBase):
        def initialize(self, i): pass
        def process_records(self, i): i.checkpointer.checkpoint(i.records[0].sequence_number)
        def lease_lost(self, i): pass
    kcl.KCLProcess(Processor()).run()
    written, sys.stdout = sys.stdout, sys.__stdout__
    print(repr(written.getvalue()))

LINES = open(sys.argv[1]).read()
LEASE_LOST = '{"action":"leaseLost"}'
serve(LINES)
serve(LINES, *[name for name in sys.modules if name.startswith("amazon_kclpy")])
for text in (LEASE_LOST, LINES):
    sys.modules.pop("amazon_kclpy.kcl", None)
    serve(text, "amazon_kclpy")
"""


@pytest.mark.parametrize("way", [["-m", "fastkcl", "run"], []], ids=["run", "installed"])
def test_who_imports_it_afresh_binds_afresh(way: list[str], original_python: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.jsonl"
    lines.write_bytes(INITIALIZE + process_records(7) + checkpoint_reply())
    program = tmp_path / "program.py"
    ends = []
    for command, source, ours in (
        ([str(original_python)], AFRESH, {}),
        ([sys.executable, *way], AFRESH if way else INSTALL + AFRESH, OURS),
    ):
        program.write_text(source)
        done = subprocess.run(
            [*command, str(program), str(lines)],
            capture_output=True,
            text=True,
            check=False,
            env=environment(**ours),
            timeout=PATIENCE,
        )
        ends.append((done.stdout, done.stderr, done.returncode))
    assert ends[0] == ends[1]
    assert [ends[0][0].count(action) for action in ("initialize", "leaseLost")] == [3, 1]
