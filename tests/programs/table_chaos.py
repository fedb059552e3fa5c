"""Writers of a table that are killed, and stopped and woken beside their successors.

Called as `table_chaos.py SECONDS PACE SEED SHARDS`.

Not a test. TABLE_URL, TABLE_KIND and TABLE_OPTIONS name the table, the environment the rest. Each shard has a writer,
a fork of this process. It appends records 1, 2, 3 … in short runs, goes on where the table is, and notes each position
that an append has returned. After a while one is killed; or it is stopped, its successor starts, and it is woken beside
it. At the end all are killed but one of each shard, which writes to a last record.

Prints a JSON object: kills, stops, the calls that raised and how often, the noted positions of each shard, and its end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from fastkcl import tables
from fastkcl.tables import Shard, SinkError
from table_helpers import arrived, as_they_are

if os.environ["TABLE_KIND"] == "DeltaTable":
    import deltalake  # noqa: F401 - loaded once, for all forks
if os.environ["TABLE_KIND"] == "IcebergTable":
    import fastkcl.tables.iceberg.head  # noqa: F401

SHARDS = [Shard("clicks", f"shardId-{number:012d}") for number in range(int(sys.argv[4]))]
FOLDER = Path(os.environ["CHAOS_FOLDER"])
END_SECONDS = 240.0
REFUSED = 3


def table() -> Any:
    return getattr(tables, os.environ["TABLE_KIND"])(
        os.environ["TABLE_URL"], **json.loads(os.environ.get("TABLE_OPTIONS", "{}"))
    )


def note(shard: Shard, kind: str, what: object) -> None:
    """A line, in one write, so that it is there whole or not at all."""
    with (FOLDER / f"{kind}-{shard.shard_id}").open("ab", buffering=0) as file:
        file.write(f"{what}\n".encode())


def write(shard: Shard, chance: random.Random, end: int | None) -> NoReturn:
    """Append until killed, or up to the last record."""
    made = table()
    while True:
        try:
            position = made.open(shard)
            at = 0 if position is None else int(position.sequence_number)
            while end is None or at < end:
                last = at + chance.randrange(1, 8)
                last = last if end is None else min(end, last)
                at = int(made.append(arrived(range(at + 1, last + 1)), as_they_are).sequence_number)
                note(shard, "upto", at)
            os._exit(0)
        except SinkError as error:
            note(shard, "refused", error)
            os._exit(REFUSED)
        except Exception as error:
            note(shard, "raised", type(error).__name__)
            time.sleep(chance.uniform(0, 0.2))


def start(shard: Shard, seed: int, end: int | None = None) -> int:
    pid = os.fork()
    if pid == 0:
        write(shard, random.Random(seed), end)
    return pid


def kill(pid: int) -> None:
    """Whatever it does, and also if it is stopped."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def noted(shard: Shard, kind: str) -> list[str]:
    path = FOLDER / f"{kind}-{shard.shard_id}"
    return path.read_text().splitlines() if path.exists() else []


def main(seconds: float, pace: float, seed: int) -> None:
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    writers = {shard: start(shard, chance.randrange(1 << 30)) for shard in SHARDS}
    zombies: list[tuple[float, int]] = []  # when it is killed, and who
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(pace * chance.uniform(0.05, 0.5))
        due = [each for each in zombies if each[0] <= time.monotonic()]
        for each in due:
            zombies.remove(each)
            kill(each[1])
        shard = chance.choice(SHARDS)
        old = writers[shard]
        if chance.random() < 0.5:
            kill(old)
            writers[shard] = start(shard, chance.randrange(1 << 30))
            done["kills"] += 1
        else:
            os.kill(old, signal.SIGSTOP)
            writers[shard] = start(shard, chance.randrange(1 << 30))
            time.sleep(pace * chance.uniform(0.05, 0.8))
            os.kill(old, signal.SIGCONT)
            zombies.append((time.monotonic() + pace * chance.uniform(0.2, 2.0), old))
            done["stops"] += 1
    for pid in (*writers.values(), *(pid for _, pid in zombies)):
        kill(pid)
    ends = {shard: 20 + max((int(text) for text in noted(shard, "upto")), default=0) for shard in SHARDS}
    last = {shard: start(shard, seed, ends[shard]) for shard in SHARDS}
    codes = {shard.shard_id: os.waitpid(pid, 0)[1] for shard, pid in last.items()}
    said = {
        **done,
        "codes": codes,
        "writes": sum(len(noted(shard, "upto")) for shard in SHARDS),
        "raised": Counter(line for shard in SHARDS for line in noted(shard, "raised")),
        "refused": [line for shard in SHARDS for line in noted(shard, "refused")],
        "ends": {shard.shard_id: ends[shard] for shard in SHARDS},
    }
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    signal.alarm(round(float(sys.argv[1]) + END_SECONDS))
    main(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
