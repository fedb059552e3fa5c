"""tools/ builds and checks the wheels: names, bytes that depend on nothing but the sources, refused wheels."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import check_wheel
import try_wheel
import wheel_symbols
from fastkcl import _core
from platforms import PLATFORMS, platform_of
from wheel_contents import ContentsError, check_contents
from wheel_form import record, settle
from wheel_symbols import SymbolError

NAME = "fastkcl-1.0-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
EPOCH = 1_700_000_000
INFO = "fastkcl-1.0.dist-info/"
ZIG = {"LICENSE-ZIG.txt": b"MIT"}


def sbom(root: str, *, serial: str = "urn:uuid:1", time: str = "2026-01-01T00:00:00.1Z") -> str:
    component = {"name": "pyo3", "version": "1", "licenses": [{"expression": "MIT"}]}
    ours = {"bom-ref": f"path+file://{root}/rust/python#fastkcl-python@1.0", "name": "ours"}
    metadata = {"timestamp": time, "component": ours}
    return json.dumps({"serialNumber": serial, "metadata": metadata, "components": [component]})


def make(folder: Path, *, root: str = "/here", without: str = "", times: int = 2020, **options: str) -> Path:
    """A wheel as maturin makes it, in an order and of a time of its own."""
    files = {
        f"{INFO}WHEEL": b"Wheel-Version: 1.0\nTag: cp311-abi3-manylinux_2_17_x86_64\n",
        f"{INFO}licenses/LICENSE": b"ours",
        f"{INFO}licenses/LICENSE-THIRD-PARTY.txt": b"theirs",
        f"{INFO}METADATA": b"License-File: LICENSE\nLicense-File: LICENSE-THIRD-PARTY.txt\n\nREADME",
        f"{INFO}sboms/fastkcl-python.cyclonedx.json": sbom(root, **options).encode(),
        "fastkcl/_core.abi3.so": b"ELF",
        "fastkcl/__init__.py": b"",
    }
    files = {name: content for name, content in files.items() if name != INFO + without}
    files[f"{INFO}RECORD"] = record(files, f"{INFO}RECORD")
    folder.mkdir(exist_ok=True)
    wheel = folder / NAME
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in reversed(files) if times % 2 else files:
            archive.writestr(zipfile.ZipInfo(name, (times, 1, 1, 0, 0, 0)), files[name])
    return wheel


def test_each_platform_is_known_by_its_wheels_name() -> None:
    assert len({platform.tag for platform in PLATFORMS}) == len(PLATFORMS) == 7
    for platform in PLATFORMS:
        assert platform_of(f"fastkcl-0.1.0-cp311-abi3-{platform.tag}.whl") is platform
    assert platform_of(NAME) is PLATFORMS[0]
    for other in ("cp311-cp311-win_amd64", "cp311-abi3-linux_x86_64", "cp312-abi3-win_amd64"):
        assert platform_of(f"fastkcl-0.1.0-{other}.whl") is None


@pytest.mark.parametrize("tags", ["manylinux_2_17_{0}.manylinux2014_{0}", "manylinux2014_{0}.manylinux_2_17_{0}"])
def test_a_wheel_is_found_whatever_the_order_of_its_tags(
    tags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_wheel, "ROOT", tmp_path)
    (tmp_path / "dist").mkdir()
    with pytest.raises(try_wheel.TrialError, match="0 wheels of manylinux_2_17_aarch64; run make wheels"):
        try_wheel.the_wheel("manylinux_2_17_aarch64")
    wheels = {machine: f"fastkcl-1.0-cp311-abi3-{tags.format(machine)}.whl" for machine in ("aarch64", "x86_64")}
    for name in wheels.values():
        (tmp_path / "dist" / name).touch()
    assert try_wheel.the_wheel("manylinux_2_17_aarch64").name == wheels["aarch64"]


def test_one_of_the_platforms_is_this_machine() -> None:
    assert sum(map(check_wheel.is_this_machine, PLATFORMS)) == 1


def test_place_and_time_of_a_build_leave_no_trace(tmp_path: Path) -> None:
    one = make(tmp_path / "a", root="/here", serial="urn:uuid:1", times=2020)
    other = make(tmp_path / "b", root="/some/where", serial="urn:uuid:2", time="2027-01-01T00:00:00Z", times=2021)
    assert one.read_bytes() != other.read_bytes()
    settle(one, Path("/here"), EPOCH, ZIG)
    settle(other, Path("/some/where"), EPOCH, ZIG)
    assert one.read_bytes() == other.read_bytes()
    assert check_contents(one, PLATFORMS[0]) == "0.00 MB, 1 crates"
    with zipfile.ZipFile(one) as archive:
        bom = json.loads(archive.read(f"{INFO}sboms/fastkcl-python.cyclonedx.json"))
    assert bom["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    assert bom["metadata"]["component"]["bom-ref"] == "path+file:///fastkcl/rust/python#fastkcl-python@1.0"
    assert bom["serialNumber"].startswith("urn:uuid:")


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("licenses/LICENSE", "it has no licenses/LICENSE"),
        ("licenses/LICENSE-THIRD-PARTY.txt", "it has no licenses/LICENSE-THIRD-PARTY.txt"),
        ("licenses/LICENSE-ZIG.txt", "it has no licenses/LICENSE-ZIG.txt"),
        ("sboms/fastkcl-python.cyclonedx.json", "its lists of crates are"),
    ],
)
def test_a_wheel_that_lacks_something_is_refused(tmp_path: Path, without: str, said: str) -> None:
    wheel = make(tmp_path, without=without)
    if "ZIG" not in without:
        settle(wheel, Path("/here"), EPOCH, ZIG)
    with pytest.raises(ContentsError, match=said):
        check_contents(wheel, PLATFORMS[0])


def test_a_wheel_for_windows_has_the_licence_of_its_runtime(tmp_path: Path) -> None:
    wheel = make(tmp_path)
    settle(wheel, Path("/here"), EPOCH, ZIG)
    platform = replace(PLATFORMS[-1], tag=PLATFORMS[0].tag)
    with pytest.raises(ContentsError, match=r"it has no licenses/LICENSE-MINGW-W64\.txt"):
        check_contents(wheel, platform)
    wheel = make(tmp_path / "again")
    settle(wheel, Path("/here"), EPOCH, {**ZIG, "LICENSE-MINGW-W64.txt": b"ZPL"})
    assert check_contents(wheel, platform) == "0.00 MB, 1 crates"


def test_a_wheel_of_another_platform_or_changed_afterwards_is_refused(tmp_path: Path) -> None:
    wheel = make(tmp_path)
    settle(wheel, Path("/here"), EPOCH, ZIG)
    with pytest.raises(ContentsError, match="does not say cp311-abi3-win_amd64"):
        check_contents(wheel, PLATFORMS[-1])
    changed = tmp_path / f"changed-{NAME}"
    with zipfile.ZipFile(wheel) as before, zipfile.ZipFile(changed, "w") as after:
        for name in before.namelist():
            after.writestr(name, b"evil" if name.endswith(".so") else before.read(name))
    with pytest.raises(ContentsError, match=r"_core\.abi3\.so is not what its RECORD says"):
        check_contents(changed, PLATFORMS[0])
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("fastkcl/more.py", b"")
    with pytest.raises(ContentsError, match="other files"):
        check_contents(wheel, PLATFORMS[0])


def test_an_extension_that_asks_for_more_than_its_name_says_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension that is built here asks for this machine's C library."""
    extension = Path(_core.__file__).read_bytes()
    monkeypatch.setattr(wheel_symbols, "GLIBC", (99, 0))
    assert wheel_symbols.check_glibc(extension).startswith("glibc 2.")
    monkeypatch.setattr(wheel_symbols, "GLIBC", (2, 1))
    with pytest.raises(SymbolError, match=r"it needs glibc 2\.\d+, and its name says 2\.1"):
        wheel_symbols.check_glibc(extension)
    monkeypatch.setattr(wheel_symbols, "GNU_LIBRARIES", set())
    with pytest.raises(SymbolError, match=r"libraries that not every Linux has: .*libc\.so\.6"):
        wheel_symbols.check_glibc(extension)
    with pytest.raises(SymbolError, match=r"libraries besides musl: .*libc\.so\.6"):
        wheel_symbols.check_musl(extension)
