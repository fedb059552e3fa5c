"""An Iceberg table's commits cost the same, however many there were."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from iceberg_helpers import sql_posix, written
from table_helpers import arrived, as_they_are

HUNDRED = 100


@pytest.mark.long
def test_the_last_hundred_commits_cost_what_the_second_hundred_did(tmp_path: Path) -> None:
    """At most twice as much CPU; the first hundred have fewer snapshots to carry on."""
    place = sql_posix(tmp_path)
    table = written(place)
    spent = []
    for hundred in range(3):
        begin = time.process_time()
        for number in range(hundred * HUNDRED + 1, (hundred + 1) * HUNDRED + 1):
            table.append(arrived([number]), as_they_are)
        spent.append(time.process_time() - begin)
    assert spent[2] <= 2 * spent[1], spent
    assert len(place.handle().metadata.snapshots) == HUNDRED
    assert place.numbers() == list(range(1, 3 * HUNDRED + 1))
