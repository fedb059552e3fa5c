"""Installs a wheel into a clean environment and imports it there: small, no dependencies, nothing heavy loaded."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LARGEST = 3_500_000
"""Bytes of a wheel. Avro, Protobuf and .proto texts take about a megabyte of them."""
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


def main(wheels: list[str]) -> None:
    """Check each wheel.

    Raises:
        SystemExit: no wheel was named, a tag is wrong, or the import failed.
    """
    if not wheels:
        sys.exit("usage: check_wheel.py WHEEL…")
    for wheel in wheels:
        if "abi3" not in wheel or "manylinux_2_17" not in wheel:
            sys.exit(f"{wheel}: not an abi3 wheel for manylinux2014")
        if (size := Path(wheel).stat().st_size) > LARGEST:
            sys.exit(f"{wheel}: {size:,} bytes, more than {LARGEST:,}")
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = Path(folder, "bin", "python")
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
            subprocess.run([*pip, Path(wheel).resolve()], check=True)
            subprocess.run([python, "-I", "-c", CHECK], check=True, cwd=folder)


if __name__ == "__main__":
    main(sys.argv[1:])
