"""A stage for tests. Its own first three arguments: message type, the act of process, batch size or "-".

It appends a line for each request to the file STAGE_REQUESTS.
"""

import os
import signal
import sys
import time
from pathlib import Path

from fastkcl import dkb
from fastkcl._core import MessageBatch

TYPE, BEHAVIOUR, BATCH_SIZE, *ARGUMENTS = sys.argv[1:]


def contents_of(request):
    if isinstance(request, MessageBatch):
        import pyarrow as pa

        return pa.record_batch(request)["data"].to_pylist()
    return [message.content() for message in (request if isinstance(request, list) else [request])]


class Stage(dkb.ProcessorStage):
    extract = BEHAVIOUR == "extract"

    def process(self, request):
        print("printed")
        if "STAGE_REQUESTS" in os.environ:
            with Path(os.environ["STAGE_REQUESTS"]).open("a") as requests:
                requests.write("request\n")
        if BEHAVIOUR == "extract" and request is None:
            self.output([{"n": number} for number in range(3)])
            return True
        for content in contents_of(request):
            if BEHAVIOUR.startswith("die-once=") and content == "die":
                flag = Path(BEHAVIOUR.partition("=")[2])
                if not flag.exists():
                    flag.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            if BEHAVIOUR == "die" and content == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if BEHAVIOUR == "sleep" and content == "sleep":
                time.sleep(600)
            if BEHAVIOUR == "raise":
                self.output(content)
                raise RuntimeError("process raises")
            if BEHAVIOUR.startswith("fork ") and content == "fork":
                if os.fork() == 0:
                    if BEHAVIOUR == "fork and raise":
                        raise RuntimeError("in the fork")
                    if BEHAVIOUR == "fork and exit":
                        sys.exit(3)
                    return True
                print("fork", os.waitstatus_to_exitcode(os.wait()[1]))
            if BEHAVIOUR == "emit_eom":
                self.output("a\nb")
            elif BEHAVIOUR == "derive":
                message = request if not isinstance(request, list) else request[0]
                self.output(dkb.JSONMessage({"derived": content}, incomplete=message.incomplete()))
            elif BEHAVIOUR != "none":
                self.output([content] * (2 if BEHAVIOUR == "twice" else 1))
        return BEHAVIOUR != "false"


stage = Stage("a stage for tests")
stage.set_input_message_type(TYPE)
stage.set_output_message_type("bytes" if TYPE == "arrow" else TYPE)
if BATCH_SIZE != "-":
    stage.set_batch_size(int(BATCH_SIZE))
stage.configure(ARGUMENTS)
sys.exit(stage.run())
