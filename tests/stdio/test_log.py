"""The logger of children that have set up no logging."""

from __future__ import annotations

import subprocess
import sys


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
