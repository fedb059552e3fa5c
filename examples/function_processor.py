"""The shortest child: one function of a batch, which checkpoints by itself.

Try it:  fastkcl replay --profile clickstream --shards 2 -- python examples/function_processor.py
"""

import sys

import fastkcl


@fastkcl.processor(checkpoint_interval=10.0)
def count(batch: fastkcl.RecordBatch) -> None:
    """Tell how much came. Standard output is protected: a print lands on standard error too."""
    print(f"{batch.shard_id}: {len(batch)} records, {batch.nbytes} bytes", file=sys.stderr)


if __name__ == "__main__":
    fastkcl.run(count)
