"""The DKB stream protocol: stages that speak over stdin and stdout, with markers between their messages.

    errors      StageError
    markers     Markers: EOM, EOP, EOB, BNC; presets, escapes
    messages    JSON, TTL, text, bytes, and the flag of incomplete ones
    connection  the state tables of both sides, sans-IO
    arguments   the command line of a stage
    files       input and output files
    log         log lines as DKB writes them
    stage       ProcessorStage: a worker
    function    @processor: one function as a worker
    supervisor  Supervisor: one stage's worker process, fed and restarted
    pipeline    Pipeline: stages in a row, from a file; imported only where one runs, as supervisor is

The protocol has no positions: a request that was not answered is sent again, so each message is processed at least
once.
"""

from fastkcl._core import MessageBatch
from fastkcl.dkb.connection import SupervisorConnection, WorkerConnection
from fastkcl.dkb.errors import StageError
from fastkcl.dkb.function import FunctionStage, processor
from fastkcl.dkb.markers import PRESETS, Markers
from fastkcl.dkb.messages import BytesMessage, JSONMessage, Message, TextMessage, TTLMessage
from fastkcl.dkb.stage import ProcessorStage

__all__ = [
    "PRESETS",
    "BytesMessage",
    "FunctionStage",
    "JSONMessage",
    "Markers",
    "Message",
    "MessageBatch",
    "ProcessorStage",
    "StageError",
    "SupervisorConnection",
    "TTLMessage",
    "TextMessage",
    "WorkerConnection",
    "processor",
]
