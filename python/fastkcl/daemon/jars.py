"""The daemon's jars: their folder, their generation, and how they are fetched.

They are looked for in this order; the first folder that has the daemon in it is taken:

    --jars DIR            there and nowhere else
    amazon_kclpy/jars     of the installed package, which is of KCL 3 (it is found without being imported)
    FASTKCL_JARS=DIR      the folder that `fastkcl.kclpy.helper` knows too
    the user's cache      ~/.cache/fastkcl/kcl/<version>, filled through Maven once

This package lists the jars to fetch, one file for each version: a jar a line, with its coordinates and SHA-256. Maven
copies exactly these, without their dependencies, through the mirror that the user has configured. A folder enters the
cache whole and with right checksums, or not at all, and is checked again at each start.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from fastkcl.daemon.keys import Generation
from fastkcl.java import cache_folder
from fastkcl.kclpy.alias import installed_original
from fastkcl.kclpy.helper import JARS_VARIABLE

__all__ = ["VERSIONS", "Coordinates", "JarSet", "JarsError", "find_jars", "locked"]

VERSIONS = {Generation.KCL_3: "3.1.3", Generation.KCL_1_15: "1.15.3", Generation.KCL_1_7: "1.7.1"}
"""The version to fetch for each generation."""

_DAEMON_JAR = {
    True: re.compile(r"amazon-kinesis-client-(1\.[0-9.]+)\.jar"),
    False: re.compile(r"amazon-kinesis-client-multilang-([0-9.]+)\.jar"),
}
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_MAVEN_SECONDS = 900.0
_FIRST_TRANSITIONAL = (1, 7, 2)  # KCL 1 before it speaks the old dialect, and lacks many keys


class JarsError(RuntimeError):
    """There are no jars to start the daemon with. `str()` names the searched places and the remedy."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """One jar that is known by its content."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        """As Maven names it."""
        return f"{self.artifact}-{self.version}.jar"


@dataclass(frozen=True, slots=True)
class JarSet:
    """A folder of jars with a daemon in it."""

    folder: Path
    generation: Generation
    version: str
    """Of the Kinesis Client Library."""
    source: str
    """Where they are from, for people."""


def find_jars(
    generation: Generation | None,
    given: Path | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    fetch: bool = True,
    on_fetch: Callable[[str], object] = lambda _: None,
) -> JarSet:
    """The jars for a generation; they are fetched if they are nowhere.

    Args:
        generation: which daemon; None for KCL 3, or for that of the given folder.
        given: the folder that the user names.
        environ: where FASTKCL_JARS is looked up.
        fetch: whether Maven may be run.
        on_fetch: called with a line of text before Maven runs.

    Raises:
        JarsError: there are none, or not of that generation.
    """
    if given is not None:
        found = _look_into(given, f"--jars {given}")
        if found is None:
            raise JarsError(
                f"--jars {given}: no daemon's jar there, neither amazon-kinesis-client-multilang-3….jar"
                " nor amazon-kinesis-client-1….jar"
            )
        if generation not in (None, found.generation):
            raise JarsError(f"--jars {given} has KCL {found.version}, but --kcl {generation.value} is asked for")
        return found
    wanted = generation or Generation.KCL_3
    for folder, source in _places(environ):
        found = _look_into(folder, source)
        if found is not None and found.generation is wanted:
            return found
    return _from_cache(wanted, fetch, on_fetch)


def locked(generation: Generation) -> tuple[Coordinates, ...]:
    """The jars that are fetched for a generation."""
    text = resources.files(__package__).joinpath(f"jars-{VERSIONS[generation]}.lock").read_text("ascii")
    jars = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            coordinates, sha256 = line.split()
            group, artifact, version = coordinates.split(":")
            jars.append(Coordinates(group, artifact, version, sha256))
    return tuple(jars)


def _places(environ: Mapping[str, str]) -> list[tuple[Path, str]]:
    places = []
    original = installed_original()
    if original is not None and original.origin is not None:
        places.append((Path(original.origin).parent / "jars", "the installed amazon_kclpy"))
    if environ.get(JARS_VARIABLE):
        places.append((Path(environ[JARS_VARIABLE]), JARS_VARIABLE))
    return places


def _look_into(folder: Path, source: str) -> JarSet | None:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return None
    for is_1, pattern in _DAEMON_JAR.items():
        for name in names:
            match = pattern.fullmatch(name)
            if match:
                return JarSet(folder.absolute(), _generation(match[1], is_1=is_1), match[1], source)
    return None


def _generation(version: str, *, is_1: bool) -> Generation:
    if not is_1:
        return Generation.KCL_3  # KCL 2 has the same main class and protocol
    numbers = tuple(int(part) for part in version.split(".") if part)
    return Generation.KCL_1_7 if numbers < _FIRST_TRANSITIONAL else Generation.KCL_1_15


def _from_cache(generation: Generation, fetch: bool, on_fetch: Callable[[str], object]) -> JarSet:
    version = VERSIONS[generation]
    jars = locked(generation)
    folder = cache_folder() / "kcl" / version
    found = JarSet(folder, generation, version, "the cache, from Maven")
    if _is_whole(folder, jars):
        return found
    if not fetch:
        raise JarsError(f"no jars of KCL {version}: not in {folder}, and not to be fetched")
    if shutil.which("mvn") is None:
        hint = "pip install amazon_kclpy==3.1.3, whose package holds them; or " if not generation.is_1 else ""
        raise JarsError(
            f"no jars of KCL {version}, and no Maven (mvn) to fetch them with. {hint}install Maven; or put"
            f" them into a folder and name that with --jars or {JARS_VARIABLE}"
        )
    on_fetch(f"fetching KCL {version} through Maven, once: {len(jars)} jars into {folder}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{version}-") as temporary:
        copied = Path(temporary, "jars")
        _run_maven(Path(temporary, "pom.xml"), copied, jars)
        wrong = _differences(copied, jars)
        if wrong:
            raise JarsError(f"KCL {version}: Maven brought other files than expected: {'; '.join(wrong[:5])}")
        if folder.exists():  # half of it, or damaged
            folder.rename(Path(temporary, "old"))
        try:
            copied.rename(folder)
        except OSError:  # another process was quicker
            if not _is_whole(folder, jars):
                raise
    return found


def _run_maven(pom: Path, into: Path, jars: tuple[Coordinates, ...]) -> None:
    pom.write_text(_pom(jars), "ascii")
    command = ["mvn", "--batch-mode", "--quiet", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={into}"]
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=_MAVEN_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise JarsError(
            f"Maven has not finished after {_MAVEN_SECONDS:.0f} s; try again: {' '.join(command)}"
        ) from None
    except subprocess.CalledProcessError as error:
        said = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if "ERROR" in line] or ["nothing"]
        raise JarsError(f"Maven failed with exit code {error.returncode}: {said[0]}") from None


def _pom(jars: tuple[Coordinates, ...]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version>"
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>\n"
        for jar in jars
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>fastkcl</groupId><artifactId>daemon</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _is_whole(folder: Path, jars: tuple[Coordinates, ...]) -> bool:
    return folder.is_dir() and not _differences(folder, jars)


def _differences(folder: Path, jars: tuple[Coordinates, ...]) -> list[str]:
    """The faults of a folder that should hold these jars and no others."""
    wrong = []
    for jar in jars:
        try:
            with (folder / jar.file_name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            wrong.append(f"{jar.file_name}: {error.strerror}")
            continue
        if digest != jar.sha256:
            wrong.append(f"{jar.file_name} has the SHA-256 {digest}, not {jar.sha256}")
    strangers = {path.name for path in folder.glob("*.jar")} - {jar.file_name for jar in jars}
    return wrong + [f"{name} does not belong there" for name in sorted(strangers)]
