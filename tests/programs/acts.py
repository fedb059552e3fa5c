"""A child on fastkcl.run with methods of the command line's: ``acts.py SOURCE [OPTION=VALUE ...]``.

SOURCE is the text of methods of a BatchProcessor; the options are for `run`.
"""

import os
import sys

import fastkcl


class Processor(fastkcl.BatchProcessor):
    def process_batch(self, batch, checkpointer):
        pass

    def run_ended(self):
        print("run_ended in", "the child" if os.getpid() == PID else "a fork", file=sys.stderr, flush=True)


PID = os.getpid()
source, *options = sys.argv[1:]
names = {"os": os, "sys": sys}
exec(source, names)
for name in names.keys() - {"os", "sys"}:
    setattr(Processor, name, names[name])
fastkcl.run(Processor(), **dict(option.split("=", 1) for option in options))
