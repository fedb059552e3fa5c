"""Modules that moved and that the docs had named are still imported by their earlier paths."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("from fastkcl.spark.buffer import BatchBuffer as found", "fastkcl.write_after.BatchBuffer"),
        ("import fastkcl.spark.buffer; found = fastkcl.spark.buffer.Run", "fastkcl.write_after.Run"),
        ("from fastkcl.spark.sinks.folders import unspelled as found", "fastkcl.tables.folders.unspelled"),
    ],
)
def test_an_earlier_path(statement: str, name: str) -> None:
    script = f"{statement}\nprint(f'{{found.__module__}}.{{found.__qualname__}}')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name}\n"
