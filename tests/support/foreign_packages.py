"""Packages that fastkcl is compared with, below `.cache`: in an environment of their own, or as sources. Made once."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from paths import ROOT

CACHE = ROOT / ".cache"
_TIMEOUT = 240.0  # seconds; a set-up may download some 30 MB
_JARS_TIMEOUT = 900.0
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def install(folder: Path, *requirements: str, check: str, timeout: float = _TIMEOUT) -> Path:
    """Make the environment if it is not there, or of another Python; one process at a time.

    Args:
        folder: of the environment.
        requirements: what pip installs.
        check: a program that fails if it is not whole.
        timeout: seconds of one step.

    Returns:
        Its interpreter; the packages' scripts are beside it.

    Raises:
        OSError, subprocess.SubprocessError: it could not be made. What there is of it will not be used.
    """
    python = folder / "bin" / "python"
    # Written last: without it an environment is not whole.
    mark = folder / "complete"
    made_by = f"{' '.join(requirements)} {sys.base_prefix} {sys.version}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (mark.is_file() and mark.read_text() == made_by):
            if folder.exists():
                shutil.rmtree(folder)
            # No pip of its own, and no bytecode of modules that nobody imports: both are a third of the CPU.
            _run(sys.executable, "-m", "venv", "--without-pip", folder)
            pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--no-input"]
            _run(*pip, "--disable-pip-version-check", "install", "--no-compile", *requirements, timeout=timeout)
            _run(python, "-c", check)
            mark.write_text(made_by)
    return python


def fetch_source(folder: Path, requirement: str) -> Path:
    """Unpack a source package from the package index if it is not there; nothing of it is built or installed.

    Args:
        folder: where it is kept.
        requirement: ``name==version``.

    Returns:
        The package's own folder.

    Raises:
        OSError, subprocess.SubprocessError: it could not be had.
    """
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
                _run(*pip, "download", "--no-deps", "--no-binary=:all:", f"--dest={temporary}", requirement)
                (archive,) = Path(temporary).iterdir()
                unpacked = Path(temporary, "unpacked")
                shutil.unpack_archive(archive, unpacked)
                unpacked.rename(folder)
    (package,) = folder.iterdir()
    return package


def install_modules(folder: Path, *requirements: str) -> Path:
    """Put modules into a folder for PYTHONPATH if they are not there, without what they need themselves.

    Args:
        folder: where they are kept.
        requirements: what pip installs.

    Returns:
        The folder.

    Raises:
        OSError, subprocess.SubprocessError: they could not be had.
    """
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                unfinished = Path(temporary, "modules")
                pip = [sys.executable, "-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]
                _run(*pip, "install", "--no-deps", f"--target={unfinished}", *requirements)
                unfinished.rename(folder)
    return folder


def jars_of(folder: Path, pom: Path) -> Path:
    """Put the jars that a Maven project depends on into a folder, if they are not there.

    Args:
        folder: where they are kept.
        pom: of the project.

    Returns:
        The folder.

    Raises:
        OSError, subprocess.SubprocessError: they could not be had.
    """
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark = folder / "complete"
        if not (mark.is_file() and mark.read_text() == pom.read_text()):
            shutil.rmtree(folder, ignore_errors=True)
            _run("mvn", "-B", "-q", "-f", pom, _COPY, f"-DoutputDirectory={folder}", timeout=_JARS_TIMEOUT)
            mark.write_text(pom.read_text())
    return folder


def _run(*command: str | Path, timeout: float = _TIMEOUT) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)


def last_words(error: Exception) -> str:
    """Why it could not be made."""
    said = getattr(error, "stderr", None) or b""  # of a timeout it is bytes, whatever was asked for
    lines = (said if isinstance(said, str) else said.decode("utf-8", "replace")).strip().splitlines()
    return lines[-1] if lines else str(error)
