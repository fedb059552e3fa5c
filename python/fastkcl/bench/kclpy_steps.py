"""The decoding steps of amazon_kclpy 3.1.3, re-stated for machines where that package is not installed.

For each line it calls `json.loads` with an object hook. The hook makes an object for the message and one for each
record (number, sub-number, key, data, the time in ms and as a local datetime; it keeps the dictionary). Base64 is
decoded when user code reads `binary_data`. The public names are the original's.
"""

import base64
import json
from datetime import datetime
from typing import Any


class Record:
    """A record as user code gets it."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._sequence_number: str = members["sequenceNumber"]
        self._sub_sequence_number: int = members["subSequenceNumber"]
        self._timestamp_millis = int(members["approximateArrivalTimestamp"])
        self._arrival = datetime.fromtimestamp(self._timestamp_millis / 1000.0)
        self._partition_key: str = members["partitionKey"]
        self._data: str = members["data"]
        self._members = members

    @property
    def binary_data(self) -> bytes:
        """The payload, decoded at each access."""
        return base64.b64decode(self._data)

    @property
    def sequence_number(self) -> str:
        """As on the wire."""
        return self._sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """As on the wire."""
        return self._sub_sequence_number

    @property
    def timestamp_millis(self) -> int:
        """Milliseconds since the epoch."""
        return self._timestamp_millis

    @property
    def partition_key(self) -> str:
        """As on the wire."""
        return self._partition_key


class Message:
    """Any other object of a line: the message itself."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.action = members["action"]
        self.records: list[Record] = members.get("records", [])


def message_decode(members: dict[str, Any]) -> Message | Record:
    """The object hook: chosen by `action`, which records have as well."""
    return Record(members) if members["action"] == "record" else Message(members)


def decode(line: str) -> Any:
    """One line as the original reads it: a `Message`, if it is one."""
    return json.loads(line, object_hook=message_decode)
