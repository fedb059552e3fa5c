"""Streams read from asyncio: shards fetched within bounds, records delivered in order, positions committed after them.

    consumer          items, records or Arrow batches, in the program's loop
      delivery        a batch on its way to the program
      holders         the records that tasks hold; each is acknowledged by asking for the next
      acknowledging   records that are acknowledged one by one, in any order
      positions       the positions that may be committed
      pacing          when a busy program lets the event loop run
    reading           a stream's shards that are ours: taken, read, given back
      sharing         consumers of one process that share a checkpointer
    fetch             one shard: GetRecords again and again
      fetch_policy    the reactions to failures of its calls
      trimmed         records that the stream no longer has, and nobody has read
      data_loss       reports of them
      record_queue    records on their way from the shards to the program
      budget          memory of all shards together, and records a call
      bodies          bodies of answers, read when there is room for them

    plan              the other way: batches of a stream, planned and read anywhere, for `fastkcl.spark.source`

Rules: a module uses those below it.
"""
