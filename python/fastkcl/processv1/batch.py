"""A run of messages as Arrow columns, with the messages that it is made of."""

from __future__ import annotations

from fastkcl._core import DecodeError, stitch_batch
from fastkcl.stdio.frozen import Frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from fastkcl._core import MessageBatch, ToStitchMessage


class StitchBatch(Frozen):
    """Messages, a row each: id (int64), channel, sender, node (strings), data (binary of base64, or string of text).

    Attributes:
        columns: any Arrow library imports them without a copy, e.g. ``pyarrow.record_batch(batch.columns)``.
        messages: of the columns, to be acknowledged when they are processed.
    """

    __slots__ = ("columns", "messages")

    columns: MessageBatch
    messages: tuple[ToStitchMessage, ...]

    def __init__(self, columns: MessageBatch, messages: tuple[ToStitchMessage, ...]) -> None:
        self._freeze(columns, messages)

    def __len__(self) -> int:
        return len(self.messages)


def batch_of(
    messages: Sequence[ToStitchMessage], data: Literal["base64", "text"]
) -> tuple[StitchBatch, list[tuple[ToStitchMessage, DecodeError]]]:
    """The batch of the messages that can be decoded, and the others with their errors."""
    try:
        return StitchBatch(stitch_batch(messages, data=data), tuple(messages)), []
    except DecodeError:
        good, bad = [], []
        for message in messages:
            try:
                stitch_batch([message], data=data)
                good.append(message)
            except DecodeError as error:
                bad.append((message, error))
        if not bad:  # each fits, but not all together
            raise
        return StitchBatch(stitch_batch(good, data=data), tuple(good)), bad
