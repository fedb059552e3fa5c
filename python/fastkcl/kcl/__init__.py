"""The Kinesis Client Library's multi-language protocol, from the child's side.

    errors        ProtocolError (Local, Remote), CheckpointError, ConfigurationError
    connection    Connection: the state table, sans-IO; what may come, what may be written
    dialogue      a Connection on its descriptors
    checkpointer  what user code asks for checkpoints with
    processor     BatchProcessor and ShardContext
    function      @processor: one function as a BatchProcessor
    failures      what happens when user code fails: on_error, retries, dead_letter
    runner        run()

A request comes in, one user method runs, its status goes out; in between the method may checkpoint, as often as it
likes, one round trip each. Only `runner` calls user code, only `connection` decides what is allowed.
"""

from fastkcl.kcl.checkpointer import Checkpointer
from fastkcl.kcl.connection import Connection
from fastkcl.kcl.errors import (
    CheckpointError,
    ConfigurationError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from fastkcl.kcl.function import processor
from fastkcl.kcl.processor import BatchProcessor, ShardContext
from fastkcl.kcl.runner import run

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
