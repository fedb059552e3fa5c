"""The documentation's site, as `make docs` builds it, in a folder of a test; and the tools in tools/, as modules."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from paths import ROOT

__all__ = ["build", "site_pages", "tool"]


def tool(name: str) -> ModuleType:
    """A program of tools/, without running it."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def site_pages() -> ModuleType:
    """tools/site_pages.py."""
    return tool("site_pages")


def build(folder: Path) -> Path:
    """Build the site below a folder, strictly: mkdocs fails for a link or an anchor that is missing."""
    pages, site = folder / "pages", folder / "site"
    environment = {**os.environ, "SITE_PAGES": str(pages), "SITE": str(site), "NO_MKDOCS_2_WARNING": "1"}
    for command in (
        [ROOT / "tools" / "site_pages.py", pages],
        ["-m", "mkdocs", "build", "--quiet", "--config-file", ROOT / "mkdocs.yml"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return site
