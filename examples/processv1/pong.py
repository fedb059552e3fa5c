"""A stitch in plain Python, without fastkcl: answers each ping, and writes its group's news to the core's log."""

import json
import sys


def say(**message: object) -> None:
    """Write a frame: JSON on one line, and the line end."""
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


frame: list[str] = []
for line in sys.stdin:
    if line.strip() != "end":
        frame.append(line)
        continue
    message = json.loads("".join(frame))
    frame.clear()
    channel, data = message["ChannelName"], message["Data"]
    if channel == "_heartbeat":
        say(Command="sync", Id=message["Id"])
    elif channel == "_exit":
        sys.exit(message["Id"])
    elif channel == "game":
        answer = data.replace("ping", "pong")
        say(Command="data", Id=0, Data=answer, DataChannel="game", ToStitchInstanceId=message["FromStitchInstanceId"])
        say(Command="ack", Id=message["Id"])
    else:
        say(Command="logs", Id=0, Logs=[f"group: {data}"])
