"""A strict model of POSIX under a sink: a table after a power cut, at every call, whoever has taken over.

The table's folder is a real one, and shows the processes' view. Beside it the model keeps the durable part: a file's
content since its last fsync, a folder's names since its own. A power cut takes any of the rest: each name that was
made, moved or removed since, and each content, which is then empty or cut off. An fsync that fails has kept nothing,
and the file's content is gone from the cache with it: a later fsync of the same file succeeds and keeps nothing either.

A plot says who writes, dies, sleeps and wakes up until the power goes; `check` has a successor write on from each state
that it may leave. The model is as good as the syncs that it misses: `sites` are the places of a sink that sync, and
`shows` leaves one of them out and looks for the damage.
"""

from __future__ import annotations

import errno
import json
import linecache
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from fastkcl import Position
from fastkcl.spark.schema import SCHEMA
from fastkcl.spark.sinks import SinkError
from fastkcl.tables import storage
from fastkcl.tables.delta.actions import beginning, lines
from sink_helpers import SHARD, FakeSession, FakeWriter, Kind

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

    def sync(self, path: Path, *, fails: bool = False) -> Callable[[], None]:
        """What a sync of a file or a folder is when it happens."""
        self.look()
        number = path.stat().st_ino
        folder = self.folders.get(number)

        def keep() -> None:
            self.look()
            if folder is None:
                file = self.files[number]
                content = file.content
                if fails:
                    file.dropped = content
                elif content != file.dropped:
                    file.durable = content
            elif not fails:
                folder.durable = dict(folder.names)

        return keep

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
    opened_before: bool = False  # its end is counted from where it has opened the table
    at: dict[int, Callable[[], None]] = field(default_factory=dict)
    failing_sync: int | None = None
    late: bool = False  # each of its syncs happens when it asks for the next one
    waiting: Callable[[], None] = lambda: None
    calls: int = 0
    syncs: int = 0
    is_open: bool = False
    dead: bool = False

    @property
    def has_ended(self) -> bool:
        return self.ends_at is not None and self.is_open >= self.opened_before and self.calls >= self.ends_at

    def opened(self) -> None:
        if self.opened_before and not self.is_open:
            self.calls = 0
        self.is_open = True


class Stage:
    """Lets actors run over a disk, one inside of another, and counts their calls.

    Args:
        disk: that they share.
        left_out: the place whose syncs nobody does.
        cut_after: the number of such a sync, and of calls after it, at which whoever has left it out ends.
    """

    def __init__(self, disk: Disk, left_out: str | None = None, cut_after: tuple[int, int] | None = None) -> None:
        self.disk = disk
        self.left_out = left_out
        self.cut_after = cut_after
        self.missed = 0
        self.sites: set[str] = set()
        self.actors: list[Actor] = []

    def close(self) -> None:
        self.disk.close()
        storage.remove(self.disk.root)

    def opened(self) -> None:
        """Who acts has opened the table."""
        self.actors[-1].opened()

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
        if actor.has_ended:
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
        owners += [each for each in kind.places if each[0] is not storage and each[1] not in ("open", "move_on")]
        before = [(owner, name, getattr(owner, name)) for owner, name in owners]
        for owner, name, function in before:
            setattr(owner, name, self._sync if name in SYNCS else self._change(owner, function))
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

    def _sync(self, path: Path) -> None:
        site = _site(path)
        self.sites.add(site)
        actor = self.actors[-1]
        if site == self.left_out:
            self.missed += self.disk.root in (path / "x").parents
            if self.cut_after is not None and self.missed == self.cut_after[0]:
                actor.ends_at = actor.calls + self.cut_after[1]
            return
        if not self.step(path / "x"):
            return
        actor.syncs += 1
        actor.waiting()
        sync = self.disk.sync(path, fails=actor.syncs == actor.failing_sync)
        actor.waiting = sync if actor.late else lambda: None
        if not actor.late:
            sync()
        if actor.syncs == actor.failing_sync:
            raise OSError(errno.EIO, "input/output error", str(path))


def _site(path: Path) -> str:
    """The place that syncs: a function of a sink, what it calls of the storage, and whether that keeps a name."""
    frame: Any = sys._getframe(2)
    while frame.f_code.co_filename == storage.__file__:
        frame = frame.f_back
    call = re.search(r"storage\.(\w+\([\w./ ]+)", linecache.getline(frame.f_code.co_filename, frame.f_lineno))
    assert call is not None, frame
    return f"{frame.f_code.co_qualname}: {call[1]}), {'name' if path.is_dir() else 'content'}"


class Told:
    """What others rely on: how far the table is, which a daemon does not deliver again, and which table it is."""

    upto = 0
    id: str | None = None

    def tell(self, sink: Any, position: Position | None) -> None:
        self.id = _id_of(sink) or self.id
        if position is not None:
            self.upto = max(self.upto, int(position.sequence_number))


def _id_of(sink: Any) -> str | None:
    """The id of the table that a sink has opened."""
    head = getattr(sink, "_head", None)
    if head is None:
        found: str | None = sink._id
        return found
    return None if head.snapshot is None else str(head.snapshot.id)


def live(stage: Stage, kind: Kind, folder: Path, runs: Sequence[tuple[int, int]], told: Told) -> None:
    """Write runs as `SparkProcessor` has a sink write them: after a failure it asks how far the table is."""
    sink = kind.sink(folder)
    try:
        told.tell(sink, sink.open(SHARD))
    except OSError:
        return
    stage.opened()
    for first, last in runs:
        for _ in range(3):
            try:
                told.tell(sink, sink.write(kind.rows(first, last), SESSION))
            except OSError:
                try:
                    position = sink.open(SHARD)
                except OSError:
                    continue
                told.tell(sink, position)
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
    opened: bool = False
    """The cut, or the second's death, is counted from where its actor has opened the table."""
    failing_sync: int | None = None
    """Of the first."""
    late: bool = False
    """The first makes names before it syncs, as earlier versions and who restores files; nobody relies on it alone."""
    made: bool = False
    """Another engine has made the Delta table, has synced nothing, and has chosen that checkpoints replace entries."""
    cut_after: tuple[int, int] | None = None
    """The number of a sync that is left out, and of calls after it, at which the power goes."""


def play(kind: Kind, folder: Path, plot: Plot, left_out: str | None = None) -> tuple[Stage, Told]:
    """Let it happen in a folder that is there."""
    stage, told = Stage(Disk(folder), left_out, plot.cut_after), Told()
    table = folder / "data" / "table"
    if plot.made:
        make_elsewhere(table)

    def first() -> None:
        live(stage, kind, table, FIRST, Told() if plot.late else told)

    def second() -> None:
        live(stage, kind, table, SECOND, told)

    begins = Actor(plot.cut, failing_sync=plot.failing_sync, late=plot.late)
    with stage.under(kind):
        if plot.taken_over is None:
            begins.opened_before = plot.opened
            stage.run(begins, first)
        elif plot.sleeps:
            begins.at[plot.taken_over] = lambda: stage.run(Actor(plot.dies, plot.opened), second)
            stage.run(begins, first)
        else:
            begins.ends_at = plot.taken_over
            stage.run(begins, first)
            stage.run(Actor(plot.cut, plot.opened), second)
    return stage, told


def make_elsewhere(table: Path) -> None:
    """A Delta table without rows, as another engine makes it."""
    fields = [*SCHEMA.jsonValue()["fields"]]
    fields += [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("stream", "shard")]
    schema = json.dumps({"type": "struct", "fields": fields})
    options = {"delta.checkpointInterval": "1", "delta.logRetentionDuration": "interval 0 seconds"}
    log = table / "_delta_log"
    log.mkdir(parents=True)
    begins = [json.loads(line) for line in beginning(schema, ["stream", "shard"]).splitlines()]
    begins[-1]["metaData"]["configuration"] = options
    (log / f"{0:020d}.json").write_bytes(lines(begins))


def calls_of(kind: Kind, folder: Path) -> int:
    """Calls of a first that is left alone."""
    stage, actor = Stage(Disk(_made(folder))), Actor()
    with stage.under(kind):
        stage.run(actor, lambda: live(stage, kind, folder / "data" / "table", FIRST, Told()))
    stage.close()
    return actor.calls


def plots(kind: Kind, chance: random.Random, calls: int) -> Iterator[Plot]:
    """Without end: rounds, in each of which there is every call of the first, to be cut off, taken over, or slept at.

    Args:
        kind: of the sink.
        chance: decides the rest.
        calls: of a first that does all that it has to.
    """
    while True:
        for call in chance.sample(range(calls), calls):
            failing = chance.randrange(1, calls // 2)
            made = kind.is_delta and chance.random() < 0.5
            yield Plot(call, opened=made, made=made)
            yield Plot(chance.randrange(calls), failing_sync=failing)
            yield Plot(0, call, opened=True, made=made)
            yield Plot(chance.randrange(6), call, opened=True, late=True, made=made)
            yield Plot(chance.randrange(calls + 10), call)
            yield Plot(chance.randrange(6), call, opened=True, failing_sync=failing)
            later = chance.randrange(call, calls + 10)
            yield Plot(later, call + 1, sleeps=True, failing_sync=chance.choice([None, failing]))
            yield Plot(later, call + 1, sleeps=True, opened=True, dies=chance.randrange(6))


def check(kind: Kind, folder: Path, told: Told, *, goes_on: bool = True) -> str | None:
    """What is wrong with a table after a power cut; None if its next writer goes on as if nothing had happened.

    Args:
        kind: of the sink.
        folder: of the table.
        told: what was relied on before.
        goes_on: have a successor write; else it opens the table only.
    """
    try:
        sink: Any = kind.sink(folder)
        if (damage := _damage(kind, folder)) is not None:
            return damage
        position = sink.open(SHARD)
        there = 0 if position is None else int(position.sequence_number)
        if there < told.upto:
            return f"lost: {told.upto} were told to be in the table, {there} are"
        if told.id not in (None, now := _id_of(sink)):
            return f"its id was {told.id}, and now is {now}"
        if (seen := _numbers(kind, folder)) != list(range(1, there + 1)):
            return f"the position is {there}, and readers see {seen}"
        if not goes_on:
            return None
        for first, last in ((told.upto + 1, LAST - 2), (max(1, told.upto - 2), LAST)):
            if first <= last:
                sink.write(kind.rows(first, last), SESSION)
        if (seen := _numbers(kind, folder)) != list(range(1, LAST + 1)):
            return f"at the end readers see {seen}"
        if kind.inspect is not None and not (state := kind.inspect(folder)).ok:
            return f"inspect says {state}"
    except (SinkError, OSError) as error:
        return f"refused: {error!r}"
    except Exception as error:  # what deltalake raises
        return f"refused: {error!r}"
    return None


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _numbers(kind: Kind, folder: Path) -> list[int]:
    return sorted(int(record[2]) for record in kind.records(folder).elements())


def _damage(kind: Kind, folder: Path) -> str | None:
    if kind.inspect is None:
        return None
    try:
        state = kind.inspect(folder)
    except SinkError:  # there is none yet, or the next writer says so as well
        return None
    return None if state.ok else f"after the cut inspect says {state}"


def problems(
    kind: Kind,
    folder: Path,
    states: int,
    *,
    seed: int = 0,
    per_plot: int = 4,
    plotted: Iterable[Plot] | None = None,
    left_out: str | None = None,
    goes_on: bool = True,
) -> Iterator[str]:
    """What goes wrong in so many states that power cuts leave; each with its plot.

    Args:
        kind: of the sink.
        folder: a scratch folder that is there.
        states: at least so many are looked at.
        seed: of the plots and the states.
        per_plot: states, at the most.
        plotted: instead of `plots`.
        left_out: of `sites`: what if that one did not sync?
        goes_on: see `check`.
    """
    chance = random.Random(seed)
    checked = 0
    if plotted is None:
        plotted = plots(kind, chance, calls_of(kind, folder / "alone"))
    for number, plot in enumerate(plotted):
        stage, told = play(kind, _made(folder / f"{number}"), plot, left_out)
        for state in stage.disk.states(chance, per_plot):
            stage.disk.leave(state, left := folder / f"{number}-{checked}")
            if problem := check(kind, left / "data" / "table", told, goes_on=goes_on):
                yield f"{plot}: {problem}"
            storage.remove(left)
            checked += 1
        stage.close()
        if checked >= states:
            return


def sites(kind: Kind, folder: Path, *, seed: int = 0, count: int = 60) -> list[str]:
    """The places of a sink that sync, in so many plots."""
    found: set[str] = set()
    chance = random.Random(seed)
    for number, plot in enumerate(islice(plots(kind, chance, calls_of(kind, folder / "alone")), count)):
        stage, _ = play(kind, _made(folder / f"{number}"), plot)
        found.update(stage.sites)
        stage.close()
    return sorted(found)


def shows(kind: Kind, folder: Path, site: str) -> str | None:
    """What goes wrong if a place does not sync.

    First where the power goes soon after that; then at each call of a writer that is left alone; in takeovers; and
    where a table is opened that others made.
    """

    def looked(name: str, plotted: Iterable[Plot], states: int, per_plot: int) -> Iterator[str]:
        scratch = _made(folder / name)
        return problems(kind, scratch, states, per_plot=per_plot, plotted=plotted, left_out=site, goes_on=False)

    soon = [
        Plot(None, opened=made, made=made, cut_after=(number, calls))
        for number, made, calls in product((1, 2), (False, True) if kind.is_delta else (False,), range(6))
    ]
    calls = calls_of(kind, folder / "calls")
    alone = map(Plot, range(calls))
    schedule = list(islice(plots(kind, random.Random(0), calls), 1200))
    late = (plot for plot in schedule if plot.late)
    opened = (plot for plot in schedule if plot.opened and not plot.sleeps)
    return next(
        chain(
            looked("soon", soon, 999, 16),
            looked("alone", alone, 999, 4),
            looked("late", late, 300, 2),
            looked("opened", opened, 300, 2),
        ),
        None,
    )
