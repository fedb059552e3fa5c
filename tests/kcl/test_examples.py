"""The programs in examples/ that need nothing but a daemon."""

from __future__ import annotations

from kcl_helpers import LEASE_LOST, SHARD_ENDED, SHUTDOWN_REQUESTED, Child, checkpoint, process_records, status
from paths import EXAMPLES

DONE = status("processRecords")


def test_function_processor() -> None:
    with Child(str(EXAMPLES / "function_processor.py")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1, 2, 3), checkpoint(), DONE)
        child.daemon.ask(process_records(4), DONE)
        child.daemon.ask(SHUTDOWN_REQUESTED, checkpoint(), status("shutdownRequested"))
        child.daemon.ask(LEASE_LOST, status("leaseLost"))
        code, stderr = child.finish()
    assert code == 0
    assert "shardId-000000000000: 3 records, " in stderr


def test_batch_processor() -> None:
    with Child(str(EXAMPLES / "batch_processor.py")) as child:
        child.daemon.start()
        child.daemon.ask(process_records(1, 2, 3), checkpoint("3", 0), DONE)
        child.daemon.ask(process_records(), DONE)
        child.daemon.ask(process_records(4), checkpoint("4", 0), DONE)
        child.daemon.ask(SHARD_ENDED, checkpoint(), status("shardEnded"))
        code, stderr = child.finish()
    assert (code, stderr) == (0, "shardId-000000000000: shard ended after 4 records of 1 partition keys\n")
