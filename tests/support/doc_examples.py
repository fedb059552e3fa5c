"""How a test runs a block of Python that a page shows: in this process, as a program, or as a worker of a daemon.

A block is run as it is printed, but for names of places: each `put` replaces a text that must be there.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastkcl.processv1.core import StitchSpec
from fastkcl.replay import ReplayOptions, Source, generate, replay
from fastkcl.replay.stitches import StitchesOptions, play_stitches
from local_aws_helpers import client, make_stream
from pages import PAGES, Block

if TYPE_CHECKING:
    from fastkcl.local_aws import LocalAws
    from spark_fixtures import SharedSpark

__all__ = ["BLOCKS", "ROWS", "Example", "block_of", "example"]

BLOCKS = [block for page in PAGES for block in page.blocks("python")]
ROWS: dict[tuple[str, str], Callable[[Example], None]] = {}
"""How each block is run, by its page and a text that no other block of the page has."""
SECONDS = 120.0
"""For a program on a machine that has other work."""
RECORDS = 60


def example(page: str, text: str) -> Callable[[Callable[[Example], None]], Callable[[Example], None]]:
    """Make a function the row of a block."""

    def register(function: Callable[[Example], None]) -> Callable[[Example], None]:
        assert (page, text) not in ROWS, f"{page}: two rows for {text!r}"
        ROWS[page, text] = function
        return function

    return register


def block_of(page: str, text: str) -> Block:
    """The block of a row."""
    found = [block for block in BLOCKS if block.page == page and text in block.text]
    assert len(found) == 1, f"{page}: {len(found)} blocks have {text!r}"
    return found[0]


class Example:
    """A block, with all that is around it.

    Args:
        block: as it is printed.
        folder: of this test alone; programs begin in it.
        request: finds Spark, local AWS and Redis, where a row asks for them.
    """

    def __init__(self, block: Block, folder: Path, request: pytest.FixtureRequest) -> None:
        self.text = block.text
        self.folder = folder
        self.environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.request = request

    # Around it.

    @property
    def aws(self) -> LocalAws:
        """Local AWS, which clients without a configuration find from now on."""
        aws: LocalAws = self.request.getfixturevalue("aws")
        self.environment |= aws.environment
        return aws

    @property
    def spark(self) -> SharedSpark:
        """The Spark of all tests."""
        spark: SharedSpark = self.request.getfixturevalue("spark")
        return spark

    def redis(self) -> None:
        """A Redis, which checkpointers find from now on."""
        self.environment |= self.request.getfixturevalue("redis")

    def stream(self, *payloads: bytes) -> str:
        """A new stream in the place of `orders`, with records."""
        name = make_stream(self.aws)
        for payload in payloads:
            client(self.aws).put_record(StreamName=name, Data=payload, PartitionKey="k")
        if '"orders"' in self.text:
            self.put('"orders"', f'"{name}"')
        return name

    def table(self, statement: str, named: str) -> str:
        """A new table of the catalog."""
        name: str = self.request.getfixturevalue("new_table")()
        self.spark.session.sql(statement.replace(named, name))
        self.request.addfinalizer(lambda: self.spark.session.sql(f"DROP TABLE {name}"))
        return name

    def count(self, folder: str | Path) -> int:
        """Rows of the Parquet files below a folder."""
        return int(self.spark.session.read.parquet(str(self.folder / folder)).count())

    # The text.

    def put(self, old: str, new: str | Path) -> Example:
        """Replace a text of the block."""
        assert old in self.text, f"the block no longer has {old!r}"
        self.text = self.text.replace(old, str(new))
        return self

    def around(self, before: str = "", after: str = "") -> Example:
        """Put lines before and after the block."""
        self.text = f"{textwrap.dedent(before)}\n{self.text}\n{textwrap.dedent(after)}\n"
        return self

    # Running it.

    def inside(self, **names: Any) -> dict[str, Any]:
        """Run it in this process, with `await` where the block has it.

        Args:
            names: that the text around the block on its page explains.

        Returns:
            All names afterwards.
        """
        code = compile(self.text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            if code.co_flags & inspect.CO_COROUTINE:
                coroutine = eval(code, names)

                async def run() -> None:
                    await asyncio.wait_for(coroutine, SECONDS)

                asyncio.run(run())
            else:
                exec(code, names)
        return names

    def program(self, given: bytes = b"", *arguments: str) -> bytes:
        """Run it as a program of its own; what it writes to standard output."""
        path = self.written()
        done = subprocess.run(
            [sys.executable, str(path), *arguments],
            input=given,
            cwd=self.folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def worker(self, source: Source | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
        """Run it under a replayed daemon, one shard; what it writes to standard error."""
        lines: list[str] = []
        report = replay(
            [sys.executable, str(self.written())],
            source or generate("tiny", records=RECORDS, batch_records=20),
            ReplayOptions(
                stream="clicks",
                environment={**self.environment, **(environment or {})},
                on_stderr=lambda _shard, line: lines.append(line.decode()),
            ),
        )
        assert report.ok, ([shard.problems for shard in report.shards], lines)
        return lines

    def stitch(self, messages: int = 20) -> list[str]:
        """Run it as a stitch of ProcessV1 that gets messages; its log."""
        logged: list[str] = []
        spec = StitchSpec([sys.executable, str(self.written())], "stitch1")
        options = StitchesOptions(messages=messages, profile="tiny", exit_seconds=SECONDS)
        report = play_stitches([spec], options, lambda _name, line: logged.append(line))
        assert report.problems == (), logged
        assert report.stitches[0].acknowledged == messages
        return logged

    def written(self) -> Path:
        """The block as a file."""
        path = self.folder / "example.py"
        path.write_text(self.text)
        return path
