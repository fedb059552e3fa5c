"""The keys that a MultiLangDaemon understands, by generation, and their valid values.

The daemon takes its configuration from a properties file and is silent about a key that it does not know; where it
cannot read a number it goes on with its default. So keys and values are checked here first. The facts are in keys.json,
which ``tools/daemon_keys.py`` derives from the classes in the daemon's jars.

A key may be written in any case and with any separator; these are one key:

    failoverTimeMillis    failover-time-millis    failover_time_millis    FAILOVER_TIME_MILLIS

A key, or a value of an enumeration, that came with a later release of its generation names that release.

Some keys of KCL 3 have a dot: those of a configuration bean (``fanoutConfig.consumerArn``), which are known, and those
of a client (``cloudWatchClient.endpointOverride``), where anything may follow.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import resources
from typing import TypeAlias

__all__ = ["Generation", "Key", "ValueType", "all_keys", "collapse", "find_key", "suggest"]

ValueType: TypeAlias = str | tuple[str, ...] | None
"""integer, number, boolean, list, timestamp or duration; the values of an enumeration; None for any text."""


def collapse(name: str) -> str:
    """A name without case and separators: equal for all spellings of a key. Dots stay."""
    return re.sub("[-_]", "", name).lower()


# As launchers before this one call them.
_ALIASES = {
    "kinesiscredentialsprovider": "awscredentialsprovider",
    "dynamodbcredentialsprovider": "awscredentialsproviderdynamodb",
    "cloudwatchcredentialsprovider": "awscredentialsprovidercloudwatch",
}
# One thing under two names that difflib does not find alike.
_PAIRS = (
    ("initialPositionInStreamExtended", "timestampAtInitialPositionInStream"),
    ("skipShardSyncAtWorkerInitializationIfLeasesExist", "skipShardSyncAtStartupIfLeasesExist"),
)
_OTHER_GENERATIONS_NAMES = {collapse(a): b for pair in _PAIRS for a, b in (pair, pair[::-1])}
_TRUE = {"true", "yes", "y", "on", "1"}
_FALSE = {"false", "no", "n", "off", "0"}
_PATTERNS = {
    "integer": (r"[+-]?[0-9]+", "a whole number"),
    "number": (r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", "a number"),
    "timestamp": (r"[0-9]+", "a time in seconds since 1970"),
    "duration": (r"[pP][0-9a-zA-Z.+-]+", "an ISO 8601 duration such as PT1H"),
}


class Generation(Enum):
    """The daemons that differ; the value is that of ``--kcl``."""

    KCL_3 = "3"
    KCL_1_15 = "1.15"
    KCL_1_7 = "1.7"

    @property
    def is_1(self) -> bool:
        """Whether it is of KCL 1, in other packages and with AWS SDK 1."""
        return self is not Generation.KCL_3

    @property
    def main_class(self) -> str:
        """The class to start."""
        package = "com.amazonaws.services.kinesis" if self.is_1 else "software.amazon.kinesis"
        return f"{package}.multilang.MultiLangDaemon"


@dataclass(frozen=True, slots=True)
class Key:
    """A key of one generation."""

    name: str
    """As the daemon spells it."""
    type: ValueType
    since: str | None = None
    """The first release that has it, where the generation had others before: ``3.5.0``."""
    values_since: tuple[tuple[str, str], ...] = ()
    """Values of an enumeration that came later than the key, each with its first release."""

    @property
    def kind(self) -> str:
        """Its valid values, for people."""
        if self.type is None:
            return "text"
        return self.type if isinstance(self.type, str) else ", ".join(self.type)

    def normalize(self, value: str) -> str:
        """The value as every generation of the daemon reads it.

        Raises:
            ValueError: the value does not have the key's type; the message names valid values.
        """
        text = value.strip()
        if isinstance(self.type, tuple):
            if text.upper() not in self.type:
                raise ValueError(f"must be one of {', '.join(self.type)}, not {value!r}")
            return text.upper()
        if self.type == "boolean":
            if text.lower() not in _TRUE | _FALSE:
                raise ValueError(f"must be true or false, not {value!r}")
            return "true" if text.lower() in _TRUE else "false"  # KCL 1 takes any other word for false
        if self.type in _PATTERNS:
            pattern, meaning = _PATTERNS[self.type]
            if not re.fullmatch(pattern, text):
                raise ValueError(f"must be {meaning}, not {value!r}")
            return text
        return value

    def later_than(self, version: str, value: str) -> str | None:
        """The release that brought the key, or this value of it, if that is later than another; else None.

        Args:
            version: the other release, as in the name of its jar: ``3.1.3``.
            value: as `normalize` gives it.
        """
        first = dict(self.values_since).get(value, self.since)
        return first if first is not None and _numbers(version) < _numbers(first) else None


@dataclass(frozen=True, slots=True)
class _KeyTable:
    by_collapsed_name: dict[str, Key]
    open: dict[str, str]  # prefixes that take any key below them, by collapsed name


def find_key(generation: Generation, name: str) -> Key | None:
    """The key that a name means, in any spelling; None if the daemon does not know it."""
    table = _table(generation)
    collapsed = collapse(name)
    collapsed = _ALIASES.get(collapsed, collapsed)
    key = table.by_collapsed_name.get(collapsed)
    if key is not None:
        return key
    first, dot, rest = name.partition(".")
    if dot and rest and collapse(first) in table.open:
        return Key(f"{table.open[collapse(first)]}.{_camel_case(rest)}", None)
    return None


def suggest(generation: Generation, name: str, *, cutoff: float = 0.75) -> str | None:
    """The key that somebody probably meant who wrote this name; None if there is nothing like it.

    Args:
        generation: which daemon.
        name: in any spelling.
        cutoff: how like it has to be, from 0 to 1, as `difflib` measures it.
    """
    table = _table(generation).by_collapsed_name
    other = _OTHER_GENERATIONS_NAMES.get(collapse(name))
    if other is not None and collapse(other) in table:
        return other
    close = difflib.get_close_matches(collapse(name), table, n=1, cutoff=cutoff)
    return table[close[0]].name if close else None


@cache
def all_keys(generation: Generation) -> tuple[Key, ...]:
    """All keys of a generation, by name, without those below others."""
    keys = _table(generation).by_collapsed_name.values()
    return tuple(sorted((key for key in keys if "." not in key.name), key=lambda key: key.name.lower()))


@cache
def _table(generation: Generation) -> _KeyTable:
    data = json.loads(resources.files(__package__).joinpath("keys.json").read_text("utf-8"))[generation.value]
    return _KeyTable(
        {collapse(name): _key(name, kind, data["since"]) for name, kind in data["keys"].items()},
        {collapse(name): name for name in data["open"]},
    )


def _key(name: str, kind: str | list[str] | None, since: dict[str, str]) -> Key:
    values = tuple(kind) if isinstance(kind, list) else ()
    later = tuple((value, since[f"{name}={value}"]) for value in values if f"{name}={value}" in since)
    return Key(name, values if isinstance(kind, list) else kind, since.get(name), later)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall("[0-9]+", version))


def _camel_case(name: str) -> str:
    """A name below another as Java spells it: client.endpoint-override, client.ENDPOINT_OVERRIDE."""
    if not re.search("[-_]", name):
        return name
    first, *others = re.split("[-_]+", name.lower())
    return first + "".join(word.capitalize() for word in others)
