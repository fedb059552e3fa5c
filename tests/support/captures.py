"""The lines of real daemons to their children, and of children to daemons: the captures in tests/data."""

import gzip
import json
from pathlib import Path

import reference
from paths import DATA

CAPTURES = sorted(
    path for folder in ("kcl-multilang", "kcl-legacy-captures") for path in (DATA / folder).glob("*.in.*")
)
"""What children read, byte for byte."""


def name_of(capture: Path) -> str:
    """Folder and scenario, e.g. ``kcl-multilang/split.shard0``."""
    return f"{capture.parent.name}/{capture.name.partition('.in.')[0]}"


def read(capture: Path) -> bytes:
    content = capture.read_bytes()
    return gzip.decompress(content) if capture.suffix == ".gz" else content


def lines(capture: Path) -> list[bytes]:
    """Without their line feeds."""
    content = read(capture)
    assert content.endswith(b"\n")
    return content.split(b"\n")[:-1]


def expected(capture: Path) -> list[reference.Message]:
    """Its messages, as the reference reads them."""
    return [reference.read_daemon_line(line) for line in lines(capture)]


def answers(capture: Path) -> list[dict[str, object]] | None:
    """What the child of that run wrote; None where it is not kept."""
    path = capture.parent / capture.name.replace(".in.", ".out.")
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else None
