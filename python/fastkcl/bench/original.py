"""amazon_kclpy itself, where it is installed: in this environment, or in the folder that an environment variable names.

Its steps restated (`kclpy_steps`) stand in for it elsewhere, and every table names the one it used.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys

__all__ = ["PACKAGES_VARIABLE", "import_original", "name"]

PACKAGES_VARIABLE = "FASTKCL_BENCH_KCLPY"
"""Environment variable: a folder of packages (site-packages) with amazon_kclpy, after all others on the path."""


def import_original() -> str | None:
    """Have ``import amazon_kclpy`` work, if it can; its version."""
    folder = os.environ.get(PACKAGES_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.metadata.version("amazon_kclpy")
    except importlib.metadata.PackageNotFoundError:
        return None


def name() -> str:
    """E.g. ``amazon_kclpy 3.1.3``, or ``amazon_kclpy (steps)`` for the restatement."""
    return f"amazon_kclpy {import_original() or '(steps)'}"
