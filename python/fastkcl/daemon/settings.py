"""The daemon's properties as it gets them; `fastkcl.daemon.options` puts them together."""

from __future__ import annotations

from dataclasses import dataclass, field

import javaproperties

from fastkcl.daemon.keys import Generation

__all__ = ["Options", "Setting"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One property as the daemon gets it."""

    key: str
    value: str
    origin: str


@dataclass(slots=True)
class Options:
    """All settings that the daemon gets.

    Attributes:
        generation: which daemon.
        settings: by key, in the daemon's spelling; those that it does not know, as they were written.
        warnings: problems that the daemon would not have reported.
        notes: decisions made here that are worth knowing.
        secrets: system properties for the JVM that nobody but it may see.
    """

    generation: Generation
    settings: dict[str, Setting] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)

    def get(self, key: str) -> str | None:
        """The value of a key, in the daemon's spelling; None if nobody set it."""
        setting = self.settings.get(key)
        return None if setting is None else setting.value

    def properties(self) -> str:
        """The properties file, as text in ASCII."""
        lines = [
            javaproperties.join_key_value(setting.key, setting.value)
            for setting in sorted(self.settings.values(), key=lambda setting: setting.key.lower())
        ]
        return "".join(f"{line}\n" for line in lines)

    @property
    def application(self) -> str:
        """The application's name."""
        return self.settings["applicationName"].value

    @property
    def stream(self) -> str:
        """The stream's name; from the ARN where there is one, as the daemon does."""
        arn = self.get("streamArn")
        return arn.rpartition("/")[2] if arn else self.settings["streamName"].value
