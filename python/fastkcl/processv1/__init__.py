"""CrossStitch ProcessV1: workers (stitches) of a core, and the core itself.

    errors      ArgumentError, CoreGoneError
    arguments   the command line that a core gives a stitch
    groups      names of groups, addresses of stitches
    connection  Connection: the state table, sans-IO: messages that may come, messages that may be written
    watch       whether the core's process is still there
    batch       a run of messages as Arrow columns
    stitch      Stitch: a Connection on its descriptors
    runner      run(): a function for each message
    logs        a handler of the standard library's logging, imported by programs that use it
    core        the core's side: starts stitches, looks after them, routes

Core and stitch write when they like, and nobody waits for a reply: heartbeats are answered while user code is busy.
The messages are the frozen classes of `fastkcl._core`, the frames its decoder's.
"""

from fastkcl import LocalProtocolError
from fastkcl._core import FromStitchMessage, MessageBatch, StitchDecoder, ToStitchMessage
from fastkcl.processv1.arguments import Arguments, Parameters
from fastkcl.processv1.batch import StitchBatch
from fastkcl.processv1.connection import Connection
from fastkcl.processv1.errors import ArgumentError, CoreGoneError
from fastkcl.processv1.groups import AddressError, GroupName, InstanceAddress
from fastkcl.processv1.runner import run
from fastkcl.processv1.stitch import Stitch

__all__ = [
    "AddressError",
    "ArgumentError",
    "Arguments",
    "Connection",
    "CoreGoneError",
    "FromStitchMessage",
    "GroupName",
    "InstanceAddress",
    "LocalProtocolError",
    "MessageBatch",
    "Parameters",
    "Stitch",
    "StitchBatch",
    "StitchDecoder",
    "ToStitchMessage",
    "run",
]
