"""A consumer whose loop body never awaits. Writes a JSON object when each record of the stream has come.

kinesis_busy.py STREAM RECORDS BODY_SECONDS SESSION_SECONDS

    deliveries, distinct    records that came, and how many of them are different ones
    longest                 seconds of this thread's CPU between two turns of the event loop, at the most
    longest_of_others       the same without the time of the bodies
"""

import asyncio
import json
import sys
import time

from fastkcl.kinesis import Consumer, KCLCheckPointer, StringProcessor

STREAM = sys.argv[1]
RECORDS = int(sys.argv[2])
BODY, SESSION = map(float, sys.argv[3:])


class Turns:
    """The longest time that the event loop did not run, in seconds of CPU; and without the body's part."""

    def __init__(self):
        self.longest = self.longest_of_others = self.body = 0.0

    async def watch(self):
        while True:
            before, body = time.thread_time(), self.body
            await asyncio.sleep(0.001)
            busy = time.thread_time() - before
            self.longest = max(self.longest, busy)
            self.longest_of_others = max(self.longest_of_others, busy - (self.body - body))


async def main():
    turns = Turns()
    seen = []
    checkpointer = KCLCheckPointer(STREAM, session_timeout=SESSION, heartbeat_frequency=0.3 * SESSION)
    async with Consumer(STREAM, checkpointer=checkpointer, processor=StringProcessor(), shard_fetch_rate=5) as consumer:
        await consumer.wait_ready(timeout=120)
        watching = asyncio.create_task(turns.watch())
        async for item in consumer:
            began, used = time.perf_counter(), time.thread_time()
            while time.perf_counter() - began < BODY:
                pass
            turns.body += time.thread_time() - used
            seen.append(item)
        watching.cancel()
    print(
        json.dumps(
            {
                "deliveries": len(seen),
                "distinct": len(set(seen)),
                "longest": turns.longest,
                "longest_of_others": turns.longest_of_others,
            }
        )
    )


asyncio.run(main())
