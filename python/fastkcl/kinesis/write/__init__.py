"""Streams written: items from asyncio, and records from a file or a generator.

    producer      items from asyncio, in batches
      sent        the result of an item, for a program that awaits it
    put           fills a stream at a rate, until each record is taken
    put_queue     chooses the records of the next PutRecords, and settles them by its answer
    aggregate     user records into KPL aggregates

Rules: a module uses those below it.
"""
