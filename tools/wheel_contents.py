"""The content of a wheel, whatever its platform: names, sizes, licences, the list of crates, the stable ABI."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

from platforms import ABI, Platform

MOST_BYTES = 3_500_000
"""Bytes of a wheel. Avro, Protobuf and .proto texts take about 1.3 million of them."""


class ContentsError(Exception):
    """The wheel must not be published so. `str()` says what is wrong with it."""


def extension_of(archive: zipfile.ZipFile) -> str:
    """The path of the one extension in a wheel.

    Raises:
        ContentsError: there is none, or more than one.
    """
    found = [name for name in archive.namelist() if name.endswith((".so", ".pyd", ".dylib", ".dll"))]
    if found not in (["fastkcl/_core.abi3.so"], ["fastkcl/_core.pyd"]):
        raise ContentsError(f"its libraries are {found}, and not the one extension")
    return found[0]


def check_contents(wheel: Path, platform: Platform) -> str:
    """Compare a wheel with what each wheel has; gives its size and the number of crates.

    Raises:
        ContentsError: something is missing, or is not what its list says.
    """
    with zipfile.ZipFile(wheel) as archive:
        extension_of(archive)
        names = set(archive.namelist())
        folder = next(name for name in names if name.endswith(".dist-info/WHEEL")).removesuffix("WHEEL")
        if f"Tag: {ABI}-{platform.tag}\n" not in archive.read(f"{folder}WHEEL").decode():
            raise ContentsError(f"its WHEEL does not say {ABI}-{platform.tag}")
        wanted = ["LICENSE", "LICENSE-THIRD-PARTY.txt", "LICENSE-ZIG.txt"]
        wanted += ["LICENSE-MINGW-W64.txt"] if "windows" in platform.target else []
        metadata = archive.read(f"{folder}METADATA").decode().partition("\n\n")[0].splitlines()
        for name in wanted:
            if f"{folder}licenses/{name}" not in names or f"License-File: {name}" not in metadata:
                raise ContentsError(f"it has no licenses/{name}, or its METADATA does not name it")
        _check_record(archive, f"{folder}RECORD")
        crates = _crates(archive, folder)
    return f"{wheel.stat().st_size / 1e6:.2f} MB, {crates} crates"


def _check_record(archive: zipfile.ZipFile, record: str) -> None:
    rows = list(csv.reader(archive.read(record).decode().splitlines()))
    if {row[0] for row in rows} != set(archive.namelist()):
        raise ContentsError("its RECORD lists other files than it has")
    for name, digest, _ in rows:
        found = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
        if name != record and digest != f"sha256={found}":
            raise ContentsError(f"{name} is not what its RECORD says")


def _crates(archive: zipfile.ZipFile, folder: str) -> int:
    """How many crates the list in a wheel names; each one has a name, a version and a licence."""
    lists = [name for name in archive.namelist() if name.startswith(f"{folder}sboms/") and name.endswith(".json")]
    if len(lists) != 1:
        raise ContentsError(f"its lists of crates are {lists}, and not one")
    components = json.loads(archive.read(lists[0]))["components"]
    without = [each["name"] for each in components if not (each.get("version") and each.get("licenses"))]
    if without or not any(each["name"] == "pyo3" for each in components):
        raise ContentsError(f"its list of crates lacks pyo3, or a version or licence of {without}")
    return len(components)


def check_stable_abi(wheel: Path) -> None:
    """Ask abi3audit whether the extension uses the stable ABI of its tag alone.

    Raises:
        ContentsError: it does not.
    """
    command = [sys.executable, "-m", "abi3audit", "--strict", "--verbose", str(wheel)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise ContentsError(f"abi3audit refuses it:\n{done.stdout}")
