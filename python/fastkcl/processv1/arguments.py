"""The command line that a core gives a stitch, read and made.

    coreid=node1 corepid=4711 instanceid=i1 application=App … channel=Stdio serializer=Json  --  custom arguments
    └──────────── name=value, in any order ────────────────────────────────────────────────┘     └─ unparsed ──┘

- A word is split at its first ``=``; one without has the value ``1``. Names keep their case.
- The first ``--`` ends the core's part. A name that comes twice is an error.
- A value that is not valid counts as missing: `channel` is then Stdio, `serializer` Json, `corepid` 0.
"""

from __future__ import annotations

from fastkcl.processv1.errors import ArgumentError
from fastkcl.processv1.groups import GroupName
from fastkcl.stdio.frozen import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_SEPARATOR = "--"
_PID_LIMIT = 1 << 31
_SPACE = " \t\n\v\f\r"


class Parameters(Frozen):
    """The core's description of itself and of this stitch.

    Attributes:
        core_id: the core's node.
        core_pid: its process id; none to watch below 1.
        instance_id: this stitch's id.
        application: of which application it is, and so on; empty where the core does not say.
        component: of which component.
        version: of which version.
        group_name: as the core gives it; `groups` are made of the three parts.
        data_dir: a folder of this stitch's own.
        channel: "Stdio" or "Pipe".
        serializer: "Json".
    """

    __slots__ = (
        "core_id",
        "core_pid",
        "instance_id",
        "application",
        "component",
        "version",
        "group_name",
        "data_dir",
        "channel",
        "serializer",
    )

    core_id: str
    core_pid: int
    instance_id: str
    application: str
    component: str
    version: str
    group_name: str
    data_dir: str
    channel: str
    serializer: str

    def __init__(self, values: Mapping[str, str]) -> None:
        channel = values.get("channel", "")
        self._freeze(
            values.get("coreid", ""),
            _pid(values.get("corepid", "")),
            values.get("instanceid", ""),
            values.get("application", ""),
            values.get("component", ""),
            values.get("version", ""),
            values.get("groupname", ""),
            values.get("datadir", ""),
            channel if channel in ("Stdio", "Pipe") else "Stdio",
            "Json",
        )

    @property
    def groups(self) -> tuple[GroupName, GroupName, GroupName]:
        """The groups that this stitch is in: its application, its component, its version."""
        application, component, version = self.application, self.component, self.version
        return (
            GroupName(application),
            GroupName(application, component),
            GroupName(application, component, version),
        )


class Arguments(Frozen):
    """A command line, taken apart.

    Attributes:
        core: the core's names and values, in their order.
        custom: those after the separator.
    """

    __slots__ = ("core", "custom")

    core: dict[str, str]
    custom: tuple[str, ...]

    def __init__(self, core: Mapping[str, str], custom: Iterable[str]) -> None:
        self._freeze(dict(core), tuple(custom))

    @classmethod
    def parse(cls, argv: Sequence[str]) -> Arguments:
        """Take a command line, without the program, apart.

        Raises:
            ArgumentError: a name comes twice.
        """
        words = list(argv)
        end = words.index(_SEPARATOR) if _SEPARATOR in words else len(words)
        core: dict[str, str] = {}
        for word in words[:end]:
            name, equals, value = word.partition("=")
            if name in core:
                raise ArgumentError("duplicate_argument", f"{name!r} is given twice: {core[name]!r} and {word!r}")
            core[name] = value if equals else "1"
        return cls(core, words[end + 1 :])

    @property
    def parameters(self) -> Parameters:
        """The values of the core's part."""
        return Parameters(self.core)

    def to_argv(self) -> list[str]:
        """The command line as a core writes it: empty values are left out, and nothing is quoted."""
        return [*(f"{name}={value}" for name, value in self.core.items() if value), _SEPARATOR, *self.custom]


def _pid(text: str) -> int:
    """A 32-bit integer, as .NET reads it; 0 for anything else."""
    digits = text.strip(_SPACE)
    sign = -1 if digits.startswith("-") else 1
    if digits[:1] in ("+", "-"):
        digits = digits[1:]
    if not (digits.isascii() and digits.isdigit()):
        return 0
    value = sign * int(digits.lstrip("0")[:11] or "0")
    return value if -_PID_LIMIT <= value < _PID_LIMIT else 0
