"""Makes the folder that the images are built from: Dockerfiles, the wheel, the daemon's jars and their sums.

    tools/image_context.py FOLDER    dist/ must have one wheel for this machine's Linux; Maven fetches the jars, once

The sums are of the list in the package, so that an image's build compares the files with the reviewed ones.
"""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path

from fastkcl.daemon.jars import find_jars, locked
from fastkcl.daemon.keys import Generation

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ("daemon", "child")


def sums(generation: Generation) -> str:
    """What `sha256sum --check` reads, for all jars of a generation."""
    return "".join(f"{jar.sha256}  {jar.file_name}\n" for jar in locked(generation))


def the_wheel(folder: Path, machine: str) -> Path:
    """The wheel that the images install.

    Raises:
        SystemExit: there is not exactly one.
    """
    found = sorted(folder.glob(f"fastkcl-*-manylinux*_{machine}.whl"))
    if len(found) != 1:
        sys.exit(
            f"{folder}: one wheel for manylinux on {machine} is needed, and there are {len(found)}; run make wheel"
        )
    return found[0]


def make(into: Path, dist: Path, jars: Path, machine: str) -> None:
    """Fill `into`, which is emptied before."""
    wheel = the_wheel(dist, machine)
    shutil.rmtree(into, ignore_errors=True)
    (into / "kcl").mkdir(parents=True)
    (into / "dist").mkdir()
    shutil.copy2(wheel, into / "dist")
    for jar in locked(Generation.KCL_3):
        shutil.copy2(jars / jar.file_name, into / "kcl")
    (into / "kcl" / "SHA256SUMS").write_text(sums(Generation.KCL_3), "ascii")
    for image in IMAGES:
        shutil.copytree(ROOT / "images" / image, into / image)


def main(arguments: list[str]) -> None:
    """Do what the command line says.

    Raises:
        SystemExit: the command line is wrong, or there is no wheel.
    """
    if len(arguments) != 1:
        sys.exit("usage: image_context.py FOLDER")
    jars = find_jars(Generation.KCL_3, environ={}, on_fetch=print)
    make(Path(arguments[0]), ROOT / "dist", jars.folder, platform.machine())


if __name__ == "__main__":
    main(sys.argv[1:])
