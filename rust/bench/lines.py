"""Writes one processRecords line of each payload profile, for fastkcl-bench: lines.py FOLDER.

Besides the daemon's form: ``shuffled`` has other key orders, ``spaced`` white space after colons and commas.
"""

import json
import sys
from pathlib import Path

from fastkcl.replay import profiles

ORDER = (
    "partitionKey",
    "sequenceNumber",
    "subSequenceNumber",
    "data",
    "action",
    "approximateArrivalTimestamp",
)


def main() -> None:
    """Each profile's line, and the other forms of two of them."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("iot", "clickstream", "logs", "blob", "keys", "tiny"):
        line = profiles.line(profiles.PROFILES[name])
        (folder / f"{name}.line").write_bytes(line)
        if name in ("iot", "clickstream"):
            message = json.loads(line)
            (folder / f"{name}-spaced.line").write_text(json.dumps(message) + "\n")
            message["records"] = [{key: record[key] for key in ORDER} for record in message["records"]]
            (folder / f"{name}-shuffled.line").write_text(json.dumps(message, separators=(",", ":")) + "\n")


main()
