"""Worker child processes over stdin and stdout, at the speed of the pipe.

    import fastkcl

    @fastkcl.processor
    def store(batch: fastkcl.RecordBatch) -> None:
        table = pyarrow.table(batch)  # no copy
        ...

    fastkcl.run(store)

A daemon, above all Amazon's MultiLangDaemon of the Kinesis Client Library, starts the program once for each shard.
The names here are the extension's decoder (`fastkcl._core`), the interface to user code (`fastkcl.processing`) and the
protocol's `run` (`fastkcl.kcl`). Programs import `fastkcl.spark` and `fastkcl.replay` themselves; other children do not
pay for them.

PYTEST_DONT_REWRITE: there is no assertion here, and ``fastkcl run -m pytest`` has this module before pytest begins.
"""

try:
    from fastkcl._core import (
        Checkpoint,
        DecodeError,
        Decoder,
        Initialize,
        LeaseLost,
        Position,
        ProcessRecords,
        Reader,
        Record,
        RecordBatch,
        ShardEnded,
        Shutdown,
        ShutdownRequested,
        __version__,
        decode_line,
    )
except ImportError as error:  # FASTKCL_FORCE_ISA names a set that this CPU does not have
    from fastkcl.loading import refuse_to_start

    refuse_to_start(error)
    raise
from fastkcl.kcl.runner import run
from fastkcl.processing.checkpointer import Checkpointer
from fastkcl.processing.context import ShardContext
from fastkcl.processing.errors import (
    CheckpointError,
    ConfigurationError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from fastkcl.processing.function import processor
from fastkcl.processing.processor import BatchProcessor

__all__ = [
    "BatchProcessor",
    "Checkpoint",
    "CheckpointError",
    "Checkpointer",
    "ConfigurationError",
    "DecodeError",
    "Decoder",
    "Initialize",
    "LeaseLost",
    "LocalProtocolError",
    "Position",
    "ProcessRecords",
    "ProtocolError",
    "Reader",
    "Record",
    "RecordBatch",
    "RemoteProtocolError",
    "ShardContext",
    "ShardEnded",
    "Shutdown",
    "ShutdownRequested",
    "__version__",
    "decode_line",
    "processor",
    "run",
]
