"""`@processor`: one function as a `ProcessorStage`.

    @dkb.processor(input_type="json", output_type="json")
    def transform(content):
        yield {**content, "seen": True}

    if __name__ == "__main__":
        sys.exit(transform.run())

The function gets the content of a message (in batches a list of contents, with ``"arrow"`` a `MessageBatch`) and gives
its results: None for none, a list or a generator for several, anything else for one. Messages that are marked
incomplete mark the results of the request; batches mark all of theirs if one of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastkcl.dkb.messages import JSONMessage, Message, MessageType, message_class
from fastkcl.dkb.stage import Input, ProcessorStage, contents, results_of

__all__ = ["FunctionStage", "processor"]


class FunctionStage(ProcessorStage):
    """A stage that calls a function; made by `processor`."""

    def __init__(
        self,
        function: Callable[[Any], object],
        *,
        input_type: MessageType = "json",
        output_type: MessageType = "json",
        batch_size: int = 1,
        extract: bool = False,
    ) -> None:
        super().__init__((function.__doc__ or "").partition("\n")[0])
        self.extract = extract  # type: ignore[misc]  # of this stage
        self.function = function
        self.set_input_message_type(input_type)
        self.set_output_message_type(output_type)
        self.set_batch_size(batch_size)
        self._result_class = message_class(output_type)

    def process(self, request: Input) -> bool:
        """Call the function; its results are the request's."""
        messages = request if isinstance(request, list) else [request]
        incomplete = any(isinstance(message, Message) and message.incomplete() for message in messages)
        for value in results_of(self.function(contents(request))):
            result = value if isinstance(value, Message) else self._result_class(value)
            if incomplete and isinstance(result, JSONMessage) and isinstance(result.content(), dict):
                result.incomplete(True)
            self.output(result)
        return True


def processor(
    *,
    input_type: MessageType = "json",
    output_type: MessageType = "json",
    batch_size: int = 1,
    extract: bool = False,
) -> Callable[[Callable[[Any], object]], FunctionStage]:
    """Make a stage of a function.

    Args:
        input_type: ``"json"``, ``"ttl"``, ``"text"``, ``"bytes"``, or ``"arrow"`` for columns.
        output_type: the same without ``"arrow"``.
        batch_size: 1: one message a call; n: batches that the stage asks for; 0: that the supervisor ends.
        extract: an empty message is a trigger; the function gets None for it.

    Returns:
        A decorator that makes a `FunctionStage`.

    Raises:
        ValueError: an unknown type or a negative size.
    """

    def decorate(function: Callable[[Any], object]) -> FunctionStage:
        return FunctionStage(
            function, input_type=input_type, output_type=output_type, batch_size=batch_size, extract=extract
        )

    return decorate
