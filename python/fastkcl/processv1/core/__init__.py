"""The core's side of ProcessV1: starts stitches, looks after them, and carries data between them.

    health     heartbeats sent and answered: green, yellow, red
    routing    the receivers of a message: one instance, or a group
    instance   one running stitch: its process, and a queue of its messages
    core       Core: all of them

One node. A message to another node cannot be delivered; it is counted and logged.
"""

from fastkcl.processv1.core.core import Core, CoreLog
from fastkcl.processv1.core.health import Health
from fastkcl.processv1.core.instance import InstanceReport, StitchSpec

__all__ = ["Core", "CoreLog", "Health", "InstanceReport", "StitchSpec"]
