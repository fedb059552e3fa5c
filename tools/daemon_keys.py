"""Derives the keys of the MultiLangDaemon's properties, and their types, from the daemon's own classes.

    python tools/daemon_keys.py 3=JARS 3=NEWER_JARS 1.15=JARS 1.7=JARS > python/fastkcl/daemon/keys.json

JARS is a folder with the jars of that generation, or several, oldest release first: the keys are those of the last, and
`since` names the release of each that the first does not have. Nothing is run: the class files are read. These make a
key:

    3.x   each setter of MultiLangDaemonConfiguration (commons-beanutils sets by bean name); below each getter of a
          configuration bean that bean's setters, as `bean.key`; a getter of a BuilderDynaBean takes any key below it
    1.x   each method `with…` of KinesisClientLibConfiguration that takes one value of a type for which there is a
          PropertyValueDecoder
    both  keys that the daemon reads from the properties by name: the constants PROP_… of its two configuration classes
"""

from __future__ import annotations

import json
import re
import struct
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

_MULTILANG_3 = "software/amazon/kinesis/multilang"
_CONFIGURATION_3 = f"{_MULTILANG_3}/config/MultiLangDaemonConfiguration"
_DYNA_BEAN = f"L{_MULTILANG_3}/config/BuilderDynaBean;"
_CONFIGURATION_1 = "com/amazonaws/services/kinesis/clientlibrary/lib/worker/KinesisClientLibConfiguration"
_DECODERS_1 = "com/amazonaws/services/kinesis/clientlibrary/config"
_READ_BY_NAME = (
    f"{_MULTILANG_3}/MultiLangDaemonConfig",
    "com/amazonaws/services/kinesis/multilang/MultiLangDaemonConfig",
    f"{_DECODERS_1}/KinesisClientLibConfigurator",
)
_UNSUPPORTED = "com/amazonaws/ClientConfiguration"  # its decoder only throws

_TYPES = {
    **dict.fromkeys(("I", "J", "Ljava/lang/Integer;", "Ljava/lang/Long;"), "integer"),
    "D": "number",
    **dict.fromkeys(("Z", "Ljava/lang/Boolean;"), "boolean"),
    **dict.fromkeys(("[Ljava/lang/String;", "Ljava/util/Set;"), "list"),
    "Ljava/time/Duration;": "duration",
    **dict.fromkeys(
        ("Ljava/util/Date;", "Lsoftware/amazon/kinesis/common/InitialPositionInStreamExtended;"), "timestamp"
    ),
}
_BOXED = {"java/lang/Integer": "I", "java/lang/Long": "J", "java/lang/Boolean": "Z"}
_PUBLIC, _ENUM = 0x0001, 0x4000


@dataclass
class ClassFile:
    """What is needed of a class file (Java Virtual Machine Specification, chapter 4)."""

    name: str
    signature: str | None = None
    methods: list[tuple[str, str]] = field(default_factory=list)
    """Name and descriptor of the public ones."""
    strings: dict[str, str] = field(default_factory=dict)
    """Constants of type String, by name of the field."""
    enum_values: list[str] = field(default_factory=list)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def numbers(self, layout: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f">{layout}", self._data, self._at)
        self._at += struct.calcsize(f">{layout}")
        return values

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]


_CONSTANT_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def read_class(data: bytes) -> ClassFile:
    """Read a class file."""
    reader = _Reader(data)
    magic, _, _, size = reader.numbers("IHHH")
    if magic != 0xCAFEBABE:
        raise ValueError("not a class file")
    texts: dict[int, str] = {}
    references: dict[int, int] = {}
    index = 1
    while index < size:
        (tag,) = reader.numbers("B")
        if tag == 1:
            (length,) = reader.numbers("H")
            texts[index] = reader.take(length).decode("utf-8", "replace")
        elif tag in (7, 8):
            (references[index],) = reader.numbers("H")
        else:
            reader.take(_CONSTANT_SIZES[tag])
        index += 2 if tag in (5, 6) else 1  # long and double take two places

    def attributes() -> Iterator[tuple[str, bytes]]:
        for _ in range(reader.numbers("H")[0]):
            name, length = reader.numbers("HI")
            yield texts[name], reader.take(length)

    _, this, _, interfaces = reader.numbers("HHHH")
    reader.take(2 * interfaces)
    found = ClassFile(texts[references[this]])
    for _ in range(reader.numbers("H")[0]):
        access, name, _descriptor = reader.numbers("HHH")
        if access & _ENUM:
            found.enum_values.append(texts[name])
        for attribute, value in attributes():
            (constant,) = struct.unpack(">H", value) if attribute == "ConstantValue" else (0,)
            if constant in references:
                found.strings[texts[name]] = texts[references[constant]]
    for _ in range(reader.numbers("H")[0]):
        access, name, descriptor = reader.numbers("HHH")
        if access & _PUBLIC:
            found.methods.append((texts[name], texts[descriptor]))
        list(attributes())
    for attribute, value in attributes():
        if attribute == "Signature":
            found.signature = texts[struct.unpack(">H", value)[0]]
    return found


class Jars:
    """The classes of a folder of jars, by name."""

    def __init__(self, folder: Path) -> None:
        self._where: dict[str, Path] = {}
        for jar in sorted(folder.glob("*.jar")):
            with zipfile.ZipFile(jar) as archive:
                for entry in archive.namelist():
                    if entry.endswith(".class"):
                        self._where.setdefault(entry.removesuffix(".class"), jar)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, name: str) -> ClassFile:
        """The class of that name."""
        with zipfile.ZipFile(self._where[name]) as archive:
            return read_class(archive.read(f"{name}.class"))

    def of_package(self, package: str) -> Iterator[ClassFile]:
        """All classes of a package, without those below it."""
        for name in self._where:
            if name.rpartition("/")[0] == package:
                yield self.read(name)

    def jar_of(self, name: str) -> str:
        """The name of the jar that a class is from."""
        return self._where[name].name


def derive(folder: Path) -> dict[str, Any]:
    """The keys of the daemon in a folder of jars.

    Returns:
        `derived_from`, the jar; `keys`, type by name (a list of values for an enumeration, null for any text);
        `open`, what takes any key below it.
    """
    jars = Jars(folder)
    keys: dict[str, str | list[str] | None] = {}
    open_keys: list[str] = []
    for name in _READ_BY_NAME:
        if name in jars:
            constants = jars.read(name).strings
            keys.update(dict.fromkeys((v for k, v in constants.items() if k.startswith("PROP_")), None))
    if _CONFIGURATION_3 in jars:
        main = _CONFIGURATION_3
        keys.update(_setters(jars, jars.read(main), "set"))
        for name, descriptor in jars.read(main).methods:
            bean = _bean_name(name, "get")
            returned = re.fullmatch(rf"\(\)L({_MULTILANG_3}/config/\w+Bean);", descriptor)
            if bean and descriptor == f"(){_DYNA_BEAN}":
                open_keys.append(bean)
            elif bean and returned:
                below = _setters(jars, jars.read(returned[1]), "set")
                keys.update({f"{bean}.{key}": kind for key, kind in below.items()})
        keys["maxActiveThreads"] = "integer"
    else:
        main = _CONFIGURATION_1
        decoded = {
            found[1]
            for decoder in jars.of_package(_DECODERS_1)
            if (found := re.search(r"IPropertyValueDecoder<L([^;<]+)", decoder.signature or ""))
        } - {_UNSUPPORTED}
        descriptors = {f"L{name};" for name in decoded} | {_BOXED[name] for name in decoded if name in _BOXED}
        keys.update(_setters(jars, jars.read(main), "with", descriptors))
        keys["maxActiveThreads"] = "integer"
    return {"derived_from": jars.jar_of(main), "keys": dict(sorted(keys.items())), "open": sorted(open_keys)}


def _setters(jars: Jars, of: ClassFile, prefix: str, only: set[str] | None = None) -> dict[str, str | list[str] | None]:
    found: dict[str, str | list[str] | None] = {}
    for name, descriptor in of.methods:
        key = _bean_name(name, prefix)
        taken = re.fullmatch(r"\((\[?L[^;]+;|\[?[A-Z])\).*", descriptor)
        if key and taken and (only is None or taken[1] in only):
            found[key] = _type(jars, taken[1])
    return found


def _bean_name(method: str, prefix: str) -> str | None:
    rest = method.removeprefix(prefix)
    return rest[0].lower() + rest[1:] if rest != method and rest[:1].isupper() else None


def _type(jars: Jars, descriptor: str) -> str | list[str] | None:
    if descriptor in _TYPES:
        return _TYPES[descriptor]
    name = descriptor[1:-1]
    values = jars.read(name).enum_values if descriptor.startswith("L") and name in jars else []
    # An SDK's own addition for values that it does not know.
    return sorted(value for value in values if value != "UNKNOWN_TO_SDK_VERSION") or None


def derive_all(folders: list[Path]) -> dict[str, Any]:
    """The keys of a generation, from the jars of some of its releases, oldest first.

    Returns:
        What `derive` says of the last, and `since`: the release of each `key`, and of each `key=VALUE` of an
        enumeration, that the first does not have.

    Raises:
        ValueError: a release has lost something that the one before has, and the table has no word for that.
    """
    releases = [derive(folder) for folder in folders]
    since: dict[str, str] = {}
    for before, release in pairwise(releases):
        had, has = _known(before["keys"]), _known(release["keys"])
        if had - has:
            raise ValueError(f"{release['derived_from']} has no {', '.join(sorted(had - has))} any more")
        version = release["derived_from"].rpartition("-")[2].removesuffix(".jar")
        since |= dict.fromkeys(has - had, version)
    return {**releases[-1], "since": dict(sorted(since.items()))}


def _known(keys: dict[str, Any]) -> set[str]:
    """All keys, and all values of enumerations as `key=VALUE`."""
    values = {f"{key}={value}" for key, kind in keys.items() if isinstance(kind, list) for value in kind}
    return values | keys.keys()


if __name__ == "__main__":
    generations: dict[str, list[Path]] = {}
    for argument in sys.argv[1:]:
        generation, _, folder = argument.partition("=")
        generations.setdefault(generation, []).append(Path(folder))
    if not generations:
        sys.exit(__doc__)
    json.dump({name: derive_all(folders) for name, folders in generations.items()}, sys.stdout, indent=1)
    sys.stdout.write("\n")
