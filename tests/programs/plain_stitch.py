"""A stitch without fastkcl that may break the rules; its first custom argument says how."""

import json
import sys
import time

WAYS = {
    "bad-frames": b"{Id:1} junk\nend\n[1]\nend\n\xff\xfe\nend\n" + b"x" * 100_000 + b"\nend\n",
    "half-frame": b'{"Command":"logs","Logs":["never ends"',
}

way = sys.argv[sys.argv.index("--") + 1]


def say(**message: object) -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\nend\n")
    sys.stdout.buffer.flush()


if way == "deaf":  # neither reads nor answers
    time.sleep(600)
if way in WAYS:
    sys.stdout.buffer.write(WAYS[way])
    sys.stdout.buffer.flush()
lines: list[str] = []
for line in sys.stdin:
    if line.strip() != "end":
        lines.append(line)
        continue
    message = json.loads("".join(lines))
    lines.clear()
    if message["ChannelName"] == "_heartbeat":
        if way != "no-sync":
            say(Command="sync", Id=str(message["Id"]))
    elif message["ChannelName"] == "_exit":
        sys.exit(message["Id"])
    else:
        say(Command="logs", Logs=[f"{message['ChannelName']} {message['Id']} {message['Data']}"])
        if message["Data"] == "send":
            say(Command="data", Data="from plain", ToStitchInstanceId="node1:fast", DataChannel="plain")
        say(Command="ack", Id=message["Id"])
