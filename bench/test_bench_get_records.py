"""One GetRecords answer in memory to a program's values: columns, or dictionaries as from botocore; by profile."""

from __future__ import annotations

import pyarrow as pa
import pytest
from answer_helpers import by_botocore
from answers import answer
from fastkcl import _core
from fastkcl.kinesis import install_botocore
from fastkcl.replay import profiles
from suites import Way, one_core, take_turns, timed

PROFILES = ("iot", "clickstream", "logs", "blob", "tiny")
QUICK_RECORDS = {"logs": 20, "blob": 1}
ROUNDS = 7


def columns(content: bytes) -> pa.RecordBatch:
    """The answer's records in pyarrow."""
    return pa.record_batch(_core.decode_get_records(content).batch)


def dictionaries(content: bytes) -> list[dict[str, object]]:
    """What a program with `install_botocore` gets when it looks at Records."""
    with install_botocore():
        return by_botocore(content)["Records"]


@pytest.mark.parametrize("profile", PROFILES)
def test_get_records(benchmark, profile: str) -> None:
    """Equal to what botocore's own parser gives, then timed in turn."""
    full = profiles.PROFILES[profile].records
    records = full if benchmark.enabled else QUICK_RECORDS.get(profile, 500)
    content = answer(profile, records)
    expected = by_botocore(content)["Records"]
    assert dictionaries(content) == expected
    found = columns(content)
    for column, member in (("data", "Data"), ("partitionKey", "PartitionKey"), ("sequenceNumber", "SequenceNumber")):
        assert found[column].equals(pa.array([record[member] for record in expected], found[column].type))
    ways: dict[str, Way] = {
        "fastkcl": timed(columns, content),
        "fastkcl, dictionaries": timed(dictionaries, content),
        "botocore": timed(by_botocore, content),
    }
    with one_core():
        take_turns(benchmark, "get_records", profile, ways, ROUNDS, line_bytes=len(content), records=records)
