"""A stream in Avro, with AWS Glue Schema Registry, from a producer to a Parquet table.

One command, without AWS:

    pip install 'fastkcl[local,avro]'
    python examples/clicks_with_schema.py /tmp/clicks

It starts a local AWS, makes a registry and a stream in it, puts clicks of two versions of a schema, and writes them
into a table with the columns of the newer one. Its last lines show the rows of the table. With a stream and a registry
of AWS's, leave `LocalAws` out.
"""

import asyncio
import json
import os
import sys
from collections import Counter

import pyarrow.parquet as pq
from fastkcl.kinesis import AvroProcessor, MemoryCheckPointer, Producer, run_processors
from fastkcl.local_aws import LocalAws
from fastkcl.tables import AvroPayload, ParquetTable, TableProcessor

FIELDS = [{"name": "user", "type": "string"}, {"name": "page", "type": "string"}]
REFERRER = {"name": "referrer", "type": ["null", "string"], "default": None}
FIRST = json.dumps({"type": "record", "name": "Click", "namespace": "web", "fields": FIELDS})
SECOND = json.dumps({"type": "record", "name": "Click", "namespace": "web", "fields": [*FIELDS, REFERRER]})


async def put(schema: str, clicks: list[dict[str, object]]) -> None:
    """Put clicks whose schema is registered as ``web/click``, if it is not yet."""
    processor = AvroProcessor(schema, "glue", registry="glue", name="web/click", compress=True)
    async with Producer("clicks", processor=processor) as producer:
        for click in clicks:
            await producer.put(click, partition_key=str(click["user"]))


async def main(folder: str) -> None:
    """Put clicks by two producers, and write them into a table."""
    users = [f"user-{number % 50}" for number in range(500)]
    await put(FIRST, [{"user": user, "page": "/"} for user in users])
    await put(SECOND, [{"user": user, "page": "/cart", "referrer": "/"} for user in users])

    payload = AvroPayload(schema="latest:web/click", framing="glue", registry="glue")
    await run_processors(
        "clicks",
        lambda: TableProcessor(ParquetTable(folder), payload=payload, max_age=1),
        checkpointer=MemoryCheckPointer("to-table"),
        idle_timeout=1,
    )


def show(folder: str) -> None:
    """Print the columns of the table, and the number of clicks by page and referrer."""
    table = pq.read_table(folder)
    corrupt = table.num_rows - table["_corrupt"].null_count
    print(f"{table.num_rows} clicks are in {folder}, {corrupt} of them corrupt")
    print(f"columns: {', '.join(table.schema.names)}")
    pairs = zip(table["page"].to_pylist(), table["referrer"].to_pylist(), strict=True)
    for (page, referrer), count in sorted(Counter(pairs).items()):
        print(f"{count} of page {page} with referrer {referrer}")


if __name__ == "__main__":
    with LocalAws(streams={"clicks": 2}) as aws:
        os.environ.update(aws.environment)
        aws.client("glue").create_registry(RegistryName="web")
        asyncio.run(main(sys.argv[1]))
    show(sys.argv[1])
