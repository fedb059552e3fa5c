"""Spark's engine of micro-batches as a model: offset log, commit log, pickled readers, replays, and deaths in between.

    latestOffset ─▶ offset log ─▶ partitions ─▶ tasks ─▶ sink ─▶ commit log ─▶ commit
                 ╳              ╳             ╳       ╳      ╳             ╳           a death: all but the logs is lost

The reader is the source's own. After a death another one goes on, as Spark does: a batch in the offset log that is not
in the commit log is made again.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from random import Random
from typing import Any

from fastkcl.spark.source.options import SourceOptions
from fastkcl.spark.source.schema import Rows
from fastkcl.spark.source.stream import KinesisStreamReader
from pyspark.sql.streaming.datasource import ReadMaxBytes

Row = tuple[str, int, str, bytes]
"""Sequence number, sub-sequence number, partition key, data."""
LIMIT = ReadMaxBytes(2**63 - 1)


class DeathError(Exception):
    """Of the driver, and all that it knows."""


class SourceEngine:
    """A query.

    Args:
        options: of the source.
        random: of its deaths.
        deaths: how likely one is between two calls.
        happens: is called between two calls.
    """

    def __init__(self, options: dict[str, str], random: Random, *, deaths: float, happens: Callable[[], None]) -> None:
        self.options, self.random, self.deaths, self.happens = options, random, deaths, happens
        self.offsets: list[dict[str, Any]] = []
        self.commits = 0
        self.sink: list[dict[str, list[Row]]] = []
        self.crashes = self.replays = 0
        self.reader: KinesisStreamReader | None = None

    def step(self) -> bool:
        """Make a batch, or go on after a death; False if nothing is new."""
        try:
            return self._step()
        except DeathError:
            self.crashes += 1
            self.stop()
            return True

    def stop(self) -> None:
        """End the reader."""
        if self.reader is not None:
            self.reader.stop()
        self.reader = None

    def new_reader(self) -> KinesisStreamReader:
        """A reader of a process that knows nothing."""
        options = SourceOptions.parse(self.options)
        return KinesisStreamReader(options, Rows(options))

    def read(self, reader: KinesisStreamReader, number: int) -> dict[str, list[Row]]:
        """The rows of a batch, by shard."""
        parts = reader.partitions(self._start(number), self.offsets[number])
        self._between()
        task = pickle.loads(pickle.dumps(reader))
        rows: dict[str, list[Row]] = {}
        for part in parts:
            for batch in task.read(pickle.loads(pickle.dumps(part))):
                for row in batch.to_pylist():
                    text = row["sequenceNumber"], row["subSequenceNumber"], row["partitionKey"], row["data"]
                    rows.setdefault(row["shardId"], []).append(text)
            self._between()
        return rows

    def replay(self, number: int) -> None:
        """Read a batch by a second reader; its rows are the same."""
        deaths, self.deaths = self.deaths, 0.0
        other = self.new_reader()
        try:
            assert self.read(other, number) == self.sink[number], f"batch {number} has other rows"
        finally:
            other.stop()
            self.deaths = deaths
        self.replays += 1

    def _step(self) -> bool:
        if self.reader is None:
            self.reader = self.new_reader()
            if len(self.offsets) > self.commits:
                self._between()
                self._batch(self.reader)
                return True
        start = self._start(len(self.offsets))
        end = json.loads(json.dumps(self.reader.latestOffset(start, LIMIT)))
        self._between()
        if json.dumps(end) == json.dumps(start):
            return False
        self.offsets.append(end)
        self._between()
        self._batch(self.reader)
        return True

    def _batch(self, reader: KinesisStreamReader) -> None:
        number = len(self.offsets) - 1
        rows = self.read(reader, number)
        if len(self.sink) > number:
            assert rows == self.sink[number], f"batch {number} has other rows when it comes again"
            self.replays += 1
        else:
            self.sink.append(rows)
        self._between()
        self.commits = number + 1
        self._between()
        reader.commit(self.offsets[number])

    def _start(self, number: int) -> dict[str, Any]:
        return self.offsets[number - 1] if number else self.new_reader().initialOffset()

    def _between(self) -> None:
        self.happens()
        if self.random.random() < self.deaths:
            raise DeathError
