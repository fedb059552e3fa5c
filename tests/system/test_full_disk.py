"""A disk that is full, for both sinks: no file of the child can grow any more (RLIMIT_FSIZE; programs/sink_child.py).

A write fails then with the same OSError, but for its number: EFBIG for ENOSPC.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastkcl.replay import generate
from sink_helpers import records_of
from sink_replay import delivered, play

SOURCE = generate("tiny", records=300, batch_records=20)
# The second file is the last of a staging: what comes next is the commit's own file.
PLACES: list[tuple[str, str, int]] = [("before", "file", 1), ("after", "file", 2), ("before", "commit", 2)]


@pytest.mark.parametrize("sink", ["ParquetSink", "DeltaSink"])
class TestAFullDisk:
    def test_a_child_ends_and_the_next_one_goes_on(self, tmp_path: Path, sink: str) -> None:
        """A dead letter cannot be written either: that ends a child, too, and nothing is checkpointed past it."""
        letters = tmp_path / "letters"
        trouble: list[Any] = [["full", *place] for place in PLACES]
        report, noise = play(
            tmp_path / "table",
            source=SOURCE,
            sink=sink,
            trouble=trouble,
            run_options={"dead_letter": str(letters)},
            restarts=10,
        )
        (shard,) = report.shards
        assert shard.exit_codes == [1] * len(trouble) + [0], noise
        assert all("ended with exit code 1" in problem for problem in shard.problems), shard.problems
        assert sum("dead_letter=" in line and "could not be written" in line for line in noise) == len(trouble), noise
        assert list(letters.iterdir()) == []
        assert shard.last_checkpoint == ("SHARD_END", 0)
        assert records_of(tmp_path / "table") == delivered(SOURCE)

    @pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place)))
    def test_a_retry_in_place_goes_on_when_there_is_room(self, tmp_path: Path, sink: str, place: Any) -> None:
        report, noise = play(
            tmp_path,
            source=SOURCE,
            sink=sink,
            trouble=[["full", *place, "failures", 3]],
            run_options={"retries": 3, "retry_backoff": 0.01},
        )
        (shard,) = report.shards
        assert report.ok, (shard.problems, noise)
        assert shard.exit_codes == [0]
        assert "the disk is full" in noise
        assert any("File too large" in line for line in noise), noise
        assert records_of(tmp_path) == delivered(SOURCE)
