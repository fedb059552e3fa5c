"""The error of a refused checkpoint."""

__all__ = ["CheckpointError"]


class CheckpointError(Exception):
    """The daemon refused a checkpoint.

    Args:
        value: the error's name as the daemon sent it, e.g. ThrottlingException.

    Attributes:
        value: the same.
    """

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return repr(self.value)
