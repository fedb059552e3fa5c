"""The record processor of version 2, and the adapter for processors of version 1."""

from __future__ import annotations

from fastkcl.processing.processor import refuse_unrun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from fastkcl.kclpy import kcl, messages

__all__ = ["RecordProcessorBase", "V1toV2Processor"]


class RecordProcessorBase:
    """Processes the records of one shard; all but `shutdown_requested` must be overridden."""

    version = 2

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """The first call: which shard, and where it begins."""
        raise NotImplementedError

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Process a list of records."""
        raise NotImplementedError

    def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
        """The last call.

        With reason TERMINATE the shard has ended: it has to be checkpointed, or its child shards do not start. With
        ZOMBIE the lease is another worker's: nothing can be checkpointed.
        """
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """The daemon is about to stop: the last chance to checkpoint."""


class V1toV2Processor(RecordProcessorBase):
    """A processor of version 1 in the clothes of version 2.

    Args:
        delegate: the processor that is called.
    """

    def __init__(self, delegate: kcl.RecordProcessorBase) -> None:
        self.delegate: Any = delegate

    def initialize(self, initialize_input: messages.InitializeInput) -> None:
        """Calls ``initialize(shard_id)``."""
        refuse_unrun(self.delegate, "initialize", self.delegate.initialize(initialize_input.shard_id))

    def process_records(self, process_records_input: messages.ProcessRecordsInput) -> None:
        """Calls ``process_records(records, checkpointer)``."""
        checkpointer: Any = process_records_input.checkpointer
        refuse_unrun(
            self.delegate, "process_records", self.delegate.process_records(process_records_input.records, checkpointer)
        )

    def shutdown(self, shutdown_input: messages.ShutdownInput) -> None:
        """Calls ``shutdown(checkpointer, reason)``."""
        refuse_unrun(
            self.delegate, "shutdown", self.delegate.shutdown(shutdown_input.checkpointer, shutdown_input.reason)
        )

    def shutdown_requested(self, shutdown_requested_input: messages.ShutdownRequestedInput) -> None:
        """Calls ``shutdown_requested(checkpointer)``."""
        checkpointer: Any = shutdown_requested_input.checkpointer
        refuse_unrun(self.delegate, "shutdown_requested", self.delegate.shutdown_requested(checkpointer))
