"""From the dict of a message to its class."""

from __future__ import annotations

from fastkcl.kclpy import messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["MalformedAction", "message_decode", "messages"]


class MalformedAction(Exception):
    """A message has no action, or one that nobody knows."""


_serializers: dict[str, Any] = {
    "initialize": messages.InitializeInput,
    "processRecords": messages.ProcessRecordsInput,
    "shutdown": messages.ShutdownInput,
    "checkpoint": messages.CheckpointInput,
    "record": messages.Record,
    "shutdownRequested": messages.ShutdownRequestedInput,
    "leaseLost": messages.LeaseLostInput,
    "shardEnded": messages.ShardEndedInput,
}
# KCL 1's action for the end of a shard or a lease. Its status has to name "shutdown", so the input keeps that action.
_REASONS = {"TERMINATE": "shardEnded", "ZOMBIE": "leaseLost"}


def message_decode(json_dict: Mapping[str, Any]) -> Any:
    """Make the input, record or checkpoint answer that a dict stands for.

    Args:
        json_dict: a message by its wire names; ``records`` hold `messages.Record` objects.

    Raises:
        MalformedAction: there is no action, or an unknown one, or a shutdown for an unknown reason.
        KeyError: a field of the message is missing.
    """
    if "action" not in json_dict:
        raise MalformedAction(f"Action {json_dict} was expected to have key 'action'")
    action = json_dict["action"]
    if action not in _serializers:
        allowed = ", ".join(f'"{name}"' for name in _serializers)
        raise MalformedAction(
            f"Received an action which couldn't be understood. Action was '{action}' -- Allowed {allowed}"
        )
    if action == "shutdown" and _serializers[action] is messages.ShutdownInput:
        reason = json_dict.get("reason")
        if reason not in _REASONS:
            raise MalformedAction(f"Received a shutdown for reason {reason!r}, not TERMINATE or ZOMBIE")
        action = _REASONS[reason]
    return _serializers[action](json_dict)
