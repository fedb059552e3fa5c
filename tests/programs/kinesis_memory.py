"""A consumer that fetches as much as it may while its program waits. Says how much memory that takes.

kinesis_memory.py STREAM RECORDS

Writes "idle" when all shards were asked twice. From then on counts. Takes one record and waits until nothing is fetched
any more, then takes the others; writes a JSON object at the end:

    records    that came
    grown      bytes of resident memory, at the most, above those of the idle consumer
    fetched    bytes that it says were held when it fetched no more
"""

import asyncio
import json
import re
import sys
from pathlib import Path

from fastkcl.kinesis import Consumer, InMemoryMetricsCollector, MemoryCheckPointer, StringProcessor

STREAM, RECORDS = sys.argv[1:]
LOOKS = 20


def resident(name):
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


async def main():
    metrics = InMemoryMetricsCollector()

    def received():
        return sum(count for name, count in metrics.counters.items() if name.startswith("consumer_bytes_received"))

    async with Consumer(
        STREAM,
        checkpointer=MemoryCheckPointer(),
        processor=StringProcessor(),
        metrics_collector=metrics,
        idle_timeout=None,
        shard_fetch_rate=5,
        sleep_time_no_records=0.2,
    ) as consumer:
        await consumer.wait_ready(timeout=120)
        shards = None
        while shards is None or any(shard["stats"]["success"] < 2 for shard in shards):
            await asyncio.sleep(0.05)
            shards = consumer.get_shard_status()["shard_details"]
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
        idle = resident("VmRSS")
        print("idle", flush=True)
        await anext(consumer)
        fetched, same = -1, 0
        while same < LOOKS:
            await asyncio.sleep(0.1)
            before, fetched = fetched, received()
            same = same + 1 if fetched == before else 0
        for _ in range(int(RECORDS) - 1):
            await anext(consumer)
        grown = resident("VmHWM") - idle
    print(json.dumps({"records": int(RECORDS), "grown": grown, "fetched": fetched}))


asyncio.run(main())
