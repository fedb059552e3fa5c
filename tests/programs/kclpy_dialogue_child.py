"""The user side of a case of kind dialogue, with a processor of the drop-in.

kclpy_dialogue_child.py STEPS NOTES VERSION [ON_ERROR]     VERSION is that of the processor
"""

import json
import sys
from pathlib import Path

from fastkcl.kclpy import kcl
from kclpy_helpers import PROCESSORS, Script

steps_file, notes_file, version, *on_error = sys.argv[1:]
with Path(notes_file).open("a") as notes:
    script = Script(
        json.loads(Path(steps_file).read_text()), lambda step: print(json.dumps(step), file=notes, flush=True)
    )
    options = {"on_error": on_error[0]} if on_error else {}
    kcl.KCLProcess(PROCESSORS[int(version)](script), **options).run()
