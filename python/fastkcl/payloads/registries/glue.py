"""Schemas of AWS Glue Schema Registry, by botocore.

Permissions: ``glue:GetSchemaVersion``; to register, ``glue:RegisterSchemaVersion`` and ``glue:CreateSchema``.

Rules: one attempt a call, as `lookups` decides when the next one is. botocore is imported when a client is made.
"""

from __future__ import annotations

import re
from typing import Any, Final

from fastkcl import ConfigurationError
from fastkcl.payloads.registries.answers import AwayError, MissingError, SchemaText, UnusableError, check_text
from fastkcl.payloads.registries.options import GlueRegistry

__all__ = ["GlueClient"]

_MISSING: Final = "EntityNotFoundException"
_UNUSABLE: Final = frozenset({"InvalidInputException", "ValidationException"})
_TOKEN: Final = re.compile(r"x-amz-security-token\S*\s*\S+", re.IGNORECASE)
_SHOWN: Final = 300  # characters of a service's message


class _Given:
    """Gives credentials that are there already, where botocore looks for some."""

    METHOD = CANONICAL_NAME = "fastkcl"

    def __init__(self, credentials: Any) -> None:  # noqa: ANN401
        self._credentials = credentials

    def load(self) -> Any:  # noqa: ANN401
        """They."""
        return self._credentials


class GlueClient:
    """Calls of one registry service.

    Args:
        options: where it is.
        credentials: of botocore; None for those that it finds.

    Raises:
        ConfigurationError: botocore is not installed, or there is no region or no such endpoint.
    """

    def __init__(self, options: GlueRegistry, credentials: Any = None) -> None:  # noqa: ANN401 - botocore has no types
        try:
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
            from botocore.session import get_session
        except ImportError as error:
            raise ConfigurationError("Glue's registry needs botocore: pip install 'fastkcl[avro]'") from error
        try:
            session = get_session()
            if credentials is not None:
                session.get_component("credential_provider").providers = [_Given(credentials)]
            self._client = session.create_client(
                "glue",
                region_name=options.region,
                endpoint_url=options.endpoint_url,
                config=Config(connect_timeout=4, read_timeout=10, retries={"total_max_attempts": 1}),
            )
        except (BotoCoreError, ValueError) as error:
            raise ConfigurationError(f"Glue's registry is not known: {error}") from error
        self.where = str(self._client.meta.endpoint_url)

    def by_id(self, id: str) -> SchemaText:  # noqa: A002 - the field's word
        """The schema of a version id.

        Raises:
            MissingError: there is none, or not yet.
            UnusableError: it cannot be used.
            AwayError: no answer now.
        """
        return self._version(f"SchemaVersionId={id}", {"SchemaVersionId": id})

    def latest(self, name: str) -> SchemaText:
        """The newest version of ``registry/name``; without a registry, of Glue's default one. Or of an ARN.

        Raises:
            MissingError: there is none.
            UnusableError: it cannot be used.
            AwayError: no answer now.
        """
        registry, _, schema = name.rpartition("/")
        which = {"RegistryName": registry or "default-registry", "SchemaName": schema}
        if name.startswith("arn:"):
            which = {"SchemaArn": name}
        return self._version(name, {"SchemaId": which, "SchemaVersionNumber": {"LatestVersion": True}})

    def register(self, name: str, format: str, text: str) -> str:  # noqa: A002
        """The version id of a schema's text; the schema is made if it is not there.

        Raises:
            MissingError: there is no such registry.
            UnusableError: the registry refuses the text, by its rules of compatibility for example.
            AwayError: no answer now.
        """
        registry, _, schema = name.rpartition("/")
        registry = registry or "default-registry"
        which = {"RegistryName": registry, "SchemaName": schema}
        try:
            answer = self._call("register_schema_version", name, SchemaId=which, SchemaDefinition=text)
        except MissingError:
            answer = self._call(
                "create_schema",
                name,
                RegistryId={"RegistryName": registry},
                SchemaName=schema,
                DataFormat=format.upper(),
                Compatibility="BACKWARD",
                SchemaDefinition=text,
            )
        if answer.get("Status", answer.get("SchemaVersionStatus")) == "FAILURE":
            raise UnusableError(f"Glue refuses this version of {name}: it is not compatible with the ones before")
        return str(answer["SchemaVersionId"])

    def _version(self, which: str, request: dict[str, Any]) -> SchemaText:
        answer = self._call("get_schema_version", which, **request)
        status = answer.get("Status", "AVAILABLE")
        if status == "PENDING":
            raise MissingError(f"{self.where}: the schema {which} is pending")
        if status != "AVAILABLE":
            raise UnusableError(f"its status is {str(status)[:40]}")
        format_, text = check_text(answer.get("DataFormat"), answer.get("SchemaDefinition"))
        number = answer.get("VersionNumber")
        return SchemaText(
            format_, text, version=number if isinstance(number, int) else None, id=str(answer.get("SchemaVersionId"))
        )

    def _call(self, operation: str, which: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of botocore
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        call = f"{self.where}: glue {operation} of {which}"
        try:
            answer = getattr(self._client, operation)(**request)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code") or "Unknown")
            said = _TOKEN.sub("…", str(error.response.get("Error", {}).get("Message") or ""))[:_SHOWN]
            if code == _MISSING:
                raise MissingError(f"{call}: {code}: {said}") from None
            if code in _UNUSABLE:
                raise UnusableError(f"{call}: {code}: {said}") from None
            raise AwayError(f"{call}: {code}: {said}") from None
        except ParamValidationError as error:
            raise UnusableError(f"{call}: {error}") from None
        except BotoCoreError as error:
            raise AwayError(f"{call}: {_TOKEN.sub('…', str(error))[:_SHOWN]}") from None
        if not isinstance(answer, dict):
            raise UnusableError(f"{call}: no answer that can be read")
        return answer
