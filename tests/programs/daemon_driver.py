"""Runs a `Supervisor` with short waits over a fake java; the outcome is JSON on the last line."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path

from fastkcl.daemon import supervision
from fastkcl.daemon.command import plan
from fastkcl.daemon.jars import JarSet
from fastkcl.daemon.keys import Generation
from fastkcl.daemon.options import Source, collect
from fastkcl.daemon.supervision import Supervisor
from fastkcl.java import Java

CREDENTIALS = {"CUSTOM_AWS_ACCESS_KEY_ID": "id", "CUSTOM_AWS_SECRET_ACCESS_KEY": 'open "sesame" \\'}

java, jars, extra = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
given = {
    "streamName": "clicks",
    "applicationName": "reader",
    "executableName": sys.executable,
    "shutdownGraceMillis": "0",
}
generation = Generation(extra.pop("kcl", "3"))
if not generation.is_1:
    given["shutdownGraceMillis"] = "0"
restart = extra.pop("restart", False)
patience = extra.pop("patience", 1.0)  # what a test waits for to pass has little, what must not pass has much
alone = extra.pop("alone", supervision._ALONE_SECONDS)
supervision._ALONE_SECONDS = alone
options = collect(
    generation, environ=CREDENTIALS, command_line=[Source(k, v, "test") for k, v in {**given, **extra}.items()]
)
launch = plan(options, JarSet(Path(jars), generation, "0", "test"), Java(Path(java), 17, "test"))


def say(text: object) -> None:
    print(text, flush=True)


looks: list[float] = []
group_members = supervision.group_members


def look(group: int) -> list[int]:
    """What a child may wait for: the daemon would have been killed, were it alone."""
    looks.append(time.monotonic())
    if looks[-1] > looks[0] + 2 * alone:
        Path("go").touch()
    return group_members(group)


supervision.group_members = look
supervisor = Supervisor(
    launch,
    options,
    on_event=lambda event: say(f"{event.kind.value}: {event.text}"),
    on_line=lambda line: say(line) if line.startswith(("ready", "told")) else None,
    on_message=lambda text: say(f"we: {text}"),
    grace_margin=patience,
    orphan_seconds=patience,
    back_off=0.1,
)
outcome = supervisor.run(restart=restart)
say(json.dumps({**dataclasses.asdict(outcome), "exit": outcome.exit.name}))
