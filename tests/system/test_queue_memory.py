"""What is fetched ahead is bounded in bytes, over all shards, in a process that is measured: with the default bound."""

from fastkcl.kinesis.read.budget import MAX_QUEUE_BYTES
from fastkcl.local_aws import LocalAws
from kinesis_programs import last_line, program, put_texts
from local_aws_helpers import make_stream
from waiting import PATIENCE

MB = 1_000_000


def test_a_hundred_shards_of_large_records(own_aws: LocalAws) -> None:
    stream = make_stream(own_aws, 100)
    with program(own_aws, "kinesis_memory.py", stream, 300) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "idle\n"
        put_texts(own_aws, stream, [f"{number:06} ".ljust(MB, "x") for number in range(300)], shards=100)
        told = last_line(process, seconds=4 * PATIENCE)
    assert told["records"] == 300
    assert told["grown"] <= 1.2 * MAX_QUEUE_BYTES
    assert told["fetched"] >= MAX_QUEUE_BYTES / 4  # and it does fetch ahead
