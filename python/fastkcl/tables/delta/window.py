"""What entries of a Delta log do together: the span that a checkpoint stands for, and those before it.

A checkpoint is compared with it: `checkpoint_comparison`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import unquote

from fastkcl import Position
from fastkcl.tables.base import Shard, SinkError, parse_json
from fastkcl.tables.delta.actions import Json, position_by
from fastkcl.tables.delta.checkpoint_content import Content, content
from fastkcl.tables.delta.entry_content import (
    FilesLost,
    Lost,
    damage,
    has_nothing,
    positions_left,
    sound,
    told_positions,
)
from fastkcl.tables.delta.log import MOST_BYTES, checkpoint_version, entry_key, versions, whole_checkpoint
from fastkcl.tables.delta.snapshot import (
    OURS,
    checked_metadata,
    checked_protocol,
    continues,
    does_nothing,
    makes_a_table,
    whole,
)
from fastkcl.tables.folders import position_text
from fastkcl.tables.posix_store import PosixStore
from fastkcl.tables.store import Store

__all__ = ["Contradiction", "Span", "Window", "entries_before", "shards_of"]

_MOST_ENTRIES: Final = 1000
"""Before a checkpoint, which are compared with it. deltalake makes one after 100 commits, Spark after 10."""
_COMPARED: Final = (b'"txn"', b'"fastkcl"', b'"CREATE TABLE"', b'"add"', b'"remove"', b'"metaData"')
"""What lines of older entries have that count."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class Contradiction(NamedTuple):
    """What a checkpoint has otherwise than the log."""

    why: str
    is_certain: bool
    """False: the log before it may be what is wrong."""
    files: Sequence[str] = ()
    """Of the checkpoint that has it so."""
    is_of_nothing: bool = False
    """Whether it was made over an entry of 0 bytes, or over one that has lost files."""


class Span(NamedTuple):
    """The entries that a checkpoint stands for."""

    older_files: Sequence[str]
    """Of the checkpoint before it."""
    there: Sequence[int]
    """Versions without a gap, after that checkpoint and up to this one."""
    goes_back: bool
    """Whether that is all of them."""

    @classmethod
    def of(cls, names: Sequence[str], version: int) -> Span:
        """Of the checkpoint of a version; `names` are of all files in the log."""
        older, older_files = whole_checkpoint([name for name in names if -1 < checkpoint_version(name) < version])
        there = _up_to(version, [each for each in versions(names) if older < each <= version])
        goes_back = len(there) == version - older if older_files else there[:1] == [0]
        return cls(older_files, there, goes_back)

    def before(self, store: Store) -> Content | None:
        """What the table was before these entries; None if they do not go back to a checkpoint or the beginning.

        Raises:
            FileNotFoundError: a file of the checkpoint is not there.
            DamageError: one is damaged.
        """
        if not self.goes_back:
            return None
        return content(store, self.older_files) if self.older_files else Content({}, {}, {})


@dataclass(slots=True)
class Window:
    """What entries do together, after the checkpoint before them if they go back to it."""

    before: Content | None
    earlier: Mapping[str, int] = field(default_factory=dict)
    """Transactions of still earlier entries, which the checkpoint before them should have."""
    transactions: dict[str, int] = field(default_factory=dict)
    kept: dict[str, int] = field(default_factory=dict)
    """Those that the entries have, and not only tell of."""
    sure: dict[str, int] = field(default_factory=dict)
    """Those since the newest entry whose content may be gone."""
    protocol: Mapping[str, Json] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)
    """Whether the last entry that names a file adds it."""
    metadata: Mapping[str, Json] = field(default_factory=dict)
    has_metadata: bool = False
    """Whether an entry has it."""
    copied: str | None = None
    """The entry that does not continue from those before it, in words."""
    hollow: dict[int, Lost] = field(default_factory=dict)
    """The entries that do less than they did, in order: deltalake and others do not see it."""
    is_emptied: bool = False
    """Whether one of these has 0 bytes, or blanks alone: it is not known whose position is lost."""
    is_mended: bool = False
    torn: str | None = None
    """An entry that tells of another position than it has, in words."""

    @classmethod
    def of(
        cls, store: Store, there: Sequence[int], before: Content | None, earlier: Mapping[str, int] | None = None
    ) -> Window:
        """Of the entries of these versions.

        Args:
            store: the table's.
            there: versions without a gap.
            before: what the table was before them; None if they do not go back to a checkpoint or the beginning.
            earlier: transactions of entries before them.

        Raises:
            FileNotFoundError: one is not there.
            ValueError: one is damaged.
        """
        found = cls(before, earlier or {})
        if before is not None:
            found.metadata, found.protocol = before.metadata, before.protocol
        for version in there:
            text = store.read(entry_key(version), MOST_BYTES)
            if text is None:
                raise FileNotFoundError(entry_key(version))
            lost = _lost(text, entry_key(version))
            if lost is not None:
                found.hollow[version] = lost
            found.is_emptied |= has_nothing(text)
            found.take_entry(text.splitlines(), entry_key(version), lost, is_mended=does_nothing(text))
        return found

    def take_entry(self, lines: Sequence[bytes], name: str, lost: Lost | None, *, is_mended: bool) -> None:
        """Take in an entry, or those of its lines that count.

        Args:
            lines: of the entry.
            name: the entry's.
            lost: what is wrong with it; of a damaged entry only sound actions are taken.
            is_mended: whether somebody has replaced it by one that does nothing.

        Raises:
            ValueError: it cannot be taken in, though nothing is known to be wrong.
        """
        files: dict[str, bool] = {}
        is_mended |= _is_unknown(lost)
        try:
            actions = [parse_json(line) if line.strip() else {} for line in lines] if lost is None else sound(lines)
            self.copied = self.copied or self._copied(actions, name)
            self.is_mended = self.is_mended or is_mended
            for action in actions:
                self._take(action, files)
            kept = {found["appId"]: found["version"] for action in actions if (found := action.get("txn"))}
            if any(not told_positions(_told(action)).items() <= kept.items() for action in actions):
                self.torn = f"{name} tells of a position that its application transactions do not have"
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"{name}: {error!r}") from error
        self.files |= files

    def _copied(self, actions: Sequence[Json], name: str) -> str | None:
        """What is wrong with the place of an entry that is about to be taken in."""
        if name != entry_key(0) and any(makes_a_table(action.get("commitInfo") or {}) for action in actions):
            return f"{name} makes the table, and is not its first entry: it is a copy of another entry"
        for each in (each for action in actions for each in _told(action)):
            match each:
                case {"stream": str(stream), "shard": str(shard_id), "after": str(after)}:
                    try:
                        at = self._position(Shard(stream, shard_id))
                    except SinkError:  # a part of it is before these entries
                        continue
                    if not continues(each, at, is_mended=self.is_mended):
                        return (
                            f"{name} continues {stream}, {shard_id} from {after[:200]}, and the entries before it"
                            f" end at {position_text(at)}: it is a copy of another entry"
                        )
        return None

    def _take(self, action: Json, files: dict[str, bool]) -> None:
        """Take in an action of an entry; the file whose rows it deletes may be removed and added in any order."""
        if found := told_positions(_told(action)):  # a transaction of it may be lost
            self.transactions |= found
            self.sure |= found
        if (found := action.get("txn")) and found["appId"].startswith(OURS):
            version = whole(found["version"])
            self.transactions[found["appId"]] = self.kept[found["appId"]] = self.sure[found["appId"]] = version
        if found := action.get("add"):
            files[unquote(found["path"])] = True
        if found := action.get("remove"):
            files.setdefault(unquote(str(found["path"])), False)
        if found := action.get("metaData"):
            self.metadata, self.has_metadata = checked_metadata(found), True
        if found := action.get("protocol"):
            self.protocol = checked_protocol(found)

    def _position(self, shard: Shard) -> Position | None:
        before = {} if self.before is None else self.before.transactions
        return position_by({**before, **self.earlier, **self.transactions}.get, shard, "")

    def shards(self) -> set[Shard]:
        """Those that have a position, or a part of it."""
        before = {} if self.before is None else self.before.transactions
        return shards_of({**before, **self.earlier, **self.transactions})

    def of_positions(self, found: Content, where: str) -> Contradiction | None:
        """Which position a checkpoint has otherwise."""
        if _FORGETS in (found.metadata.get("configuration") or {}):
            return None
        for shard in sorted(self.shards(), key=lambda each: (each.stream, each.shard_id)):
            name = f"the position of {shard.stream}, {shard.shard_id}"
            try:
                wanted = self._position(shard)
            except SinkError:  # of the older checkpoint
                continue
            try:
                there = position_by(found.transactions.get, shard, where)
            except SinkError:
                return Contradiction(f"it has a part of {name}", is_certain=True)
            if wanted is None or there == wanted:
                continue
            why = f"{name} is {position_text(there)} in it, and {position_text(wanted)} in the log before it"
            return Contradiction(why, is_certain=False)
        return None

    def of_metadata(self, found: Content) -> Contradiction | None:
        """What of the metadata a checkpoint has otherwise."""
        for name in ("schemaString", "partitionColumns", "configuration") if self.metadata else ():
            if _comparable(self.metadata, name) != _comparable(found.metadata, name):
                return Contradiction(f"its {name} is another one than in the log before it", is_certain=False)
        return None


def entries_before(store: Store, names: Sequence[str], first: int, count: int) -> Window:
    """Positions and files in the entries that end before a version, up to one that continues from no other; on a disk.

    Args:
        store: the table's.
        names: of all files in the log.
        first: the version.
        count: of the entries from there on, which were looked at.
    """
    found, hollow = Window(None), dict[int, Lost]()
    if not isinstance(store, PosixStore):  # elsewhere each one is a request
        return found
    for version in _up_to(first - 1, [each for each in versions(names) if each < first], _MOST_ENTRIES - count):
        text = store.read(entry_key(version), MOST_BYTES)
        try:
            if text is None:
                raise ValueError("a clean-up")
            lost = _lost(text, entry_key(version))
            if lost is not None:
                hollow[version] = lost
            if is_mended := does_nothing(text) or _is_unknown(lost):
                found.sure.clear()
                found.files.clear()
                found.metadata = {}
            lines = [line for line in text.splitlines() if any(key in line for key in _COMPARED)]
            found.take_entry(lines, entry_key(version), lost, is_mended=is_mended)
        except (ValueError, SinkError):
            # What was before is not wanted any more; the next ones are looked at by themselves.
            found = Window(None, sure={} if text is None else positions_left(text))
        if found.copied is not None:
            break
    found.hollow = hollow
    return found


def _lost(text: bytes, name: str) -> Lost | None:
    """What an entry has lost, of which readers see nothing; None for a sound one.

    Raises:
        ValueError: it is damaged otherwise.
    """
    why = damage(text)
    if why is None or isinstance(why, Lost):
        return why
    raise ValueError(f"{name}: damaged, {why}")


def _is_unknown(lost: Lost | None) -> bool:
    """Whether an entry may have had a position of which nothing is left."""
    return lost is not None and not isinstance(lost, FilesLost)


def _up_to(version: int, there: Sequence[int], most: int = _MOST_ENTRIES) -> list[int]:
    """The versions without a gap that end with this one, at most so many."""
    found: list[int] = []
    for each in reversed(there[-most:] if most > 0 else ()):
        if each != version - len(found):
            break
        found.append(each)
    return found[::-1]


def _told(action: Mapping[str, Json]) -> list[Json]:
    """What an entry of ours tells of itself, for each shard; nothing if this is another action."""
    found = (action.get("commitInfo") or {}).get("fastkcl") or []
    return found if isinstance(found, list) else [found]


def _comparable(metadata: Mapping[str, Json], name: str) -> Json:
    return parse_json(metadata[name]) if name == "schemaString" else metadata.get(name) or None


def shards_of(transactions: Mapping[str, int]) -> set[Shard]:
    """Of which transactions have a position, or a part of it."""
    found = set()
    for name in transactions:
        match name.removeprefix(OURS).split("/"):
            case [stream, shard_id, *_]:
                found.add(Shard(unquote(stream), unquote(shard_id)))
    return found
