"""Finds the receivers of a stitch's messages. Pure functions; a sender gets no report whether anything arrived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastkcl._core import FromStitchMessage, ToStitchMessage
from fastkcl.processv1.groups import AddressError, GroupName, InstanceAddress


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes.

    Attributes:
        recipients: ids of stitches, in the order in which they were started.
        message: for them.
        why_not: why there is no recipient; empty if there is one.
    """

    recipients: tuple[str, ...]
    message: ToStitchMessage | None = None
    why_not: str = ""


def route(message: FromStitchMessage, sender: str, node: str, groups: Mapping[str, GroupName], new_id: int) -> Route:
    """Where a message of data goes.

    Args:
        message: of the stitch.
        sender: its id.
        node: the core's node.
        groups: the running stitches by id, each with its version group.
        new_id: id of the message if the sender gives it none.
    """
    if message.to_stitch_instance_id:
        return _to_instance(message, sender, node, groups, new_id)
    if message.to_group_name:
        group = GroupName.parse(message.to_group_name)
        members = tuple(each for each, of in groups.items() if each != sender and group.contains(of))
        received = ToStitchMessage(data=message.data, from_stitch_instance_id=sender, node_id=node)
        return Route(members, received, "" if members else f"no other stitch is in the group {group}")
    return Route((), why_not="data without ToStitchInstanceId or ToGroupName")


def _to_instance(
    message: FromStitchMessage, sender: str, node: str, groups: Mapping[str, GroupName], new_id: int
) -> Route:
    try:
        address = InstanceAddress.parse(message.to_stitch_instance_id or "")
    except AddressError as error:
        return Route((), why_not=str(error))
    if address.node not in ("", node):
        return Route((), why_not=f"{address} is on another node than {node}, and this core is alone")
    if address.instance not in groups:
        return Route((), why_not=f"there is no stitch {address.instance}")
    received = ToStitchMessage(
        id=message.id or new_id,
        channel_name=message.data_channel,
        data=message.data,
        from_stitch_instance_id=sender,
        node_id=node,
    )
    return Route((address.instance,), received)
