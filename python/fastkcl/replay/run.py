"""The replay itself: plans made, lines encoded, one thread per shard, and a report in the end."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from fastkcl.replay.child import StderrRelay
from fastkcl.replay.options import ReplayOptions
from fastkcl.replay.plan import ShardPlan, make_plans
from fastkcl.replay.player import ShardPlayer
from fastkcl.replay.report import Progress, Report
from fastkcl.replay.session import Hub
from fastkcl.replay.sources import Source

__all__ = ["ReplayError", "replay"]

_TURN: Final = 0.25  # seconds after which the main thread looks whether a signal has come


class ReplayError(Exception):
    """The replay cannot be run at all, e.g. as the command does not exist."""


def replay(
    command: Sequence[str],
    source: Source,
    options: ReplayOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Play the daemon for children of `command`, one for each shard at a time, until every shard's script is done.

    Args:
        command: program and arguments of a child; no shell.
        source: of the shards' records.
        options: how it is played.
        progress: called from the shards' threads, so it has to be quick and safe for that.

    Returns:
        The results. Problems of the children are in it, not raised.

    Raises:
        SourceError: the source cannot be used.
        ReplayError: the command cannot be started.
        KeyboardInterrupt: after all children have been ended.
    """
    options = options or ReplayOptions()
    if not command:
        raise ReplayError("no command: give the program that is to be started for each shard")
    if shutil.which(command[0]) is None:
        raise ReplayError(f"{command[0]}: no such program, or not executable")
    plans = make_plans(source, options)
    if not plans:
        raise ReplayError("the source has no shard")
    for fault in options.faults:
        if fault.shard is not None and fault.shard >= len(plans):
            raise ReplayError(f"{fault}: there is no shard {fault.shard}; the last one is {len(plans) - 1}")
    hub = Hub()
    relay = StderrRelay(options.on_stderr, prefix=options.prefix_stderr)
    players = [ShardPlayer(plan, command, options, hub, relay, progress or _ignore) for plan in plans]
    try:
        budget = options.preencode_bytes
        for player in players:
            budget -= player.encode_ahead(budget)
        begun = time.monotonic()
        _play(players, plans, hub)
        seconds = time.monotonic() - begun
    finally:
        hub.close()
        relay.close()
    for player in players:
        if isinstance(player.failure, OSError):
            raise ReplayError(f"{command[0]}: {player.failure.strerror or player.failure}") from player.failure
        if player.failure is not None:
            raise player.failure
    streams = ", ".join(dict.fromkeys(plan.stream for plan in plans))
    return Report(source.description, list(command), streams, seconds, [player.report for player in players])


def _ignore(_progress: Progress) -> None:
    return


def _play(players: Sequence[ShardPlayer], plans: Sequence[ShardPlan], hub: Hub) -> None:
    threads = [
        threading.Thread(target=player.run, args=([players[parent] for parent in plan.parents],), name=plan.label)
        for player, plan in zip(players, plans, strict=True)
    ]
    try:
        for thread in threads:
            try:
                thread.start()
            except RuntimeError as error:
                raise ReplayError(f"{len(players)} shards are too many: {error}") from error
        _wait(players)
    except BaseException:  # Ctrl-C above all: the children are in their own groups and did not get it
        hub.stop()
        _wait(player for player, thread in zip(players, threads, strict=True) if thread.ident is not None)
        raise
    for thread in threads:
        thread.join()


def _wait(players: Iterable[ShardPlayer]) -> None:
    # Not by joining threads: in Python 3.11 an interrupted join makes a running thread look ended (bpo-45274).
    # In turns: a signal that comes right before a wait, or to another thread, does not end it.
    for player in players:
        while not player.done.wait(_TURN):
            pass
