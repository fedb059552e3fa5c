"""Takes out of a wheel everything that depends on the place and time of its build.

maturin writes a list of the extension's parts (CycloneDX), with the time, a random number and the sources' folder. Here
the number is of the list's own content, the time is SOURCE_DATE_EPOCH and the folder is /fastkcl; the files of the
wheel come in the order of their names, with one time. zopfli packs them: that takes half a minute and saves 3 %.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import uuid
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

from zopfli.zlib import compress


def list_of_contents(text: str, root: Path, epoch: int) -> str:
    """The CycloneDX list without what differs between two builds of one commit.

    Args:
        text: as maturin wrote it.
        root: the folder of the sources.
        epoch: the commit's time, in seconds since 1970.
    """
    bom = json.loads(re.sub(r"(path\+file://)" + re.escape(str(root)) + r"(?=[/#])", r"\1/fastkcl", text))
    bom.pop("serialNumber", None)
    bom["metadata"]["timestamp"] = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom, sort_keys=True))
    return json.dumps({"serialNumber": f"urn:uuid:{number}", **bom}, indent=2) + "\n"


def record(files: dict[str, bytes], name: str) -> bytes:
    """The wheel's own list, RECORD: each file with its SHA-256 and size; for itself neither."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((path, f"sha256={digest}", len(content)))
    rows.writerow((name, "", ""))
    return out.getvalue().encode()


class Packer:
    """What zipfile asks of a compressor: a file in pieces, which come out as one at its end."""

    def __init__(self, *_: object) -> None:
        self._content = bytearray()

    def compress(self, piece: bytes) -> bytes:
        """Keep a piece."""
        self._content += piece
        return b""

    def flush(self) -> bytes:
        """All of it, packed; without zlib's header and sum, which a zip has in places of its own."""
        # More rounds than one save a quarter of a per cent, and cost half as much time again.
        return compress(bytes(self._content), numiterations=1)[2:-4]


def settle(wheel: Path, root: Path, epoch: int, licences: Mapping[str, bytes] | None = None) -> None:
    """Write the wheel again, so that its bytes depend on the sources and the tools alone.

    Args:
        wheel: its file.
        root: the folder of the sources.
        epoch: the commit's time, in seconds since 1970.
        licences: more of them, by the names of their files: of what the linker has added.
    """
    modes = {}
    files = {}
    with zipfile.ZipFile(wheel) as archive:
        for each in sorted(archive.infolist(), key=lambda each: each.filename):
            if not each.is_dir():
                files[each.filename] = archive.read(each)
                modes[each.filename] = 0o100755 if (each.external_attr >> 16) & 0o111 else 0o100644
    name = next(path for path in files if path.endswith(".dist-info/RECORD"))
    del files[name]
    folder = name.removesuffix("RECORD")
    for licence, content in sorted((licences or {}).items()):
        path = f"{folder}licenses/{licence}"
        files[path], modes[path] = content, 0o100644
        headers, _, text = files[f"{folder}METADATA"].decode().partition("\n\n")
        files[f"{folder}METADATA"] = f"{headers}\nLicense-File: {licence}\n\n{text}".encode()
    for path, content in files.items():
        if path.endswith(".cyclonedx.json"):
            files[path] = list_of_contents(content.decode(), root, epoch).encode()
    files[name] = record(files, name)
    settled = wheel.with_suffix(".settled")
    with zipfile.ZipFile(settled, "w") as archive, patch.object(zipfile, "_get_compressor", Packer):
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)  # of 1980-01-01, the first that a zip can have
            entry.external_attr = modes[path] << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    settled.replace(wheel)
