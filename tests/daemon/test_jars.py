"""Where the daemon's jars are found, which generation they are of, and which are fetched."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fastkcl.daemon import jars as module
from fastkcl.daemon.jars import VERSIONS, Coordinates, JarsError, find_jars, locked
from fastkcl.daemon.keys import Generation

KCL_3, KCL_1_15, KCL_1_7 = Generation.KCL_3, Generation.KCL_1_15, Generation.KCL_1_7
DAEMON = {
    "3.1.3": "amazon-kinesis-client-multilang-3.1.3.jar",
    "1.15.3": "amazon-kinesis-client-1.15.3.jar",
    "1.7.1": "amazon-kinesis-client-1.7.1.jar",
}
# The SHA-256 of "one" and "two".
ONE = Coordinates("a", "one", "1", "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed")
TWO = Coordinates("b", "two", "2", "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3")

Maven = Callable[[str], Path]


def folder_of(path: Path, *names: str) -> Path:
    path.mkdir(parents=True)
    for name in names:
        (path / name).write_text("")
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without an amazon_kclpy, with a cache of their own and no programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(module, "installed_original", lambda: None)
    monkeypatch.setattr(module, "locked", lambda generation: (ONE, TWO))
    return tmp_path


@pytest.fixture
def maven(home: Path) -> Maven:
    """A Maven whose copy-dependencies does what a line of Python says; it counts its runs."""

    def install(action: str) -> Path:
        program, runs = home / "bin" / "mvn", home / "runs"
        program.parent.mkdir(exist_ok=True)
        program.write_text(
            f"#!{sys.executable}\nimport pathlib, sys\n"
            f"with open({str(runs)!r}, 'a') as file: file.write(' '.join(sys.argv[1:]) + '\\n')\n"
            "into = pathlib.Path(next(a for a in sys.argv if a.startswith('-DoutputDirectory=')).partition('=')[2])\n"
            f"into.mkdir()\n{action}\n"
        )
        program.chmod(0o755)
        return runs

    return install


BOTH = "(into / 'one-1.jar').write_text('one'); (into / 'two-2.jar').write_text('two')"


@pytest.mark.parametrize(
    ("version", "generation"),
    [
        ("3.1.3", KCL_3),
        ("3.5.3", KCL_3),
        ("2.6.1", KCL_3),
        ("1.15.3", KCL_1_15),
        ("1.7.2", KCL_1_15),
        ("1.8.0", KCL_1_15),
        ("1.7.1", KCL_1_7),
        ("1.6.4", KCL_1_7),
    ],
)
def test_the_generation_of_a_folder(home: Path, version: str, generation: Generation) -> None:
    kind = "-" if version.startswith("1") else "-multilang-"
    folder = folder_of(home / "jars", "guava-18.0.jar", f"amazon-kinesis-client{kind}{version}.jar")
    found = find_jars(None, folder)
    assert (found.generation, found.version, found.folder) == (generation, version, folder)


def test_a_folder_that_is_not_what_was_asked_for(home: Path) -> None:
    with pytest.raises(JarsError, match="no daemon's jar there"):
        find_jars(None, folder_of(home / "empty"))
    with pytest.raises(JarsError, match=r"has KCL 1\.7\.1, but --kcl 3 is asked for"):
        find_jars(KCL_3, folder_of(home / "old", DAEMON["1.7.1"]))


def test_the_first_place_that_has_the_generation(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder_of(home / "site" / "amazon_kclpy" / "jars", DAEMON["3.1.3"]).parent
    (package / "__init__.py").write_text("")
    original = type("Spec", (), {"origin": str(package / "__init__.py")})()
    named = {
        "FASTKCL_JARS": str(folder_of(home / "three", DAEMON["3.1.3"])),
    }
    assert find_jars(KCL_3, environ=named).source == "FASTKCL_JARS"
    monkeypatch.setattr(module, "installed_original", lambda: original)
    assert find_jars(None, environ=named).source == "the installed amazon_kclpy"
    given = folder_of(home / "mine", DAEMON["3.1.3"])
    assert find_jars(KCL_3, given, environ=named).folder == given
    with pytest.raises(JarsError, match=r"no jars of KCL 1\.7\.1"):
        find_jars(KCL_1_7, environ=named)


def test_without_maven_it_says_what_to_do() -> None:
    with pytest.raises(JarsError, match=r"no Maven \(mvn\).*amazon_kclpy==3\.1\.3.*--jars or FASTKCL_JARS"):
        find_jars(KCL_3, environ={})
    with pytest.raises(JarsError, match=r"no Maven \(mvn\) to fetch them with\. install Maven"):
        find_jars(KCL_1_7, environ={})


class TestFetching:
    def test_once(self, home: Path, maven: Maven) -> None:
        runs = maven(BOTH)
        told: list[str] = []
        found = find_jars(KCL_1_7, environ={}, on_fetch=told.append)
        assert found.folder == home / "cache" / "fastkcl" / "kcl" / "1.7.1"
        assert sorted(path.name for path in found.folder.iterdir()) == ["one-1.jar", "two-2.jar"]
        assert told == [f"fetching KCL 1.7.1 through Maven, once: 2 jars into {found.folder}"]
        assert find_jars(KCL_1_7, environ={}, on_fetch=told.append) == found
        assert len(runs.read_text().splitlines()) == len(told) == 1
        assert sorted(path.name for path in found.folder.parent.iterdir()) == ["1.7.1"]

    @pytest.mark.parametrize("damage", ["changed", "missing", "more"])
    def test_a_damaged_cache_is_fetched_anew(self, maven: Maven, damage: str) -> None:
        runs = maven(BOTH)
        folder = find_jars(KCL_1_7, environ={}).folder
        if damage == "missing":
            (folder / "one-1.jar").unlink()
        else:
            (folder / ("one-1.jar" if damage == "changed" else "other.jar")).write_text("bad")
        find_jars(KCL_1_7, environ={})
        assert len(runs.read_text().splitlines()) == 2
        assert sorted(path.read_text() for path in folder.iterdir()) == ["one", "two"]

    @pytest.mark.parametrize(
        ("action", "said"),
        [
            (BOTH.replace("'two')", "'three')"), "two-2.jar has the SHA-256 .*, not 3fc4ccfe"),
            ("(into / 'one-1.jar').write_text('one')", "two-2.jar: No such file"),
            (f"{BOTH}; (into / 'x.jar').write_text('')", "x.jar does not belong there"),
            ("print('[ERROR] no such artifact'); sys.exit(3)", r"exit code 3: \[ERROR\] no such artifact"),
        ],
    )
    def test_what_is_not_right_is_not_kept(self, home: Path, maven: Maven, action: str, said: str) -> None:
        maven(action)
        with pytest.raises(JarsError, match=said):
            find_jars(KCL_3, environ={})
        assert list((home / "cache" / "fastkcl" / "kcl").iterdir()) == []


@pytest.mark.parametrize("generation", Generation)
def test_what_is_locked(generation: Generation) -> None:
    jars = locked(generation)
    assert DAEMON[VERSIONS[generation]] in {jar.file_name for jar in jars}
    assert len({jar.file_name for jar in jars}) == len(jars)
    assert all(len(jar.sha256) == 64 for jar in jars)
    assert os.path.commonprefix([VERSIONS[generation], generation.value]) == generation.value
