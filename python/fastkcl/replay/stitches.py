"""Plays the core of ProcessV1 for stitches: starts them, gives them payloads, and judges how they end.

    profile ─▶ payloads, base64 ─▶ Core ─▶ stitches ─▶ ack, fail ─▶ the next payloads
                                     └── heartbeats, routing, logs

Of each stitch at most `WINDOW` payloads are without an answer, so that none is dropped that would have been read.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from fastkcl._core import FromStitchMessage
from fastkcl.processv1.core import Core, CoreLog, InstanceReport, StitchSpec
from fastkcl.processv1.core.core import EXIT_SECONDS, HEARTBEAT_SECONDS
from fastkcl.replay.profiles import PROFILES

__all__ = ["StitchesOptions", "StitchesReport", "play_stitches"]

WINDOW = 500
CHANNEL = "replay"
"""The channel that payloads come in."""
_TURN_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class StitchesOptions:
    """How stitches are played for.

    Attributes:
        node: the core's name.
        heartbeat_seconds: between two heartbeats.
        messages: payloads for each stitch.
        profile: their kind.
        seed: of them.
        seconds: how long to go on after the start; None until all payloads are answered, and without payloads until
            `stop` of `play_stitches` is set.
        answer_seconds: how long a stitch may owe an answer.
        exit_code: with which stitches are asked to end.
        exit_seconds: how long they may take for that.
    """

    node: str = "node1"
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    messages: int = 0
    profile: str = "clickstream"
    seed: int = 0
    seconds: float | None = None
    answer_seconds: float = 300.0
    exit_code: int = 0
    exit_seconds: float = EXIT_SECONDS


@dataclass(frozen=True, slots=True)
class StitchesReport:
    """How it went.

    Attributes:
        stitches: in the order of their start.
        problems: the stitches' breaches of the protocol.
        seconds: from the first start to the last end.
    """

    stitches: tuple[InstanceReport, ...]
    problems: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether there was no problem."""
        return not self.problems

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"ok": self.ok, **asdict(self)}


@dataclass(slots=True)
class _Player:
    """The messages of one stitch that it has not answered."""

    instance_id: str
    payloads: list[str]
    given: int = 0
    owed: set[int] = field(default_factory=set)
    answered_at: float = 0.0
    problems: list[str] = field(default_factory=list)
    health: str = "green"

    @property
    def done(self) -> bool:
        return bool(self.problems) or (self.given == len(self.payloads) and not self.owed)


def play_stitches(
    specs: Sequence[StitchSpec],
    options: StitchesOptions,
    on_log: CoreLog = lambda _instance, _line: None,
    stop: threading.Event | None = None,
) -> StitchesReport:
    """Play the core for stitches until all payloads are answered, or the time is over.

    Args:
        specs: the stitches.
        options: how.
        on_log: called with their logs, and the changes of their health.
        stop: ends it early.

    Raises:
        OSError: a program cannot be started.
        ValueError: an id that is not an id, or comes twice.
    """
    stop = stop or threading.Event()
    texts = [
        base64.b64encode(each).decode() for each in PROFILES[options.profile].payloads(options.messages, options.seed)
    ]
    players = {spec.instance_id: _Player(spec.instance_id, texts) for spec in specs}
    lock = threading.Lock()

    def answered(instance_id: str, message: FromStitchMessage) -> None:
        if message.command in ("ack", "fail"):
            player = players[instance_id]
            with lock:
                player.owed.discard(message.id)
                player.answered_at = time.monotonic()

    begun = time.monotonic()
    with Core(options.node, on_log=on_log, on_message=answered, heartbeat_seconds=options.heartbeat_seconds) as core:
        for spec in specs:
            core.start(spec)
            players[spec.instance_id].answered_at = time.monotonic()
        core.beat()
        end = begun + options.seconds if options.seconds is not None else None
        while not stop.wait(_TURN_SECONDS):
            _look(core, players, on_log, options)
            for player in players.values():
                _give(core, player, lock)
            done = all(player.done for player in players.values()) and (options.messages > 0 or end is not None)
            if (end is None and done) or (end is not None and time.monotonic() >= end):
                break
        reports = core.stop(options.exit_code, options.exit_seconds)
    problems = [
        f"{player.instance_id}: {problem}"
        for player in players.values()
        for problem in [*player.problems, *_problems(reports[player.instance_id], player, options)]
    ]
    return StitchesReport(tuple(reports[spec.instance_id] for spec in specs), tuple(problems), time.monotonic() - begun)


def _give(core: Core, player: _Player, lock: threading.Lock) -> None:
    """Give a stitch messages, as its window has room."""
    with lock:
        while not player.problems and player.given < len(player.payloads) and len(player.owed) < WINDOW:
            number = core.send(player.instance_id, player.payloads[player.given], CHANNEL)
            if number is None:  # others have filled its queue
                return
            player.owed.add(number)
            player.given += 1


def _look(core: Core, players: dict[str, _Player], on_log: CoreLog, options: StitchesOptions) -> None:
    """Note changes of health, ends that nobody asked for, and answers that are owed for too long."""
    for name, report in core.reports().items():
        player = players[name]
        if report.health != player.health:
            player.health = report.health
            on_log(name, f"health: {report.health}, {report.heartbeats_missed} heartbeats missed")
        if player.problems:
            continue
        if not report.running:
            player.problems.append(f"ended by itself with {report.exit_code}")
        elif player.owed and time.monotonic() - player.answered_at > options.answer_seconds:
            player.problems.append(f"owes answers for more than {options.answer_seconds:g} s")


def _problems(report: InstanceReport, player: _Player, options: StitchesOptions) -> list[str]:
    """The problems of a stitch in the end."""
    checks: list[tuple[bool, Callable[[], str]]] = [
        (bool(player.owed), lambda: f"{len(player.owed)} of {player.given} payloads were never answered"),
        (report.failed > 0, lambda: f"failed {report.failed} messages"),
        (report.bad_frames > 0, lambda: f"wrote {report.bad_frames} frames that cannot be read"),
        (report.dropped > 0, lambda: f"did not read {report.dropped} messages in time"),
        (report.health == "red", lambda: f"missed {report.heartbeats_missed} heartbeats"),
        (
            not player.problems and report.exit_code != options.exit_code & 0xFF,
            lambda: f"ended with {report.exit_code}, and was asked for {options.exit_code}",
        ),
    ]
    return [say() for wrong, say in checks if wrong]
