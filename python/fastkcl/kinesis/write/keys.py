"""Partition keys of records that a program puts."""

from __future__ import annotations

import uuid

from fastkcl.kinesis.exceptions import ValidationError

__all__ = ["MAX_KEY_BYTES", "check_key", "random_key"]

MAX_KEY_BYTES = 256


def check_key(partition_key: str) -> None:
    """Refuse a value that cannot be a partition key.

    Raises:
        ValidationError: it is not text of 1 to 256 bytes in UTF-8.
    """
    if not isinstance(partition_key, str):
        raise ValidationError(f"a partition key must be a string, not {type(partition_key).__name__}")
    try:
        size = len(partition_key.encode())
    except UnicodeEncodeError as error:
        raise ValidationError(f"a partition key has to be UTF-8: {error}") from None
    if not size:
        raise ValidationError("a partition key cannot be empty")
    if size > MAX_KEY_BYTES:
        raise ValidationError(f"a partition key must be {MAX_KEY_BYTES} bytes or less in UTF-8, not {size}")


def random_key() -> str:
    """A key for a record that was given none."""
    return str(uuid.uuid4())
