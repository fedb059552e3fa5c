"""A strict model of POSIX under a sink: what a power cut leaves of a table, at every call, whoever has taken over.

The table's folder is a real one, and shows what processes see. Beside it the model keeps what is durable: a file's
content since its last fsync, a folder's names since its own. A power cut takes any of the rest: each name that was
made, moved or removed since, and each content, which is then empty or cut off. An fsync that fails has kept nothing,
and the file's content is gone from the cache with it: a later fsync of the same file succeeds and keeps nothing either.

A plot says who writes, dies, sleeps and wakes up until the power goes; `check` has a successor write on from each state
that it may leave.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from fastkcl import Position
from fastkcl.spark.sinks import SinkError, storage
from fastkcl.spark.sinks.inspection import inspect_table
from sink_helpers import SHARD, FakeSession, FakeWriter, Kind, records_of, rows

SESSION: Any = FakeSession()
CHANGES = ("write_new", "link", "rename", "unlink", "remove", "make")
SYNCS = ("sync_file", "sync_folder")


class PowerCutError(BaseException):
    """The process that gets this is dead: it does nothing any more."""


@dataclass
class _File:
    descriptor: int  # keeps its number from another file
    durable: bytes = b""
    dropped: bytes | None = None  # content of which an fsync has failed

    @property
    def content(self) -> bytes:
        return Path(f"/proc/self/fd/{self.descriptor}").read_bytes()


@dataclass
class _Folder:
    descriptor: int
    durable: dict[str, int] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)


class Disk:
    """What is durable of a folder, where everything is at first.

    Args:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[int, _File] = {}
        self.folders: dict[int, _Folder] = {}
        self.look()
        for file in self.files.values():
            file.durable = file.content
        for folder in self.folders.values():
            folder.durable = dict(folder.names)

    def close(self) -> None:
        for each in (*self.files.values(), *self.folders.values()):
            os.close(each.descriptor)

    def look(self) -> None:
        """See what is there now."""
        for folder in self.folders.values():
            folder.names = {}
        for path, folders, files in os.walk(self.root):
            number = Path(path).stat().st_ino
            if number not in self.folders:
                self.folders[number] = _Folder(os.open(path, os.O_PATH))
            names = {name: Path(path, name).stat().st_ino for name in (*folders, *files)}
            self.folders[number].names = names
            for name in files:
                if names[name] not in self.files:
                    self.files[names[name]] = _File(os.open(Path(path, name), os.O_RDONLY))

    def sync_file(self, path: Path, *, fails: bool) -> None:
        self.look()
        file = self.files[Path(path).stat().st_ino]
        content = file.content
        if fails:
            file.dropped = content
        elif content != file.dropped:
            file.durable = content

    def sync_folder(self, path: Path) -> None:
        self.look()
        folder = self.folders[Path(path).stat().st_ino]
        folder.durable = dict(folder.names)

    def states(self, chance: random.Random, most: int) -> Iterator[dict[Any, Any]]:
        """What a power cut may leave, up to so many: for each name and each content that is not durable, what it is."""
        self.look()
        pending: dict[Any, list[Any]] = {}
        for number, folder in self.folders.items():
            for name in sorted(folder.names.keys() | folder.durable.keys()):
                ends = [folder.durable.get(name), folder.names.get(name)]
                if ends[0] != ends[1]:
                    pending[number, name] = ends
        for number, file in self.files.items():
            content = file.content
            if content != file.durable:
                pending[number] = [file.durable, content, content[: len(content) // 2]]
        seen = set()
        for choice in _choices(list(pending.values()), chance, most):
            if choice not in seen:
                seen.add(choice)
                yield {what: ends[index] for (what, ends), index in zip(pending.items(), choice, strict=True)}

    def leave(self, state: dict[Any, Any], target: Path) -> None:
        """Make a folder as a state has it."""
        made: dict[int, Path] = {}

        def fill(number: int, path: Path) -> None:
            path.mkdir()
            folder = self.folders[number]
            for name in sorted(folder.names.keys() | folder.durable.keys()):
                child = state.get((number, name), folder.durable.get(name))
                if child is None:
                    continue
                if child in self.folders:
                    fill(child, path / name)
                elif child in made:
                    os.link(made[child], path / name)
                else:
                    made[child] = path / name
                    made[child].write_bytes(state.get(child, self.files[child].durable))

        fill(self.root.stat().st_ino, target)


def _choices(pending: Sequence[Sequence[Any]], chance: random.Random, most: int) -> Iterator[tuple[int, ...]]:
    """All, if they are few; else nothing kept, everything, all but one, one alone, and some at random."""
    count = len(pending)
    if 2**count <= most:
        yield from product(range(2), repeat=count)
    else:
        yield (0,) * count
        yield (1,) * count
        ones = [
            tuple(int((at == one) == kept) for at in range(count)) for one in range(count) for kept in (True, False)
        ]
        chance.shuffle(ones)
        yield from ones[: most // 2]
    for _ in range(max(0, most - 2**count) if count else 0):
        yield tuple(chance.randrange(len(ends)) for ends in pending)


@dataclass
class Actor:
    """A process: it has its own count of calls, and its own end."""

    ends_at: int | None = None
    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    failing_sync: int | None = None
    calls: int = 0
    syncs: int = 0
    dead: bool = False


class Stage:
    """Lets actors run over a disk, one inside of another, and counts their calls."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.actors: list[Actor] = []

    def run(self, actor: Actor, life: Callable[[], None]) -> None:
        """Let it live until its end, or that of its calls."""
        self.actors.append(actor)
        try:
            life()
        except PowerCutError:
            pass
        finally:
            self.actors.pop()

    def step(self, path: Path) -> bool:
        """Before each call; whether it counts."""
        actor = self.actors[-1]
        if actor.dead:
            raise PowerCutError
        if self.disk.root not in path.parents:
            return False
        if actor.ends_at is not None and actor.calls >= actor.ends_at:
            actor.dead = True
            raise PowerCutError
        actor.calls += 1
        if happens := actor.at.pop(actor.calls, None):
            happens()
        return True

    @contextmanager
    def under(self, kind: Kind) -> Iterator[None]:
        """Be under each call of a sink that changes a table."""
        owners: list[tuple[Any, str]] = [(storage, name) for name in (*CHANGES, *SYNCS)]
        owners += [each for each in kind.places if each[0] is not storage and each[1] not in ("_open", "position")]
        before = [(owner, name, getattr(owner, name)) for owner, name in owners]
        for owner, name, function in before:
            setattr(owner, name, self._sync(name) if name in SYNCS else self._change(owner, function))
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)

    def _change(self, owner: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            paths = [each for each in arguments if isinstance(each, Path)]
            self.step(paths[-1] if owner is storage else self.disk.root / "x")
            result = function(*arguments, **options)
            if owner is FakeWriter:
                self.step(self.disk.root / "x")
            return result

        return call

    def _sync(self, name: str) -> Callable[[Path], None]:
        def call(path: Path) -> None:
            if self.step(path / "x"):
                actor = self.actors[-1]
                actor.syncs += 1
                fails = actor.syncs == actor.failing_sync
                if name == "sync_file":
                    self.disk.sync_file(path, fails=fails)
                elif not fails:
                    self.disk.sync_folder(path)
                if fails:
                    raise OSError(errno.EIO, "input/output error", str(path))

        return call


class Told:
    """How far a daemon may have been told that a table is: it does not deliver that again."""

    upto = 0

    def tell(self, position: Position | None) -> None:
        if position is not None:
            self.upto = max(self.upto, int(position.sequence_number))


def live(kind: Kind, folder: Path, runs: Sequence[tuple[int, int]], told: Told) -> None:
    """Write runs as `SparkProcessor` has a sink write them: after a failure it asks how far the table is."""
    sink = kind.sink(folder)
    try:
        told.tell(sink.open(SHARD))
    except OSError:
        return
    for first, last in runs:
        for _ in range(3):
            try:
                told.tell(sink.write(rows(first, last), SESSION))
            except OSError:
                try:
                    position = sink.open(SHARD)
                except OSError:
                    continue
                told.tell(position)
                if position is not None and int(position.sequence_number) >= last:
                    break
            else:
                break
        else:
            return


FIRST, SECOND = [(1, 3), (4, 6), (7, 8)], [(1, 4), (5, 7), (8, 10)]
LAST = 14


@dataclass(frozen=True)
class Plot:
    """The first writes; at a call it is killed, or sleeps while the second writes and wakes up; then the power goes.

    Numbers are of calls, each by its own count; None: it does all that it has to.
    """

    cut: int | None
    """Of whoever is last."""
    taken_over: int | None = None
    """The first's call at which the second begins."""
    sleeps: bool = False
    """The first is not killed there; the cut is its own."""
    dies: int | None = None
    """For a first that sleeps: the second's call at which that one is killed."""
    failing_sync: int | None = None
    """Of the first."""


def play(kind: Kind, folder: Path, plot: Plot) -> tuple[Disk, Told]:
    """Let it happen in a folder that is there."""
    disk, told = Disk(folder), Told()
    stage = Stage(disk)
    table = folder / "data" / "table"

    def first() -> None:
        live(kind, table, FIRST, told)

    def second() -> None:
        live(kind, table, SECOND, told)

    with stage.under(kind):
        if plot.taken_over is None:
            stage.run(Actor(plot.cut, failing_sync=plot.failing_sync), first)
        elif plot.sleeps:
            happens = {plot.taken_over: lambda: stage.run(Actor(plot.dies), second)}
            stage.run(Actor(plot.cut, happens, failing_sync=plot.failing_sync), first)
        else:
            stage.run(Actor(plot.taken_over, failing_sync=plot.failing_sync), first)
            stage.run(Actor(plot.cut), second)
    return disk, told


def calls_of(kind: Kind, folder: Path, runs: Sequence[tuple[int, int]]) -> int:
    """Calls of a first that is left alone."""
    stage, actor = Stage(Disk(folder)), Actor()
    with stage.under(kind):
        stage.run(actor, lambda: live(kind, folder / "data" / "table", runs, Told()))
    stage.disk.close()
    return actor.calls


def plots(chance: random.Random, calls: int, to_open: int) -> Iterator[Plot]:
    """Without end: rounds, in each of which there is every call of the first, to be cut off, taken over, or slept at.

    Args:
        chance: decides the rest.
        calls: of a first that does all that it has to.
        to_open: of a second until it knows how far the table is.
    """

    def soon() -> int:
        """A cut right after somebody has opened the table, or later."""
        return chance.choice([to_open + chance.randrange(6), chance.randrange(calls + 10)])

    while True:
        for call in chance.sample(range(calls), calls):
            failing = chance.randrange(1, calls // 2)
            yield Plot(call)
            yield Plot(chance.randrange(calls), failing_sync=failing)
            yield Plot(soon(), call)
            yield Plot(soon(), call, failing_sync=failing)
            later = chance.randrange(call, calls + 10)
            yield Plot(later, call + 1, sleeps=True, failing_sync=chance.choice([None, failing]))
            yield Plot(later, call + 1, sleeps=True, dies=soon())


def check(kind: Kind, folder: Path, upto: int) -> str | None:
    """What is wrong with a table after a power cut; None if its next writer goes on as if nothing had happened.

    Args:
        kind: of the sink.
        folder: of the table.
        upto: what the daemon does not deliver again.
    """
    try:
        sink = kind.sink(folder)
        position = sink.open(SHARD)
        there = 0 if position is None else int(position.sequence_number)
        if there < upto:
            return f"lost: {upto} were told to be in the table, {there} are"
        if (seen := _numbers(folder)) != list(range(1, there + 1)):
            return f"the position is {there}, and readers see {seen}"
        for first, last in ((upto + 1, LAST - 2), (max(1, upto - 2), LAST)):
            if first <= last:
                sink.write(rows(first, last), SESSION)
        if (seen := _numbers(folder)) != list(range(1, LAST + 1)):
            return f"at the end readers see {seen}"
        if not (state := inspect_table(folder)).ok:
            return f"inspect says {state}"
    except (SinkError, OSError) as error:
        return f"refused: {error!r}"
    except Exception as error:  # what deltalake raises
        return f"refused: {error!r}"
    return None


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _numbers(folder: Path) -> list[int]:
    return sorted(int(record[2]) for record in records_of(folder).elements())


def run_plots(kind: Kind, folder: Path, states: int, *, seed: int = 0, per_plot: int = 4) -> list[str]:
    """What goes wrong in so many states that power cuts leave; each with its plot."""
    chance = random.Random(seed)
    counts = []
    for runs in (FIRST, []):
        counts.append(calls_of(kind, _made(folder / f"alone-{len(runs)}"), runs))
    wrong, checked = [], 0
    for number, plot in enumerate(plots(chance, *counts)):
        before = _made(folder / f"{number}")
        disk, told = play(kind, before, plot)
        for state in disk.states(chance, per_plot):
            disk.leave(state, left := folder / f"{number}-{checked}")
            if problem := check(kind, left / "data" / "table", told.upto):
                wrong.append(f"{plot}: {problem}")
            storage.remove(left)
            checked += 1
        disk.close()
        storage.remove(before)
        if checked >= states:
            return wrong
    raise AssertionError("plots have no end")
