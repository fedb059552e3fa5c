"""The logger of children that have set up no logging."""

from __future__ import annotations

import subprocess
import sys

import pytest
from paths import ROOT


def test_names_and_errors_do_not_control_a_terminal() -> None:
    code = (
        "from fastkcl.stdio.log import logger\n"
        "try: raise ValueError('b\x1b[2J')\n"
        "except ValueError: logger().warning('%s: \u00fc\x9b5m', 'shard\x1b]0;x\x07\\r', exc_info=True)\n"
    )
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], capture_output=True, timeout=60, check=True)
    text = done.stderr.decode()
    assert text.startswith("fastkcl: WARNING: shard\\x1b]0;x\\x07\\r: \u00fc\\x9b5m\nTraceback (most recent")
    assert text.endswith("\nValueError: b\\x1b[2J\n")


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("", "shard\\x1b]0;x\\x07\\r: \u00fc\\x9b5m\nTraceback (most recent call last):"),
        ("logging.lastResort = None", ""),
        ("logging.getLogger('fastkcl').addHandler(logging.NullHandler())", ""),
        ("logging.getLogger('fastkcl').setLevel('ERROR')", ""),
        ("logging.basicConfig(format='own: %(message)s')", "own: shard\x1b]0;x\x07\\r: \u00fc\x9b5m\nTraceback"),
        (
            "from fastkcl.stdio.log import logger; logger().setLevel(30)",
            "fastkcl: WARNING: shard\\x1b]0;x\\x07\\r: \u00fc\\x9b5m\nTr",
        ),
    ],
)
def test_a_module_s_lines_in_a_program_without_logging(setup: str, said: str) -> None:
    code = (
        "import logging\n"
        "from fastkcl.stdio.log import module_logger\n"
        "log = module_logger('fastkcl.kinesis.client')\n"
        f"{setup}\n"
        "log.info('not this')\n"
        "try: raise ValueError('b\x1b[2J')\n"
        "except ValueError: log.warning('%s: \u00fc\x9b5m', 'shard\x1b]0;x\x07\\r', exc_info=True)\n"
    )
    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], capture_output=True, timeout=60, check=True)
    text = done.stderr.decode().replace("\r", "\\r")
    assert text.startswith(said)
    assert bool(text) == bool(said)
    assert text.count("ValueError: b") == bool(said)


def test_no_module_logs_past_it() -> None:
    package = ROOT / "python" / "fastkcl"
    rooms = [package / room for room in ("kinesis", "leases", "tables", "processing", "payloads", "processv1", "dkb")]
    found = [path for room in rooms for path in room.rglob("*.py") if "getLogger(__name__)" in path.read_text()]
    assert found == []
