"""A child of bench/daemon_sizing.py: receives, and checkpoints at most once a second."""

import fastkcl


@fastkcl.processor(checkpoint_interval=1.0)
def receive(batch: fastkcl.RecordBatch) -> None:
    """Let go of the batch."""
    del batch


if __name__ == "__main__":
    fastkcl.run(receive)
