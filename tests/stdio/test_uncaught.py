"""Python's reports of exceptions under `fastkcl run`: complete wherever they go, and without control characters."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "no flush": "sys.stderr = type('Output', (), {'write': sys.stderr.write})()\nfail()",
    "standard error closed": "sys.stderr.close()\nfail()",
    "no standard error": "del sys.stderr\nfail()",
    "ASCII": "sys.stderr.reconfigure(encoding='ascii', errors='strict')\nfail()",
    "last frames": "sys.tracebacklimit = 1\nfail()",
    "own hook": "sys.excepthook = lambda *about: sys.__excepthook__(*about)\nfail()",
    "own hook of threads": "import threading\nthreading.excepthook = lambda about: threading.__excepthook__(about)\n"
    "thread = threading.Thread(target=fail)\nthread.start()\nthread.join()",
    "a thread, and then no standard error": "import threading\nthread = threading.Thread(target=fail)\n"
    "sys.stderr = None\nthread.start()\nthread.join()",
    "own hook of ignored": "sys.unraisablehook = lambda about: sys.__unraisablehook__(about)\nGone()",
    "at the end": "gone = Gone()",
}
START = r"""
import sys
def fail(): raise ValueError('b\xf6\x1b[31m\x9bY')
class Gone:
    def __del__(self, fail=fail): fail()
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_report_is_complete_and_controls_no_terminal(name: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{START}\n{PROGRAMS[name]}\n")
    command = [sys.executable, "-X", "utf8", "-m", "fastkcl", "run", str(program)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert b'program.py", line 3, in fail\n' in done.stderr
    assert done.stderr.replace(b"\\xf6", b"\xc3\xb6").count(b"ValueError: b\xc3\xb6\\x1b[31m\\x9bY") == 1
    assert b"\x1b" not in done.stderr
    assert b"\xc2\x9b" not in done.stderr


def test_a_program_without_standard_error_has_no_report(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{START}\nsys.stderr = None\nfail()\n")
    done = subprocess.run([sys.executable, "-m", "fastkcl", "run", str(program)], capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_interruption_that_a_program_shows_itself_does_not_end_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    shown = (
        "try:\n    raise KeyboardInterrupt('seen')\nexcept KeyboardInterrupt:\n    sys.excepthook(*sys.exc_info())\n"
    )
    program.write_text(f"import sys\n{shown}print('done')\n")
    done = subprocess.run([sys.executable, "-m", "fastkcl", "run", str(program)], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, [b"done"])
    assert done.stderr.splitlines()[-1] == b"KeyboardInterrupt: seen"
