"""The core's side of ProcessV1: starts stitches, looks after them, and carries data between them.

    health     heartbeats sent and answered: green, yellow, red
    routing    who gets what a stitch sends: one instance, or a group
    instance   one running stitch: its process, and a queue of what it is to get
    core       Core: all of them

One node. What a stitch sends to another node cannot be delivered, and is counted and said.
"""

from fastkcl.processv1.core.core import Core, CoreLog
from fastkcl.processv1.core.health import Health
from fastkcl.processv1.core.instance import InstanceReport, StitchSpec

__all__ = ["Core", "CoreLog", "Health", "InstanceReport", "StitchSpec"]
