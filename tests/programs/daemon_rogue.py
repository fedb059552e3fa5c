"""A child without a library, which breaks the protocol at the first record: daemon_rogue.py null|lost|noise."""

import json
import sys


def write(message):
    sys.stdout.write(f"\n{json.dumps(message)}\n")
    sys.stdout.flush()


for line in sys.stdin:
    message = json.loads(line)
    answered = message["action"]
    if message.get("records"):
        if sys.argv[1] == "null":
            print("null", flush=True)
        elif sys.argv[1] == "noise":
            print("no message at all", flush=True)
        elif sys.argv[1] == "lost":
            answered = "initialize"
    write({"action": "status", "responseFor": answered})
