"""Runs tests of the checkout against a wheel in dist/, installed; the checkout's own package is not there.

    tools/try_wheel.py native [PYTEST...]  this machine's Linux: the quick suite, or the tests of pytest's arguments
    tools/try_wheel.py cases [PYTEST...]   this Linux: the conformance cases, in a clean environment of this Python
    tools/try_wheel.py arm [PYTEST...]     64-bit Arm, under qemu: the conformance cases (tools/debian.sh arm)
    tools/try_wheel.py musl [PYTEST...]    musl: the same, in a Python that tools/build_python.sh builds

The development environment, .venv, lends its packages to the first. The others get those that the cases need.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from platforms import platform_of

ROOT = Path(__file__).resolve().parent.parent
DEVELOPMENT = Path(os.environ.get("BIN", ROOT / ".venv" / "bin")).parent
FOLDER = ROOT / "target" / "wheel-tests"
ARM_ROOT = ROOT / "target" / "arm-root"
MUSL_ROOT = ROOT / "target" / "musl-python"
PACKAGES = ("pytest", "pytest-timeout", "hypothesis", "psutil", "typing_extensions")
ARROW = ("pyarrow", "aws-kinesis-agg", "six")  # the second needs the third, and does not say so
# They decode in the process of the tests.
CASES = (
    *(
        "tests/codec/test_base64_cases.py",
        "tests/codec/test_json_grammar_cases.py",
        "tests/codec/test_kcl_decode_cases.py",
    ),
    *("tests/codec/test_decoder_isa.py", "tests/codec/test_decode_error.py", "tests/kcl/test_connection.py"),
    "tests/processv1/test_cases.py",
    *(OF_ARROW := ("tests/dkb/test_framing.py", "tests/kinesis/test_kpl.py")),
)


class TrialError(Exception):
    """A wheel cannot be tried. `str()` says what is missing."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A Python of another kind than this machine's.

    Attributes:
        command: how it is started.
        wheel: one of the tags of the platform in the wheel's name, as tools/platforms.py has it.
        tags: whose binary packages it loads, as pip names platforms.
        made_by: what brings it.
        packages: those that the tests need.
        left_out: tests, and files of tests, that it cannot run.
    """

    command: tuple[str | Path, ...]
    wheel: str
    tags: tuple[str, ...]
    made_by: str
    packages: tuple[str, ...]
    left_out: tuple[str, ...] = ()


FOREIGN = {
    "arm": Foreign(
        ("qemu-aarch64", "-L", ARM_ROOT, ARM_ROOT / "usr" / "bin" / "python3.11"),
        "manylinux_2_17_aarch64",
        ("manylinux2014_aarch64", "manylinux_2_28_aarch64"),
        "tools/debian.sh arm",
        (*PACKAGES, *ARROW),
        (  # they start children, which an emulated Python cannot
            "tests/kinesis/test_kpl.py::test_a_bomb_does_not_go_off",
            "tests/kinesis/test_kpl.py::test_records_that_lack_a_field_take_no_memory",
        ),
    ),
    "musl": Foreign(
        (MUSL_ROOT / "bin" / "python3.11",),
        f"musllinux_1_2_{platform.machine()}",
        (f"musllinux_1_2_{platform.machine()}", f"musllinux_1_1_{platform.machine()}"),
        "tools/debian.sh musl and tools/build_python.sh musl target/musl-python",
        PACKAGES,
        OF_ARROW,  # pyarrow for musl ends this Python by a signal when it is imported
    ),
}


def the_wheel(tag: str) -> Path:
    """The one wheel in dist/ of a platform. maturin decides on the order of tags in its name.

    Raises:
        TrialError: there is none, or more than one.
    """
    wheels = [(wheel, platform_of(wheel.name)) for wheel in (ROOT / "dist").glob("*.whl")]
    found = [wheel for wheel, its in wheels if its is not None and its.tag == tag]
    if len(found) != 1:
        raise TrialError(f"dist/ has {len(found)} wheels of {tag}; run make wheels")
    return found[0]


def native() -> Path:
    """An environment with the wheel and, after it, the packages of .venv; gives its Python."""
    wheel = the_wheel(f"manylinux_2_17_{platform.machine()}")
    folder = FOLDER / "native"
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel], check=True
    )
    (packages,) = DEVELOPMENT.glob("lib/python3*/site-packages")
    (own,) = folder.glob("lib/python3*/site-packages")
    # A folder that is named so is searched last, and files in it that name others, such as the checkout, are not read.
    (own / "development.pth").write_text(f"{packages}\n")
    return python


def alone() -> Path:
    """An environment with the wheel and what the cases need; gives its Python."""
    folder = FOLDER / "cases"
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    wheel = the_wheel(f"manylinux_2_17_{platform.machine()}")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES, *ARROW, wheel, ROOT / "tests" / "plugin"], check=True)
    return python


def foreign(kind: str) -> tuple[list[str | Path], dict[str, str]]:
    """How to start that kind of Python with the wheel, and in which environment.

    Raises:
        TrialError: it is not there.
    """
    python = FOREIGN[kind]
    if not Path(python.command[-1]).exists():
        raise TrialError(f"there is no {python.command[-1]}: {python.made_by}")
    folder = FOLDER / kind
    shutil.rmtree(folder, ignore_errors=True)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    pip += ["--target", folder, "--python-version", "3.11", "--only-binary=:all:", "--implementation", "cp"]
    pip += [
        "--abi",
        "cp311",
        "--abi",
        "abi3",
        "--abi",
        "none",
        *(word for tag in python.tags for word in ("--platform", tag)),
    ]
    subprocess.run([*pip, *python.packages, the_wheel(python.wheel)], check=True)
    # A Python that musl-gcc has built takes itself for one of glibc, and would pass over these names.
    for library in list(folder.rglob("*.cpython-311-*-linux-musl.so")):
        library.rename(library.with_name(f"{library.name.split('.')[0]}.so"))
    # The tests' own plugin is pure, and is loaded by its name: there is nothing to build.
    shutil.copy2(ROOT / "tests" / "plugin" / "fastkcl_cases.py", folder)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return [*python.command], environment


def main(arguments: list[str]) -> None:
    """Do what the command line says.

    Raises:
        SystemExit: with pytest's code, or a message where nothing could be tried.
    """
    try:
        match arguments:
            case ["native", *words]:
                command: list[str | Path] = [native(), "-m", "pytest", *(words or ["tests"])]
                environment = dict(os.environ)
            case ["cases", *words]:
                command = [alone(), "-m", "pytest", *(words or ["-q", *CASES])]
                environment = dict(os.environ)
            case ["arm" | "musl" as kind, *words]:
                python, environment = foreign(kind)
                command = [
                    *python,
                    "-m",
                    "pytest",
                    "-p",
                    "fastkcl_cases",
                    "-p",
                    "no:cacheprovider",
                    *(f"--deselect={test}" for test in FOREIGN[kind].left_out if "::" in test),
                    *(words or ["-q", *(case for case in CASES if case not in FOREIGN[kind].left_out)]),
                ]
            case _:
                sys.exit("usage: try_wheel.py native|cases|arm|musl [PYTEST...]")
    except TrialError as error:
        sys.exit(f"try_wheel.py: {error}")
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main(sys.argv[1:])
