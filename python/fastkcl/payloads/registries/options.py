"""The options that name the registry of the schemas.

    "glue"                            GlueRegistry()
    "https://registry.example:8081"   ConfluentRegistry(url)
    "confluent"                       the same, by FASTKCL_REGISTRY_URL
    "schemas/"                        FolderRegistry(path)

Rules: neither a text nor the `repr` of an option has a secret. Users, passwords and tokens come from the environment,
or from a program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from fastkcl.checks import check_endpoint, check_sendable
from fastkcl.masking import without_users

__all__ = ["ConfluentRegistry", "FolderRegistry", "GlueRegistry", "RegistryOptions", "registry_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueRegistry:
    """AWS Glue Schema Registry. Credentials are those that botocore finds: environment, profile, instance's role.

    Raises:
        ValueError: the endpoint is not a URL.
    """

    region: str | None = None
    """That of the environment or the profile by default."""
    endpoint_url: str | None = None
    """Instead of AWS's; AWS_ENDPOINT_URL_GLUE and AWS_ENDPOINT_URL set it, too."""

    def __post_init__(self) -> None:
        if self.endpoint_url:
            names = "endpoint_url, AWS_ENDPOINT_URL_GLUE, AWS_ENDPOINT_URL"
            check_endpoint(f"the endpoint of Glue's registry ({names})", self.endpoint_url)

    def __repr__(self) -> str:
        """Without the user of a URL."""
        endpoint = None if self.endpoint_url is None else without_users(self.endpoint_url)
        return f"GlueRegistry(region={self.region!r}, endpoint_url={endpoint!r})"

    def __str__(self) -> str:
        where = without_users(self.endpoint_url or "") or self.region
        return f"Glue at {where or 'the region of the environment'}"


@dataclass(frozen=True, slots=True)
class ConfluentRegistry:
    """A registry with the interface of Confluent's, over HTTP.

    Raises:
        ValueError: the URL cannot be one, holds a user, two ways to authenticate are given, or no header can
            carry a secret.
    """

    url: str
    """As ``https://registry.example:8081``; a path before ``/schemas`` is kept."""
    user: str | None = None
    """For basic authentication; FASTKCL_REGISTRY_USER by default."""
    password: str | None = field(default=None, repr=False)
    """FASTKCL_REGISTRY_PASSWORD by default."""
    token: str | None = field(default=None, repr=False)
    """A bearer token; FASTKCL_REGISTRY_TOKEN by default."""
    ca_bundle: str | None = None
    """File of the certificates that are trusted; FASTKCL_REGISTRY_CA, or the system's, by default."""

    def __post_init__(self) -> None:
        if "@" in self.url:  # also of a password with a slash, which ends a URL's host
            raise ValueError("the registry's URL must hold no user: give user= and password=, or their variables")
        if "?" in self.url or "#" in self.url:
            raise ValueError("the registry's URL must hold no query and no fragment: https://registry.example:8081")
        try:
            check_endpoint("", self.url)
        except ValueError:
            raise ValueError(f"registry {self.url!r}: must be a URL such as https://registry.example:8081") from None
        for name, value in (("user", self.user), ("password", self.password), ("token", self.token)):
            if value is not None:
                check_sendable(f"the {name} of a registry", value, is_header=name == "token")
        if self.token is not None and self.user is not None:
            raise ValueError("a registry takes a user or a token: give one of them")
        if (self.user is None) != (self.password is None):
            raise ValueError("user= and password= of a registry come together")

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True, slots=True)
class FolderRegistry:
    """Files by id: ``<id>.avsc``, ``<id>.proto`` or ``<id>.json``. Of single objects any ``.avsc``, by fingerprint.

    An id is written as its header has it: Glue's as UUID in lower case, Confluent's as decimal number, of single
    objects as 16 hexadecimal digits.
    """

    path: str | os.PathLike[str]

    def __str__(self) -> str:
        return f"the folder {os.fspath(self.path)}"


RegistryOptions: TypeAlias = GlueRegistry | ConfluentRegistry | FolderRegistry


def registry_of(
    registry: str | os.PathLike[str] | RegistryOptions, environment: Mapping[str, str] | None = None
) -> RegistryOptions:
    """The registry that is meant.

    Args:
        registry: its options, or the text for it.
        environment: os.environ if None.

    Raises:
        TypeError: it is something else.
        ValueError: it cannot be one.
    """
    if isinstance(registry, GlueRegistry | ConfluentRegistry | FolderRegistry):
        return registry
    if not isinstance(registry, str | os.PathLike):
        raise TypeError(f"registry must be 'glue', 'confluent', a URL, a folder or a registry, not {registry!r}")
    environment = os.environ if environment is None else environment
    text = os.fspath(registry)
    if text == "glue":
        return GlueRegistry()
    if text == "confluent" or text.startswith(("http://", "https://")):
        url = environment.get("FASTKCL_REGISTRY_URL", "").strip() if text == "confluent" else text
        if not url:
            raise ValueError("registry='confluent' needs its URL: set FASTKCL_REGISTRY_URL, or give the URL itself")
        names = ("user", "password", "token")
        found = {name: _secret(f"FASTKCL_REGISTRY_{name.upper()}", environment) for name in names}
        return ConfluentRegistry(url, **found, ca_bundle=environment.get("FASTKCL_REGISTRY_CA") or None)
    if not text or not Path(text).is_dir():
        raise ValueError(
            f"registry={text!r}: must be 'glue', 'confluent', a URL, or a folder of schemas; there is no such folder"
        )
    return FolderRegistry(text)


def _secret(variable: str, environment: Mapping[str, str]) -> str | None:
    """A secret of the environment, which often ends in the line feed of the file that it was in."""
    value = environment.get(variable, "").strip()
    check_sendable(variable, value, is_header=variable.endswith("TOKEN"))
    return value or None
