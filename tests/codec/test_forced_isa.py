"""`FASTKCL_FORCE_ISA`: a level that there is can be forced; any other stops the import and lists them."""

import os
import subprocess
import sys

import pytest
from fastkcl import _core


def import_forced(isa: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from fastkcl import _core; print(_core.isa())"],
        env={**os.environ, "FASTKCL_FORCE_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("isa", _core.supported_isas())
def test_each_supported_level(isa):
    done = import_forced(isa)
    assert (done.returncode, done.stdout) == (0, f"{isa}\n"), done.stderr


@pytest.mark.parametrize("isa", ["mmx", "AVX2", " portable"])
def test_any_other_name_stops_the_import(isa):
    done = import_forced(isa)
    assert done.returncode == 1
    last_line = done.stderr.splitlines()[-1]
    assert last_line.startswith(f"ImportError: FASTKCL_FORCE_ISA={isa}")
    assert ", ".join(_core.supported_isas()) in last_line
