"""The codec's cases once more on each backend that this CPU has, but the one that is taken by itself: each in
a process of its own that is forced to it.

The backends that this CPU or build does not have are named in the terminal summary. FASTKCL_REQUIRE_ISA
(comma-separated, e.g. ``avx2,avx512``) makes a missing one a failure.
"""

import os
import subprocess
import sys

import case_files
import codec_helpers
import pytest
from fastkcl import _core
from paths import ROOT, TESTS

CODEC_TESTS = (
    "codec/test_base64_cases.py",
    "codec/test_decoder_captures.py",
    "codec/test_decoder_isa.py",
    "codec/test_json_grammar_cases.py",
    "codec/test_kcl_decode_cases.py",
    "kinesis/test_get_records.py",
    "codec/test_property_base64.py",
    "codec/test_property_messages.py",
)
SUPPORTED = _core.supported_isas()
OTHERS = [name for name in SUPPORTED if name != _core.isa()]
"""`make test` has all of them on the one that it takes by itself."""


@pytest.mark.parametrize("isa", [*OTHERS, *(name for name in codec_helpers.REQUIRED_ISAS if name not in SUPPORTED)])
def test_codec_cases_on_isa(isa: str) -> None:
    assert isa in SUPPORTED, f"FASTKCL_REQUIRE_ISA names {isa}; this CPU and build have {', '.join(SUPPORTED)}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
    child = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--tb=short",
            "-p",
            "no:cacheprovider",
            f"--rootdir={ROOT}",
            f"--cases={case_files.directory()}",
            *(str(TESTS / name) for name in CODEC_TESTS),
        ],
        cwd=ROOT,
        env={**environment, "FASTKCL_FORCE_ISA": isa},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert child.returncode == 0, f"on {isa}:\n{child.stdout[-6000:]}\n{child.stderr[-2000:]}"
