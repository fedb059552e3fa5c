"""The record processor of version 3, and the adapter for processors of version 2."""

from __future__ import annotations

from fastkcl.kclpy.messages import ShutdownInput
from fastkcl.processing.processor import refuse_unrun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastkcl.kclpy import messages
    from fastkcl.kclpy.v2 import processor as v2processor

__all__ = ["RecordProcessorBase", "ShutdownInput", "V2toV3Processor"]


class RecordProcessorBase:
    """Processes the records of one shard; all methods must be overridden."""

    version = 3

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """The first call: which shard, and where it begins."""
        raise NotImplementedError

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Process a list of records."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        """Another worker has the lease; checkpoints are no longer possible. This is the last call."""
        raise NotImplementedError

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        """The shard has ended: it has to be checkpointed, or its child shards do not start."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """The daemon is about to stop: the last chance to checkpoint."""
        raise NotImplementedError


class V2toV3Processor(RecordProcessorBase):
    """A processor of version 2 in the clothes of version 3.

    Args:
        delegate: the processor that is called.
    """

    def __init__(self, delegate: v2processor.RecordProcessorBase) -> None:
        self.delegate: Any = delegate

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """Calls `initialize` with the same input."""
        refuse_unrun(self.delegate, "initialize", self.delegate.initialize(initialize_input))

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Calls `process_records` with the same input."""
        refuse_unrun(self.delegate, "process_records", self.delegate.process_records(process_records_input))

    def lease_lost(self, lease_lost_input: messages.LeaseLostInput) -> None:
        """Calls `shutdown` with reason ZOMBIE."""
        refuse_unrun(self.delegate, "shutdown", self.delegate.shutdown(ShutdownInput.zombie()))

    def shard_ended(self, shard_ended_input: messages.ShardEndedInput) -> None:
        """Calls `shutdown` with reason TERMINATE."""
        refuse_unrun(
            self.delegate, "shutdown", self.delegate.shutdown(ShutdownInput.terminate(shard_ended_input.checkpointer))
        )

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """Calls `shutdown_requested` with the same input."""
        refuse_unrun(self.delegate, "shutdown_requested", self.delegate.shutdown_requested(shutdown_requested_input))
