"""Builds the wheels of a release, all on one Linux machine, into dist/.

    tools/wheels.py             every platform in tools/platforms.py
    tools/wheels.py TARGET...   some of them, by Rust's names

maturin builds, and zig links: it brings the old glibc, musl, and the libraries that macOS and Windows link against.
Rust's standard library for a target is rustup's (`rustup target add`), or built from Debian's sources of it
(tools/debian.sh wheels). Nothing in a wheel depends on the folder or the time of its build: paths are written as from
one root, and times are those of the commit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from platforms import PLATFORMS, Platform, platform_of
from wheel_form import settle

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(os.environ.get("BIN", ROOT / ".venv" / "bin"))
DEBIAN_RUSTC = Path("/usr/bin/rustc")
STUBS = ROOT / "tools" / "macos_sdk"
"""What zig does not bring of macOS's SDK: the few symbols of CoreFoundation that crates use, as text."""


class BuildError(Exception):
    """A wheel cannot be built here. `str()` says what is missing, and what brings it."""


def _output(command: list[str | Path], environment: dict[str, str] | None = None) -> str:
    return subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def toolchain(platform: Platform) -> dict[str, str]:
    """The variables that choose a Rust with a standard library for the platform.

    Raises:
        BuildError: there is none.
    """
    sysroot = Path(_output(["rustc", "--print", "sysroot"]))
    if (sysroot / "lib" / "rustlib" / platform.target / "lib").is_dir():
        return {}
    debian = Path("/usr/lib/rustlib")
    if not (DEBIAN_RUSTC.exists() and (debian / "src" / "rust" / "library" / "std").is_dir()):
        raise BuildError(
            f"there is no standard library for {platform.target}: run `rustup target add {platform.target}`, or"
            " on Debian tools/debian.sh wheels"
        )
    # The nightly option is the way to build the standard library that a distribution ships the sources of.
    return {
        "RUSTC_BOOTSTRAP": "1",
        "RUSTC": str(DEBIAN_RUSTC),
        "CARGO": "/usr/bin/cargo",
        "CARGO_UNSTABLE_BUILD_STD": "std,panic_abort",
    }


def _linked_objcopy() -> Path:
    """A folder with LLVM's objcopy under the name by which rustc calls its own, which Debian's has not.

    Raises:
        BuildError: there is no LLVM.
    """
    found = next(
        (each for each in map(Path, ("/usr/bin/llvm-objcopy", "/usr/local/bin/llvm-objcopy")) if each.exists()), None
    )
    if found is None:
        raise BuildError("there is no llvm-objcopy, which strips wheels for macOS: tools/debian.sh wheels installs it")
    folder = ROOT / "target" / "wheel-tools"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / "rust-objcopy"
    if not link.is_symlink():
        link.symlink_to(found)
    return folder


def _empty_libraries() -> Path:
    """A folder with two libraries of GCC, empty: Debian's rustc asks for them, and zig has no use for them."""
    folder = Path("target") / "wheel-tools" / "empty"
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for name in ("libssp.a", "libssp_nonshared.a"):
        (ROOT / folder / name).write_bytes(b"!<arch>\n")
    return folder


def _cargo_with_exports(cargo: str) -> Path:
    """A cargo that mends maturin's list of exports for Windows before it builds.

    maturin 1.16 names the initialiser after the whole module, `PyInit_fastkcl._core`; Python calls `PyInit__core`.
    """
    script = ROOT / "target" / "wheel-tools" / "cargo"
    script.parent.mkdir(parents=True, exist_ok=True)
    lists = ROOT / "target" / "cross" / "maturin"
    mend = f"sed -i 's/PyInit_fastkcl[.]_core/PyInit__core/' {lists}/*.def"
    script.write_text(f'#!/bin/sh\n{mend} 2>/dev/null\nexec {cargo} "$@"\n')
    script.chmod(0o755)
    return script


def environment(platform: Platform) -> dict[str, str]:
    """The environment that one wheel is built in.

    Raises:
        BuildError: something that it needs is missing.
    """
    chosen = toolchain(platform)
    result = {**os.environ, **chosen}
    # A registry's folder appears with its first crate, and has to be known by then.
    subprocess.run([result.get("CARGO", "cargo"), "fetch", "--locked"], cwd=ROOT, env=result, check=True)
    result.pop("CONDA_PREFIX", None)
    # pip's cargo-zigbuild and ziglang come first; Debian's cargo must be the one that its rustc was made with.
    path = [str(BIN), *(["/usr/bin"] if chosen else []), result["PATH"]]
    if "apple" in platform.target:
        result["SDKROOT"] = str(STUBS)
        result["MACOSX_DEPLOYMENT_TARGET"] = "11.0"
        path.insert(0, str(_linked_objcopy()))
    result["PATH"] = os.pathsep.join(path)
    sysroot = _output([result.get("RUSTC", "rustc"), "--print", "sysroot"], result)
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    # The last that fits counts. The folder of a registry's sources has a name that depends on how it is reached.
    roots = {str(home): "/cargo", sysroot: "/rust", str(ROOT): "/fastkcl"}
    roots |= dict.fromkeys(map(str, sorted(home.glob("registry/src/*"))), "/crates")
    flags = [f"--remap-path-prefix={there}={name}" for there, name in roots.items()]
    if "windows" in platform.target:
        result["CARGO"] = str(
            _cargo_with_exports(result.get("CARGO") or shutil.which("cargo", path=result["PATH"]) or "cargo")
        )
    result["RUSTFLAGS"] = " ".join(flags)
    if "SOURCE_DATE_EPOCH" not in result:
        result["SOURCE_DATE_EPOCH"] = _output(["git", "log", "-1", "--format=%ct"])
    return result


def licences_of_zig(platform: Platform) -> dict[str, bytes]:
    """Those of what zig links into an extension: its own run-time library, and mingw-w64's for Windows."""
    import ziglang

    zig = Path(ziglang.__file__).parent
    texts = {"LICENSE-ZIG.txt": (zig / "LICENSE").read_bytes()}
    if "windows" in platform.target:
        texts["LICENSE-MINGW-W64.txt"] = (zig / "lib" / "libc" / "mingw" / "COPYING").read_bytes()
    return texts


def build(platform: Platform) -> None:
    """Build one wheel into dist/.

    Raises:
        BuildError: something that it needs is missing.
        subprocess.CalledProcessError: the build failed, and has said why.
    """
    command: list[str | Path] = [
        BIN / "maturin",
        "build",
        "--release",
        "--locked",
        "--zig",
        "--compression-level",
        "9",
        "--out",
        "dist",
    ]
    command += ["--target", platform.target, "--compatibility", platform.compatibility]
    command += ["--target-dir", "target/cross"]
    if "windows" in platform.target:
        command += ["--", f"-Lnative={_empty_libraries()}"]
    chosen = environment(platform)
    subprocess.run(command, cwd=ROOT, env=chosen, check=True)
    (wheel,) = (each for each in (ROOT / "dist").glob("*.whl") if platform_of(each.name) == platform)
    settle(wheel, ROOT, int(chosen["SOURCE_DATE_EPOCH"]), licences_of_zig(platform))
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", flush=True)


def main(targets: list[str]) -> None:
    """Build the wheels of these targets, or of all.

    Raises:
        SystemExit: a target is unknown, something is missing, or a build failed.
    """
    known = {platform.target: platform for platform in PLATFORMS}
    unknown = [target for target in targets if target not in known]
    if unknown:
        sys.exit(f"wheels.py: unknown targets {', '.join(unknown)}; there are {', '.join(known)}")
    try:
        for target in targets or known:
            build(known[target])
    except (BuildError, subprocess.CalledProcessError) as error:
        sys.exit(f"wheels.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
