"""A child without fastkcl, as one would write it with the standard library: the replayer's independent counterpart.

Options on the command line change how it behaves:

    --dialect modern|legacy     the words of its checkpoints (default: found from initialize)
    --every N                   checkpoint at the end of each Nth batch (default 1; 0: only at the end)
    --sink FILE                 append "shard sequence sub sha1(data)" for each record
    --no-end-checkpoint         do not checkpoint at the shard's end
    --misbehave WHAT            see MISBEHAVIOURS
    --at N                      the batch in which it misbehaves (default 1)
"""

import argparse
import base64
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

MISBEHAVIOURS = (
    "noise",  # text on standard output
    "null",  # the word that ends a daemon
    "wrong-status",  # a status for another action
    "two-statuses",
    "no-status",  # silence
    "exit",  # ends with 3
    "exit-zero",
    "abort",  # ends by a signal
    "unknown-key",  # a checkpoint that no daemon understands
    "above",  # a checkpoint above what was delivered
    "in-initialize",  # a checkpoint in initialize
    "linger",  # does not end at the end of its input
    "grandchild",  # leaves a process behind that holds standard output
    "exit-code",  # ends with 5 after doing all of its work
    "do-not-read",  # stops reading its input
)

parser = argparse.ArgumentParser()
parser.add_argument("--dialect", choices=("modern", "legacy"))
parser.add_argument("--every", type=int, default=1)
parser.add_argument("--sink")
parser.add_argument("--no-end-checkpoint", action="store_true")
parser.add_argument("--misbehave", choices=MISBEHAVIOURS)
parser.add_argument("--at", type=int, default=1)
options = parser.parse_args()


def write(*messages):
    # One write(2), with or without PYTHONUNBUFFERED, so that messages meant to come together do.
    sys.stdout.write("".join("\n" + json.dumps(message) + "\n" for message in messages))
    sys.stdout.flush()


def checkpoint(sequence_number=None, sub_sequence_number=None):
    """Returns the error's name, or None."""
    if options.dialect == "legacy":
        write({"action": "checkpoint", "checkpoint": sequence_number})
    else:
        write(
            {
                "action": "checkpoint",
                "sequenceNumber": sequence_number,
                "subSequenceNumber": sub_sequence_number,
            }
        )
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit("end of input while a reply was open")
    reply = json.loads(line)
    assert reply["action"] == "checkpoint", reply
    return reply["error"]


def misbehaves(what, batch=None):
    return options.misbehave == what and batch in (None, options.at)


def main():
    shard, batch = None, 0
    for line in iter(sys.stdin.buffer.readline, b""):
        message = json.loads(line)
        action = message["action"]
        if action == "initialize":
            shard = message["shardId"]
            options.dialect = options.dialect or ("modern" if "sequenceNumber" in message else "legacy")
            assert shard == os.environ["FASTKCL_REPLAY_SHARD"]
            if misbehaves("in-initialize"):
                print("checkpoint said", checkpoint(), file=sys.stderr)
        elif action == "processRecords":
            batch += 1
            process(shard, batch, message["records"])
        elif action == "shutdownRequested" or (
            (action == "shardEnded" or message.get("reason") == "TERMINATE") and not options.no_end_checkpoint
        ):
            checkpoint()
        twice = misbehaves("two-statuses", batch) and action == "processRecords"
        write(*[{"action": "status", "responseFor": action}] * (2 if twice else 1))
    if misbehaves("linger"):
        time.sleep(600)
    if misbehaves("exit-code"):
        sys.exit(5)


def process(shard, batch, records):
    lines = []
    for record in records:
        data = None if record["data"] is None else base64.b64decode(record["data"], validate=True)
        digest = "-" if data is None else hashlib.sha1(data).hexdigest()
        lines.append(f"{shard} {record['sequenceNumber']} {record.get('subSequenceNumber')} {digest}\n")
    if options.sink:
        with Path(options.sink).open("a") as sink:
            sink.writelines(lines)
    if misbehaves("noise", batch):
        print("processed", len(records), "records", flush=True)
    if misbehaves("null", batch):
        print("null", flush=True)
    if misbehaves("wrong-status", batch):
        write({"action": "status", "responseFor": "initialize"})
    if misbehaves("no-status", batch):
        time.sleep(600)
    if misbehaves("exit", batch):
        sys.exit(3)
    if misbehaves("exit-zero", batch):
        sys.exit(0)
    if misbehaves("abort", batch):
        os.abort()
    if misbehaves("unknown-key", batch):
        write({"action": "checkpoint", "place": "1"})
    if misbehaves("above", batch):
        print("checkpoint said", checkpoint("9" * 60), file=sys.stderr)
    if misbehaves("grandchild", batch):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if misbehaves("do-not-read", batch):
        time.sleep(600)
    if options.every and batch % options.every == 0:
        error = checkpoint()
        if error is not None:
            print("checkpoint failed:", error, file=sys.stderr)


main()
