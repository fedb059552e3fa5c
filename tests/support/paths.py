"""Where things are in the checkout: one place for it, so that a test file can move."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SUPPORT = TESTS / "support"
"""Helpers of tests; on the path of pytest, and of programs that need one."""
PROGRAMS = TESTS / "programs"
"""Every program that a test starts as a process."""
DATA = TESTS / "data"
CASES = DATA / "cases"
EXAMPLES = ROOT / "examples"
