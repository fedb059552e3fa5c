"""The same programs under the same daemon, with amazon_kclpy and with ours: equal calls, values, standard output.

The programs are in children/kclpy, written for amazon_kclpy and unchanged. Ours runs them with ``fastkcl run``, and
once more with the name replaced in their text, which is all that a migration takes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import fastkcl.kclpy
import pytest
from fastkcl import _core
from fastkcl.replay.profiles import line
from kcl_helpers import (
    INITIALIZE,
    LEASE_LOST,
    SHARD_ENDED,
    SHUTDOWN_REQUESTED,
    TIMEOUT,
    checkpoint_reply,
    status,
)
from kclpy_helpers import Program, Shard, captured, converse, environment
from paths import DATA, PROGRAMS
from waiting import wait_until, wait_until_idle

CAPTURES = DATA / "kcl-multilang"
OURS = Path(fastkcl.kclpy.__file__).parent

# St. John's and Lord Howe: odd offsets, summer time in either half of the year. Spelt out, so that no tzdata is needed.
ZONES = ("NST3:30NDT,M3.2.0,M11.1.0", "LHST-10:30LHDT-11,M10.1.0,M4.1.0")

# ---- the lines ----------------------------------------------------------------------------------------------------

REFUSALS = ("ThrottlingException", None, "KinesisClientLibDependencyException", "ThrottlingException", "\u00fc\u2028'")


def odd_lines(seed: int) -> Iterator[bytes]:
    """Batches with the edges of every column, as a daemon writes them and as Python's json does."""
    random = Random(f"kclpy differential {seed}")
    characters = [*map(chr, range(0x30)), *'"\\/\x7f\x85\u00fc\u2028\ufeff\uffff\U0010ffff']
    for count in (0, 1, 2, 3, 40, 200):
        sequence_numbers = sorted(random.randrange(10 ** random.randrange(1, 57)) for _ in range(count))
        columns: dict[str, list[Any]] = {
            "data": [random.randbytes(random.choice((0, 1, 2, 3, 4, 57, 500))) for _ in range(count)],
            "partitionKey": ["".join(random.choices(characters, k=random.randrange(1, 40))) for _ in range(count)],
            "sequenceNumber": [str(number) for number in sequence_numbers],
            "subSequenceNumber": [random.choice((0, 1, 2**31, 2**63 - 1)) for _ in range(count)],
            # Milliseconds that no float holds exactly, both sides of the epoch, and all of a year with summer time.
            "approximateArrivalTimestamp": [
                random.choice((0, -1, 1, 999, 4102444799999, 1700000000000 + random.randrange(31557600000)))
                for _ in range(count)
            ],
        }
        behind = random.choice((0, 1, 2**53 + 1))
        yield _core.encode_process_records(*columns.values(), millis_behind_latest=behind)
        records = [
            dict(zip(columns, values, strict=True), data=_core.encode_base64(values[0]).decode(), action="record")
            for values in zip(*columns.values(), strict=True)
        ]
        message = {"millisBehindLatest": behind, "records": records, "action": "processRecords"}
        yield json.dumps(message, ensure_ascii=random.random() < 0.5).encode() + b"\n"


def profiled(name: str, records: int) -> Shard:
    batches = [line(name, seed, records, first_sequence=seed * records) for seed in (1, 2)]
    return Shard(f"profile-{name}", [INITIALIZE, *batches, SHUTDOWN_REQUESTED], [])


CAPTURED = [captured(path) for path in sorted(CAPTURES.glob("*.in.jsonl*"))]
GENERATED = [
    Shard(
        "odd",
        [INITIALIZE, *odd_lines(1), SHUTDOWN_REQUESTED, SHARD_ENDED],
        [checkpoint_reply(error, "1") for error in REFUSALS],
    ),
    Shard("odd-lease-lost", [INITIALIZE, *odd_lines(2), SHUTDOWN_REQUESTED, LEASE_LOST], []),
    profiled("keys", 100),
    profiled("iot", 100),
    profiled("tiny", 100),
]

# One process may well serve them all: neither package asks what came before.
ALL_CAPTURES = Shard(
    "all-captures",
    [request for shard in CAPTURED for request in shard.requests],
    [reply for shard in CAPTURED for reply in shard.replies],
)

# ---- the programs -------------------------------------------------------------------------------------------------

# These three look at everything, so they get every shard as a daemon serves it, in a process of its own.
OBSERVERS = ("version1", "version2", "version3")
OTHERS = (
    "retries",
    "fails_in_records",
    "fails_at_the_end",
    "exits",
    "prints",
    "keeps",
    "workers",
    "subclasses",
    "mocks",
    "traces",
    "text_files",
    "unit_tests",
)
PLAYS = [
    *((program, shard) for program in OBSERVERS for shard in [*CAPTURED, *GENERATED]),
    *((program, shard) for program in OTHERS for shard in [ALL_CAPTURES, *GENERATED[:2]]),
]


class Played(NamedTuple):
    calls: list[Any]
    """What the program has written down."""
    stdout: bytes
    exit: int
    errors: str
    """Standard error without the frames and the name of the package, and without our own reports."""
    reports: list[str]


class Player(NamedTuple):
    """How programs are started, and whose modules they use."""

    command: list[str]
    variables: dict[str, str]
    modules: Path
    programs: Path = PROGRAMS / "kclpy"

    def play(self, name: str, shard: Shard, zone: str, log: Path) -> Played:
        with self.start(name, log, zone) as child:
            ended = converse(child, shard)
        (what, file), *calls = map(json.loads, log.read_text().splitlines())
        assert what == "modules of"
        assert Path(file).is_relative_to(self.modules)
        text = frames_in(self.modules).sub("", ended.stderr).replace(str(self.programs), "")
        text = text.replace("fastkcl.kclpy.", "amazon_kclpy.")
        return Played(calls, ended.stdout, ended.exit, REPORT.sub("", text), REPORT.findall(text))

    def start(self, name: str, log: Path, zone: str) -> Program:
        command = [*self.command, str(self.programs / f"{name}.py"), str(log)]
        return Program(command, environment(TZ=zone, LC_ALL="C.UTF-8", **self.variables))


@pytest.fixture
def original(original_python: Path) -> Player:
    return Player([str(original_python)], {}, original_python.parents[1])


def ours(*command: str) -> Player:
    return Player([sys.executable, *command], {"PYTHONPATH": str(OURS.parents[1])}, OURS)


RUN = ours("-m", "fastkcl", "run")


def test_the_newest_release_has_the_same_modules(original_python: Path, newest_source: Path) -> None:
    """What these tests say of one release is true of the other."""
    (installed,) = original_python.parents[1].glob("lib/python3*/site-packages")
    sources = {path.relative_to(newest_source) for path in newest_source.glob("amazon_kclpy/**/*.py")}
    assert {path.relative_to(installed) for path in installed.glob("amazon_kclpy/**/*.py")} == sources
    for path in sorted({*sources, Path("samples/amazon_kclpy_helper.py"), Path("samples/sample.properties")}):
        assert (newest_source / path).read_bytes() == (installed / path).read_bytes(), path


@pytest.mark.parametrize(("name", "shard"), [pytest.param(*play, id=f"{play[0]}-{play[1].name}") for play in PLAYS])
def test_a_program_sees_and_says_the_same(name: str, shard: Shard, original: Player, tmp_path: Path) -> None:
    zone = ZONES[PLAYS.index((name, shard)) % 2]
    compare(name, *play_both(name, shard, zone, original, RUN, tmp_path))


@pytest.mark.parametrize("name", [*OBSERVERS, *OTHERS])
def test_a_program_with_the_name_replaced_sees_and_says_the_same(name: str, original: Player, tmp_path: Path) -> None:
    migrated = tmp_path / "migrated"
    migrated.mkdir()
    for file in (PROGRAMS / "kclpy").glob("*.py"):
        (migrated / file.name).write_text(file.read_text().replace("amazon_kclpy", "fastkcl.kclpy"))
    compare(name, *play_both(name, GENERATED[0], ZONES[0], original, ours()._replace(programs=migrated), tmp_path))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        *(("version3", [number]) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)),
        ("handles_signals", [*[signal.SIGHUP] * 10, signal.SIGTERM]),
    ],
    ids=["interrupted", "terminated", "hung up", "own handlers"],
)
def test_signals_do_the_same(name: str, numbers: list[signal.Signals], original: Player, tmp_path: Path) -> None:
    """At once, while the program waits for a line; the last one ends it."""
    ends = []
    for player in (original, RUN):
        log = tmp_path / "log.jsonl"
        log.unlink(missing_ok=True)
        with player.start(name, log, ZONES[0]) as child:
            child.daemon.send(INITIALIZE)
            assert child.daemon.receive() == status("initialize")
            for count, number in enumerate(numbers):
                await_calls(log, "hang up", count)
                wait_until_idle(child.process.pid, looks=6 + (count + 3) % 5)
                child.process.send_signal(number)
            code = child.process.wait(TIMEOUT)
            ended = child.end()
        _, *calls = log.read_text().splitlines()
        ends.append((code, ended.stdout, ended.stderr.count("KeyboardInterrupt"), calls))
    assert ends[0] == ends[1]


def await_calls(log: Path, what: str, count: int) -> None:
    """Wait until a program has noted that so often."""
    wait_until(
        lambda: log.read_text().count(what) >= count, f"{what!r}, {count} times", seen=lambda: log.read_text()[-2000:]
    )


def play_both(name: str, shard: Shard, zone: str, one: Player, other: Player, folder: Path) -> list[Played]:
    """Side by side, to save time."""
    with ThreadPoolExecutor(2) as threads:
        plays = [
            threads.submit(player.play, name, shard, zone, folder / f"{number}.jsonl")
            for number, player in enumerate((one, other))
        ]
        return [play.result() for play in plays]


def compare(name: str, original: Played, ours: Played) -> None:
    difference = first_difference(original.calls, ours.calls)
    assert difference is None
    stdout, moved = protocol_and_prints(original.stdout) if name == "prints" else (original.stdout, "")
    difference = first_difference(stdout.splitlines(keepends=True), ours.stdout.splitlines(keepends=True))
    assert difference is None
    assert ours.exit == original.exit
    assert ours.errors == original.errors + moved
    skips, warnings = ([line for line in ours.reports if f"fastkcl: {kind}: " in line] for kind in ("skip", "warning"))
    assert len(skips) == original.errors.count("Caught exception from action dispatch: ")
    assert all(" returned without a successful checkpoint: " in warning for warning in warnings)
    assert original.reports == []


def first_difference(one: list[Any], other: list[Any]) -> tuple[int, str, str] | None:
    """Place and both values; pytest would compare megabytes for minutes."""
    for place in range(max(len(one), len(other))):
        pair = [values[place] if place < len(values) else "nothing" for values in (one, other)]
        if pair[0] != pair[1]:
            texts = list(map(repr, pair))
            same = len(os.path.commonprefix(texts))
            return (place, *(text[max(same - 80, 0) : same + 120] for text in texts))
    return None


def protocol_and_prints(stdout: bytes) -> tuple[bytes, str]:
    """What the original's program prints stands among its messages; with ours, on standard error."""
    prints = re.compile(rb"(?:BEFORE|DURING|AFTER)[^\n.]*(?:\.\n)?")
    return prints.sub(b"", stdout), b"".join(prints.findall(stdout)).decode()


REPORT = re.compile(r"^fastkcl: (?:skip|warning): .*\n", re.MULTILINE)


def frames_in(folder: Path) -> re.Pattern[str]:
    """Frames of a traceback, also inside of an exception group."""
    file = re.escape(f'File "{folder}/')
    return re.compile(rf"^(?:  \| )?  {file}.*\n(?:(?:  \| )?    .*\n)+", re.MULTILINE)
