"""Children that do not play along: their lines have nothing to do with the requests.

rogue.py WHAT [--every SECONDS]     see ROGUES
"""

import argparse
import json
import os
import signal
import sys
import time


def write(*messages):
    data = b"".join(
        message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n" for message in messages
    )
    while data:
        data = data[os.write(1, data) :]


def status(action):
    return {"action": "status", "responseFor": action}


def checkpoint(number=None):
    return {"action": "checkpoint", "sequenceNumber": number, "subSequenceNumber": None}


def requests():
    for line in sys.stdin.buffer:
        yield json.loads(line)["action"]


def canned(close):
    """Statuses on a clock, whatever comes; with its input closed, or open and never read."""
    if close:
        os.close(0)
    write(status("initialize"))
    for action in (*["processRecords"] * 5, "shardEnded"):
        time.sleep(options.every)
        write(checkpoint() if action == "shardEnded" else b"", status(action))
    time.sleep(options.every)


def deaf_later():
    """Reads and answers as it should, until it closes its input before the third batch."""
    batch = 0
    for action in requests():
        batch += action == "processRecords"
        if batch == 2:
            os.close(0)
            write(status(action))
            time.sleep(600)
        write(status(action))


def deaf_for_replies():
    """Closes its input before it asks for a checkpoint, and does not miss the reply."""
    for action in requests():
        if action == "processRecords":
            os.close(0)
            write(checkpoint())
            time.sleep(options.every)
            write(status(action))
            time.sleep(600)
        write(status(action))


def hasty():
    """Checkpoint and status in one write: it does not wait for the reply."""
    for action in requests():
        if action == "checkpoint":
            continue
        write(*[checkpoint()] * (action in ("processRecords", "shardEnded")), status(action))


def hasty_later():
    """Two checkpoints and the status, one after the other, with nothing read between."""
    for action in requests():
        if action == "checkpoint":
            continue
        if action in ("processRecords", "shardEnded"):
            write(checkpoint())
            time.sleep(0.1)
            write(checkpoint())
            time.sleep(0.1)
        write(status(action))


def before_the_end_of_the_line():
    """Answers when it has seen the beginning of a long line, and reads the rest then."""
    write(status(next(requests())))
    while data := os.read(0, 1000):
        if data.startswith(b'{"action":"processRecords"'):
            write(status("processRecords"))
        time.sleep(0.001)


def forever(*messages):
    """In place of the first batch's status: the same again and again; a reply is read."""
    for action in requests():
        if action == "processRecords":
            print("here it begins", file=sys.stderr, flush=True)
            while True:
                write(*messages)
                if messages == (checkpoint(),):
                    sys.stdin.buffer.readline()
                time.sleep(options.every)
        write(status(action))


def flood_at_the_end():
    """Does its work, and at the end of its input begins to write without an end."""
    for action in requests():
        if action == "shardEnded":
            write(checkpoint())
            sys.stdin.buffer.readline()
        write(status(action))
    print("here it begins", file=sys.stderr, flush=True)
    while True:
        write(b"goodbye\n" * 100)


def escaped():
    """Hands its pipes to a process of another group, and is gone."""
    write(status(next(requests())))
    if os.fork() == 0:
        os.setsid()
        signal.alarm(300)
        print("escaped as", os.getpid(), file=sys.stderr, flush=True)
        os.close(2)
        while True:
            signal.pause()
    os._exit(0)


def all_by_itself():
    """Recovers from an error of a checkpoint, and then ends for another reason, within the same request."""
    for action in requests():
        if action == "processRecords":
            for _ in range(2):
                write(checkpoint())
                sys.stdin.buffer.readline()
            sys.exit(3)
        write(status(action))


def gone_early():
    """Ends after the first batch."""
    for batch, action in enumerate(requests()):
        write(status(action))
        if batch == 1:
            sys.exit(0)


def odd_words():
    """Numbers and names with line breaks and worse in them."""
    for action in requests():
        if action == "processRecords":
            write(checkpoint("1\nERROR all is lost\u2028\ud800"))
            sys.stdin.buffer.readline()
            write(status("process\x1b[31m\nRecords"))
        write(status(action))


ROGUES = {
    "deaf": lambda: canned(close=True),
    "canned": lambda: canned(close=False),
    "deaf-later": deaf_later,
    "deaf-for-replies": deaf_for_replies,
    "hasty": hasty,
    "hasty-later": hasty_later,
    "before-the-end": before_the_end_of_the_line,
    "junk": lambda: forever(b"hello\n"),
    "junk-flood": lambda: forever(b"hello\n" * 100),
    "endless-line": lambda: forever(b"x" * 65536),
    "checkpoints": lambda: forever(checkpoint()),
    "other-messages": lambda: forever({"action": "leaseLost"}),
    "flood-at-the-end": flood_at_the_end,
    "escaped": escaped,
    "all-by-itself": all_by_itself,
    "gone-early": gone_early,
    "odd-words": odd_words,
}

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=ROGUES)
parser.add_argument("--every", type=float, default=0.0)
options = parser.parse_args()
ROGUES[options.what]()
