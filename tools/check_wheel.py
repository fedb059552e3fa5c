"""Checks wheels, and imports those of this machine's kind in a clean environment.

    tools/check_wheel.py WHEEL...           their content, their demands on the system, then the import
    tools/check_wheel.py --import WHEEL...  the import alone
    tools/check_wheel.py --import SOURCES   the import of what is built of them

A wheel for another system is checked as far as it can be, and the table says that it was not imported.
"""

from __future__ import annotations

import platform as machine
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from platforms import PLATFORMS, Platform, platform_of
from wheel_contents import MOST_BYTES

CHECK = """
import sys
import fastkcl
import fastkcl.kclpy
from fastkcl import _core
heavy = {"pyarrow", "pyspark", "click", "rich", "numpy"} & set(sys.modules)
assert not heavy, heavy
message = fastkcl.decode_line(b'{"action":"processRecords","records":[]}')
assert len(message.batch) == 0
fastkcl.kclpy.install()
import amazon_kclpy.kcl
from amazon_kclpy import helper
helper.main(["--print_classpath", "--sample"])
from fastkcl.daemon import jars, keys
from importlib.util import find_spec
assert find_spec("pyspark_fastkcl_kinesis") and find_spec("pyspark_fastkcl_aws_kinesis")
assert all(keys.all_keys(each) and jars.locked(each) for each in keys.Generation)
print(f"fastkcl {fastkcl.__version__} from a clean environment, {_core.isa()}")
"""


def is_this_machine(platform: Platform) -> bool:
    """Whether wheels for a platform run on this machine."""
    names = {"arm64": "aarch64", "AMD64": "x86_64"}
    system = {"linux": "linux-gnu" if machine.libc_ver()[0] else "linux-musl", "darwin": "darwin", "win32": "windows"}
    processor = names.get(machine.machine(), machine.machine())
    return platform.target.startswith(processor) and system.get(sys.platform, "?") in platform.target


def check_static(wheel: Path, platform: Platform) -> str:
    """What is in a wheel, and what it asks of its system, in a line.

    Raises:
        SystemExit: it must not be published.
    """
    # Of tools/wheels.txt; who only imports a wheel needs none of them.
    from wheel_contents import ContentsError, check_contents, check_stable_abi, extension_of
    from wheel_symbols import SymbolError
    from wheel_symbols import check as check_symbols

    try:
        contents = check_contents(wheel, platform)
        check_stable_abi(wheel)
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            extension = archive.extract(extension_of(archive), folder)
            return f"{contents}, {check_symbols(Path(extension), platform)}"
    except (ContentsError, SymbolError) as error:
        sys.exit(f"{wheel.name}: {error}")


def try_import(wheel: Path) -> None:
    """Install a wheel, or the sources, alone into a clean environment, and import it there: nothing heavy is loaded.

    Raises:
        subprocess.CalledProcessError: it failed, and has said why.
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, *(("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")))
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        alone = ["--no-index"] if wheel.suffix == ".whl" else []  # sources need maturin to be built
        subprocess.run([*pip, *alone, wheel.resolve()], check=True)
        subprocess.run([python, "-I", "-c", CHECK], check=True, cwd=folder)


def main(arguments: list[str]) -> None:
    """Check each wheel.

    Raises:
        SystemExit: no wheel was named, a name is wrong, or a check failed.
    """
    only_import = arguments[:1] == ["--import"]
    wheels = [Path(each) for each in arguments[only_import:]]
    if not wheels:
        sys.exit("usage: check_wheel.py [--import] WHEEL…")
    imported = 0
    for wheel in wheels:
        if only_import and wheel.name.endswith(".tar.gz"):
            try_import(wheel)
            print(f"{wheel.name}: built, and imported by Python {machine.python_version()}", flush=True)
            imported += 1
            continue
        platform = platform_of(wheel.name)
        if platform is None:
            sys.exit(f"{wheel}: its name is none of cp311-abi3 for {', '.join(each.tag for each in PLATFORMS)}")
        if (size := wheel.stat().st_size) > MOST_BYTES:
            sys.exit(f"{wheel}: {size:,} bytes, more than {MOST_BYTES:,}")
        said = [] if only_import else [check_static(wheel, platform)]
        if is_this_machine(platform):
            try_import(wheel)
            said.append(f"imported by Python {machine.python_version()}")
            imported += 1
        else:
            said.append("not imported: another system")
        print(f"{wheel.name}: {', '.join(said)}", flush=True)
    if only_import and not imported:
        sys.exit("check_wheel.py: no wheel is for this machine, so nothing was tried")


if __name__ == "__main__":
    main(sys.argv[1:])
