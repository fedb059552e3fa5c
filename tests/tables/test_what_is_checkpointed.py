"""A checkpoint covers no record that is neither in the table nor in a dead letter, whatever fails before it.

A daemon is played, to lives of a child that fail, end in the middle, and are given the records after the last
checkpoint again. At each checkpoint that a child asks for, refused or not, the table and the letters are read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from delta_table_helpers import delta_posix
from fastkcl.processing.dead_letters import DeadLetters
from fastkcl.spark import SparkProcessor
from fastkcl.spark.sinks import DeltaSink, ParquetSink
from fastkcl.tables import DeltaTable, ParquetTable, TableProcessor
from fastkcl.tables.processor import WriteBehindProcessor
from kcl_helpers import (
    INITIALIZE,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    Daemon,
    checkpoint_reply,
    in_process,
    process_records,
)
from sink_helpers import FakeSession, Record, letters_in, records_of
from table_helpers import posix_place
from waiting import wait_until

LAST = 60
POISON = {7, 43}
STREAM = "clicks"
OPTIONS: dict[str, Any] = {"max_records": 4, "checkpoint_interval": 0, "report_interval": None}


class Session(FakeSession):
    class conf:  # noqa: N801 - Spark's name
        @staticmethod
        def set(name: str, value: str) -> None: ...


@dataclass
class Trouble:
    """What writes meet: poison each time, and other failures now and then, before the commit or after it."""

    every: int
    steps: int = 0

    def __call__(self, rows: Any) -> Any:
        table = getattr(rows, "table", rows)
        if POISON & set(map(int, table["sequenceNumber"].to_pylist())):
            raise ValueError("poison")
        self.may_fail()
        return rows

    def may_fail(self) -> None:
        self.steps += 1
        if self.steps % self.every == 0:
            raise OSError("input/output error")

    def after(self, write: Callable[..., Any]) -> Callable[..., Any]:
        """A write whose answer can be lost."""

        def call(*arguments: Any) -> Any:
            done = write(*arguments)
            self.may_fail()
            return done

        return call


def sink_processor(kind: Callable[..., Any]) -> Callable[..., WriteBehindProcessor[Any]]:
    def make(folder: Path, trouble: Trouble, **options: Any) -> WriteBehindProcessor[Any]:
        sink = kind(folder, transform=trouble)
        sink.write = trouble.after(sink.write)
        return SparkProcessor(sink, spark=Session(), **options)  # type: ignore[arg-type]

    return make


def table_processor(kind: Callable[..., Any]) -> Callable[..., WriteBehindProcessor[Any]]:
    def make(folder: Path, trouble: Trouble, **options: Any) -> WriteBehindProcessor[Any]:
        table = kind(folder)
        table.append = trouble.after(table.append)
        return TableProcessor(table, transform=trouble, **options)

    return make


KINDS: dict[str, tuple[Callable[..., WriteBehindProcessor[Any]], Callable[[Path], Any]]] = {
    "ParquetSink": (sink_processor(ParquetSink), records_of),
    "DeltaSink": (sink_processor(DeltaSink), records_of),
    "ParquetTable": (table_processor(ParquetTable), lambda folder: posix_place(folder.parent).records()),
    "DeltaTable": (table_processor(DeltaTable), lambda folder: delta_posix(folder.parent).records()),
}


@dataclass
class Story:
    """A shard with its checkpoint, through several lives of its child."""

    seed: int
    records: Callable[[], dict[Record, int]]
    letters: Path
    at: int = 0
    ended: bool = False
    checked: list[int] = field(default_factory=list)

    def check(self, upto: int) -> None:
        there = {int(record[2]) for found in (self.records(), letters_in(self.letters)) for record in found}
        assert there >= set(range(1, upto + 1)), f"a checkpoint of {upto} covers {set(range(1, upto + 1)) - there}"
        self.checked.append(upto)

    def daemon(
        self, chance: random.Random, processor: WriteBehindProcessor[Any], *, lives_on: bool
    ) -> Callable[[Daemon], None]:
        """A life; it ends in the middle unless it `lives_on`."""
        buffer = processor._buffer

        def answered(daemon: Daemon) -> bool:
            """Answer until a status comes; whether one has come."""
            while (message := daemon.receive()) is not None:
                if message["action"] == "status":
                    return True
                number = message["sequenceNumber"]
                upto = LAST if number is None else int(number)
                self.check(upto)
                if not lives_on and chance.random() < 0.3:
                    daemon.send(checkpoint_reply("ThrottlingException", number))
                    continue
                self.at, self.ended = upto, number is None
                daemon.send(checkpoint_reply(sequence_number=number))
            return False

        def play(daemon: Daemon) -> None:
            start = str(self.at) if self.at else "TRIM_HORIZON"
            daemon.send(INITIALIZE.replace(b"TRIM_HORIZON", start.encode()))
            goes_on = answered(daemon)
            first = self.at + 1
            while goes_on and first <= LAST and (lives_on or chance.random() < 0.9):
                last = min(LAST, first + chance.randrange(5))
                daemon.send(process_records(*range(first, last + 1)))
                first, goes_on = last + 1, answered(daemon)
                wait_until(lambda: not buffer.busy or buffer._stalled, "an idle writer", step=0.0005)
            if goes_on and first > LAST:
                daemon.send(SHARD_ENDED)
                answered(daemon)
            elif goes_on and chance.random() < 0.5:
                daemon.send(SHUTDOWN_REQUESTED)
                answered(daemon)

        return play


def told(tmp_path: Path, kind: str, seed: int) -> tuple[Story, Trouble]:
    """Until the shard's end is checkpointed."""
    make, records = KINDS[kind]
    chance = random.Random(f"{kind} {seed}")
    folder = tmp_path / "table"
    story, trouble = Story(seed, lambda: records(folder), tmp_path / "letters"), Trouble(every=2 + seed)
    lives = 0
    while not story.ended:
        lives += 1
        processor = make(folder, trouble, **OPTIONS)
        script = story.daemon(chance, processor, lives_on=lives > 12)
        in_process(processor, script, dead_letter=story.letters, retries=1, stream=STREAM)
    return story, trouble


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_is_in_the_table_or_in_a_dead_letter(tmp_path: Path, kind: str, seed: int) -> None:
    story, trouble = told(tmp_path, kind, seed)
    stored = story.records()
    letters = {int(record[2]) for record in letters_in(story.letters)}
    assert set(stored.values()) == {1}
    assert {int(record[2]) for record in stored} | letters == set(range(1, LAST + 1))
    assert letters >= POISON
    assert not {int(record[2]) for record in stored} & POISON
    assert len(story.checked) > 3
    assert trouble.steps >= trouble.every


def test_a_letter_that_is_not_written_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spoiled: else the story would show nothing."""
    monkeypatch.setattr(DeadLetters, "store", lambda *_: "nowhere")
    with pytest.raises(AssertionError, match="a checkpoint of .* covers"):
        told(tmp_path, "ParquetTable", 0)
