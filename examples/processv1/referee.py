"""A stitch on fastkcl that joins the others: it hears when a game of its group is over, and thanks the players."""

from fastkcl.processv1 import Stitch, ToStitchMessage, run


def referee(message: ToStitchMessage, stitch: Stitch) -> None:
    """Called for each message of data; it is acknowledged when this returns."""
    sender = message.from_stitch_instance_id
    if message.channel_name is None and sender:  # to the group
        stitch.log(f"{sender} has {message.data}")
        stitch.send_to(sender, "thanks", channel="referee")


run(referee)
