"""Bodies of requests and answers: JSON, and CBOR as Amazon's Java SDKs speak it.

============  =============================  ==================================
              application/x-amz-json-1.x     application/x-amz-cbor-1.1
============  =============================  ==================================
blob          base64 text                    byte string
timestamp     seconds, with a fraction       tag 1 around **milliseconds**
============  =============================  ==================================

(RFC 8949 has seconds in tag 1. The SDKs do not.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import cbor2
import msgspec

from fastkcl.local_aws.errors import ServiceError

__all__ = ["Body", "RecordAnswer", "Timestamp", "body_format"]


class Timestamp:
    """A moment in an answer, in ms since the epoch.

    No dataclass: msgspec would write it as an object.
    """

    __slots__ = ("millis",)

    def __init__(self, millis: int) -> None:
        self.millis = millis


class RecordAnswer(msgspec.Struct, gc=False, omit_defaults=True):
    """A record in an answer. No dictionary: an answer has ten thousand.

    Attributes:
        ApproximateArrivalTimestamp: seconds since the epoch.
        EncryptionType: None to leave it out.
    """

    SequenceNumber: str
    ApproximateArrivalTimestamp: float
    Data: bytes
    PartitionKey: str
    EncryptionType: str | None = None


class Body(Protocol):
    """One of the two."""

    content_type: str

    def decode(self, body: bytes) -> object:
        """The request's value.

        Raises:
            ServiceError: SerializationException, it has none.
        """
        ...

    def encode(self, value: Mapping[str, Any]) -> bytes:
        """Of an answer with bytes, text, numbers, `Timestamp`, `RecordAnswer`, lists and mappings."""
        ...


class _Json:
    def __init__(self, content_type: str) -> None:
        self.content_type = content_type

    def decode(self, body: bytes) -> object:
        try:
            return json.loads(body) if body else {}
        except (ValueError, RecursionError) as error:
            raise ServiceError("SerializationException", f"no JSON: {error}") from None

    def encode(self, value: Mapping[str, Any]) -> bytes:
        return _JSON.encode(value)


def _to_json(value: object) -> float:
    if not isinstance(value, Timestamp):
        raise TypeError(f"{type(value).__name__} in an answer")
    return value.millis / 1000


_JSON = msgspec.json.Encoder(enc_hook=_to_json)  # eight times as fast as json; it writes bytes as base64


class _Cbor:
    content_type = "application/x-amz-cbor-1.1"

    def decode(self, body: bytes) -> object:
        try:
            return cbor2.loads(body, semantic_decoders={1: _seconds}) if body else {}
        except (cbor2.CBORDecodeError, ValueError, RecursionError) as error:
            raise ServiceError("SerializationException", f"no CBOR: {error}") from None

    def encode(self, value: Mapping[str, Any]) -> bytes:
        return cbor2.dumps(value, default=self._value)

    @staticmethod
    def _value(encoder: cbor2.CBOREncoder, value: object) -> None:
        match value:
            case Timestamp():
                encoder.encode(cbor2.CBORTag(1, value.millis))
            case RecordAnswer():
                record = {name: each for name, each in msgspec.structs.asdict(value).items() if each is not None}
                millis = round(value.ApproximateArrivalTimestamp * 1000)
                encoder.encode({**record, "ApproximateArrivalTimestamp": Timestamp(millis)})
            case _:
                raise TypeError(f"{type(value).__name__} in an answer")


def _seconds(millis: object, immutable: bool) -> float:
    del immutable
    if not isinstance(millis, int | float):
        raise ValueError("a timestamp that is not a number")
    return millis / 1000


_CBOR = _Cbor()


def body_format(content_type: str) -> Body:
    """How a request of this Content-Type is read and answered."""
    return _CBOR if "cbor" in content_type else _Json(content_type or "application/x-amz-json-1.1")
