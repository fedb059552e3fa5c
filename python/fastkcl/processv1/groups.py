"""Names of groups of stitches, and addresses of single ones.

A stitch is of an application, a component and a version. A group is all stitches of an application, of a component
of it, or of a version of that: ``App``, ``App.Comp``, ``App.Comp.1``. Of a name with more parts only two count.
"""

from __future__ import annotations

from fastkcl.stdio.frozen import Frozen


class GroupName(Frozen):
    """A group, by its parts.

    Attributes:
        application: the first part.
        component: the second part; None in the name of an application.
        version: the third part; None in the name of an application or a component.
    """

    __slots__ = ("application", "component", "version")

    application: str
    component: str | None
    version: str | None

    def __init__(self, application: str, component: str | None = None, version: str | None = None) -> None:
        if version is not None and component is None:
            raise ValueError("a version is one of a component: give both")
        self._freeze(application, component, version)

    @classmethod
    def parse(cls, name: str) -> GroupName:
        """The group that `name` stands for."""
        parts = name.split(".")
        return cls(*parts) if len(parts) <= 3 else cls(*parts[:2])

    def contains(self, other: GroupName) -> bool:
        """Whether every stitch of `other` is one of this group's."""
        if self.version is not None:
            return self == other
        if self.component is not None:
            return (self.application, self.component) == (other.application, other.component)
        return self.application == other.application

    def __str__(self) -> str:
        return ".".join(part for part in self._values() if isinstance(part, str))


class AddressError(ValueError):
    """An address of more than two parts."""

    kind = "address"


class InstanceAddress(Frozen):
    """Where a stitch is.

    Args:
        node: its node; empty if `instance` names it, or for the node of who sends.
        instance: its id, or ``node:id``.

    Raises:
        AddressError: more than one colon, or a node in both.
    """

    __slots__ = ("instance", "node")

    instance: str
    node: str

    def __init__(self, node: str, instance: str) -> None:
        if not node and ":" in instance:
            node, _, instance = instance.partition(":")
        if ":" in instance:
            raise AddressError(f"an address is id or node:id, not {f'{node}:{instance}' if node else instance!r}")
        self._freeze(instance, node)

    @classmethod
    def parse(cls, address: str) -> InstanceAddress:
        """The address ``id`` or ``node:id``.

        Raises:
            AddressError: more than one colon.
        """
        return cls("", address)

    def __str__(self) -> str:
        return f"{self.node}:{self.instance}" if self.node else self.instance
