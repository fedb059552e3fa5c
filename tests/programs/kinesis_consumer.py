"""A consumer in a process of its own: writes down each record before it asks for the next one, until it is killed.

kinesis_consumer.py STREAM KIND ID OUT [LIMIT]     KIND: redis, dynamodb or kcl; LIMIT: of its shards

FAILOVER: seconds, 6 by default; OPTIONS: of the checkpointer besides, in JSON.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from fastkcl.kinesis import Consumer, DynamoDBCheckPointer, KCLCheckPointer, RedisCheckPointer, StringProcessor

STREAM, KIND, ID, OUT, *LIMIT = sys.argv[1:]
KINDS = {"redis": RedisCheckPointer, "dynamodb": DynamoDBCheckPointer, "kcl": KCLCheckPointer}
FAILOVER = float(os.environ.get("FAILOVER", "6"))
OPTIONS = json.loads(os.environ.get("OPTIONS", "{}"))


async def main():
    consumer = Consumer(
        STREAM,
        checkpointer=KINDS[KIND](STREAM, id=ID, session_timeout=FAILOVER, heartbeat_frequency=FAILOVER / 3, **OPTIONS),
        processor=StringProcessor(),
        output="records",
        idle_timeout=None,
        shard_fetch_rate=5,
        sleep_time_no_records=0.2,
        record_limit=5,
        max_shard_consumers=int(LIMIT[0]) if LIMIT else None,
    )
    with Path(OUT).open("a", encoding="utf-8") as out:
        async with consumer:
            async for record in consumer:
                facts = [
                    time.monotonic_ns(),
                    record.shard_id,
                    record.sequence_number,
                    record.partition_key,
                    record.data,
                ]
                out.write(json.dumps(facts) + "\n")
                out.flush()


asyncio.run(main())
