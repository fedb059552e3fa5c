"""A consumer of KCL's lease table with KCL's times, whose loop body computes for a minute and never awaits."""

import pytest
from fastkcl.local_aws import LocalAws
from kinesis_programs import last_line, program, put_texts
from local_aws_helpers import make_stream

RECORDS = 55_000


@pytest.mark.long
def test_a_minute_without_an_await(aws: LocalAws) -> None:
    stream = make_stream(aws)
    put_texts(aws, stream, [f"{number:05}" for number in range(RECORDS)])
    with program(aws, "kinesis_busy.py", stream, RECORDS, 0.0011, 10) as process:
        told = last_line(process, seconds=250)
    assert (told["deliveries"], told["distinct"]) == (RECORDS, RECORDS)
    assert told["longest"] <= 0.020
