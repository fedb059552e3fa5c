"""Puts readings of ten sensors into a stream. A sensor's readings have its key, so they are in one shard, in order.

Try it without AWS:

    fastkcl local-aws --create-stream readings:4
    export AWS_ENDPOINT_URL=http://127.0.0.1:4567 AWS_DEFAULT_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local
    python examples/to_kinesis.py readings 100000
"""

import asyncio
import math
import sys
from collections.abc import Sequence

from fastkcl.kinesis import InMemoryMetricsCollector, OutputItem, Producer

SENSORS = 10


async def main(stream: str, readings: int) -> None:
    """Put so many, and print what was counted."""
    metrics = InMemoryMetricsCollector()
    accepted = 0

    async def after_flush(records: Sequence[OutputItem]) -> None:
        nonlocal accepted
        accepted += len(records)
        print(f"\r{accepted:,} of {readings:,}", end="", file=sys.stderr)

    async with Producer(stream, after_flush_fun=after_flush, metrics_collector=metrics) as producer:
        for number in range(readings):
            sensor, step = number % SENSORS, number // SENSORS
            reading = {"sensor": sensor, "step": step, "celsius": round(20 + 5 * math.sin(step / 50 + sensor), 2)}
            await producer.put(reading, partition_key=f"sensor-{sensor}")  # waits while the queue is full

    print(file=sys.stderr)  # here everything is in the stream, or there was an exception
    for name, value in sorted(metrics.counters.items()):
        print(f"{name} {value:g}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
