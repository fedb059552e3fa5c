"""Prints the mean of each sensor in the records of examples/to_kinesis.py; ends when nothing has come for 5 s.

Try it without AWS:

    fastkcl local-aws --create-stream readings:4
    export AWS_ENDPOINT_URL=http://127.0.0.1:4567 AWS_DEFAULT_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
    python examples/to_kinesis.py readings 100000 & python examples/from_kinesis.py readings

Positions are kept in the DynamoDB table kinesis-checkpoints-means: a second one shares the shards, and one that is
started again goes on where it was.
"""

import asyncio
import sys
from collections import defaultdict

from fastkcl.kinesis import Consumer, ConsumerRecord, DynamoDBCheckPointer


def set_aside(record: ConsumerRecord, error: Exception) -> None:
    """Say what could not be read; it is left out."""
    print(f"{record.shard_id} {record.sequence_number}: {error}: {record.data[:80]!r}", file=sys.stderr)


async def main(stream: str) -> None:
    """Read until nothing comes any more."""
    sums: dict[int, float] = defaultdict(float)
    counts: dict[int, int] = defaultdict(int)
    async with Consumer(
        stream,
        checkpointer=DynamoDBCheckPointer("means"),
        checkpoint_interval=5,  # one write a shard in 5 s, not one a batch
        shard_fetch_rate=5,
        idle_timeout=5,
        on_record_error=set_aside,
    ) as consumer:
        async for reading in consumer:
            sums[reading["sensor"]] += reading["celsius"]
            counts[reading["sensor"]] += 1
    for sensor in sorted(sums):
        print(f"sensor {sensor}: {counts[sensor]:,} readings, {sums[sensor] / counts[sensor]:.2f} °C")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
