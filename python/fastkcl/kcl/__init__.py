"""The Kinesis Client Library's multi-language protocol, from the child's side.

    connection    Connection: the state table, sans-IO: messages that may come, lines that may be written
    dialogue      a Connection on its descriptors
    runner        run()

A request comes in, one user method runs, its status goes out; in between the method may checkpoint, as often as it
likes, one round trip each. Only `runner` calls user code, only `connection` knows the rules. The interface to user
code is in `fastkcl.processing`; its public names stay here as well.
"""

from fastkcl.kcl.connection import Connection
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
    "CheckpointError",
    "Checkpointer",
    "ConfigurationError",
    "Connection",
    "LocalProtocolError",
    "ProtocolError",
    "RemoteProtocolError",
    "ShardContext",
    "processor",
    "run",
]
