"""A stitch for tests; its first custom argument names its act.

STITCH_SECONDS, an object of JSON, sets bounds of `fastkcl.processv1.stitch` by their names.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

from fastkcl.processv1 import Stitch, StitchBatch, ToStitchMessage, run


def echo(stitch: Stitch) -> None:
    print("printed: harmless")
    os.write(1, b"written to fd 1: harmless\n")
    for message in stitch:
        stitch.respond(message, f"{message.channel_name}:{message.data}")
        stitch.ack(message)


def busy(stitch: Stitch) -> None:
    stitch.next_message()
    stitch.log("busy")
    while not Path(stitch.custom_arguments[1]).exists():
        time.sleep(0.01)
    stitch.log("not busy any more")
    stitch.next_message(60)


def cleanup(stitch: Stitch) -> None:
    stitch.receive_exit = True
    stitch.log("ready")
    with stitch:
        for message in stitch:
            if message.channel_name == "_exit":
                stitch.log(f"cleaning up for {message.id}")
                time.sleep(float(stitch.custom_arguments[1]))
                break


def waiting(stitch: Stitch) -> None:
    def tell() -> None:
        while not stitch._waiting:
            time.sleep(0.01)
        stitch.log("waits")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        for message in stitch:
            stitch.ack(message)
    finally:
        teller.join()
        assert any(isinstance(thread, threading.Timer) for thread in threading.enumerate())  # none starts from here on
        Path(stitch.custom_arguments[1]).write_text("finally")


def endless(stitch: Stitch) -> None:
    stitch.log("ready")
    while message := stitch.next_message(float("inf")):
        stitch.ack(message)


def heartbeats(stitch: Stitch) -> None:
    stitch.receive_heartbeats = True
    stitch.log("ready")
    for message in stitch:
        stitch.log(f"{message.channel_name} {message.id}")
        if message.id % 2:
            stitch.sync(message.id)


def logs(stitch: Stitch) -> None:
    from fastkcl.processv1.logs import CoreLogHandler

    logging.basicConfig(level=logging.INFO, handlers=[CoreLogHandler(stitch)])
    logging.getLogger("a.b").warning("two\nlines")
    stitch.next_message(60)


def groups(stitch: Stitch) -> None:
    for message in stitch:
        if message.channel_name == "go":
            stitch.send_to_group(stitch.parameters.groups[int(message.data or 0)], "to the group")
        else:
            stitch.log(f"{message.channel_name} {message.id} {message.data}")


def batches(stitch: Stitch) -> None:
    while True:
        batch = stitch.next_batch(max_messages=100)
        if isinstance(batch, StitchBatch):
            import pyarrow

            table = pyarrow.record_batch(batch.columns)
            for row in table.to_pylist():
                stitch.log(repr(row))
            stitch.ack(*batch.messages)


def asynchronous(stitch: Stitch) -> None:
    async def main() -> None:
        async def tick() -> None:
            while True:
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        assert await stitch.next_message_async(0.05) is None
        stitch.log("idle")
        async for message in stitch:
            stitch.respond(message, "async")
        ticking.cancel()

    asyncio.run(main())


def chatty(stitch: Stitch) -> None:
    for message in stitch:
        for number in range(20_000):
            print("on fd 1" if number % 2 else "on fd 2", "x" * 50, file=sys.stdout if number % 2 else sys.stderr)
        os.spawnlp(os.P_WAIT, "sh", "sh", "-c", "head -c 1000000 /dev/zero >&2")
        stitch.respond(message, "still here")


def handler(message: ToStitchMessage, stitch: Stitch) -> None:
    if message.data == "fail":
        raise ValueError("as asked")
    stitch.respond(message, "handled")


async def nothing() -> None: ...


def lazy(message: ToStitchMessage, stitch: Stitch) -> object:
    return nothing()


MODES = {
    each.__name__: each
    for each in (echo, busy, cleanup, waiting, endless, heartbeats, logs, groups, batches, asynchronous, chatty)
}

if __name__ == "__main__":
    for name, seconds in json.loads(os.environ.get("STITCH_SECONDS", "{}")).items():
        setattr(sys.modules[Stitch.__module__], name, seconds)
    mode = sys.argv[sys.argv.index("--") + 1]
    if mode in ("handler", "lazy", "nothing"):
        run({"handler": handler, "lazy": lazy, "nothing": nothing}[mode])  # type: ignore[arg-type]
    else:
        MODES[mode](Stitch(drop_stderr=mode == "chatty"))
