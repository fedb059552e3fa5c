"""The user side of a case of kind dialogue: `kcl_helpers.ScriptedProcessor` in a run of its own.

dialogue_child.py CASE NOTES     the case; where to note, as lines of JSON, what has come true
"""

import json
import sys
from pathlib import Path

import fastkcl
from kcl_helpers import ScriptedProcessor

case_file, notes_file = map(Path, sys.argv[1:])
case = json.loads(case_file.read_text())
with notes_file.open("a") as notes:
    processor = ScriptedProcessor(case["steps"], lambda step: print(json.dumps(step), file=notes, flush=True))
    fastkcl.run(processor, on_error=case.get("on_error", "stop"))
