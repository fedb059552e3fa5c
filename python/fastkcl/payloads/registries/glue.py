"""Schemas of AWS Glue Schema Registry, by botocore.

Permissions: ``glue:GetSchemaVersion``; to register, ``glue:RegisterSchemaVersion`` and ``glue:CreateSchema``.

Rules: one attempt a call, as `lookups` decides when the next one is. botocore is imported when a client is made. It
signs requests and reads answers. `http` carries both, as botocore's own transport has no bound in bytes or time.
"""

from __future__ import annotations

import os
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from fastkcl import ConfigurationError
from fastkcl.checks import check_endpoint
from fastkcl.credentials import text_of
from fastkcl.http_bodies import bound_session
from fastkcl.loopback import LOCAL, LOCAL_REGION, is_loopback
from fastkcl.masking import without_sent, without_users
from fastkcl.payloads.registries.answers import (
    AwayError,
    MissingError,
    SchemaText,
    UnusableError,
    check_text,
    whole_number,
)
from fastkcl.payloads.registries.http import LONGEST_ANSWER, Http
from fastkcl.payloads.registries.options import GlueRegistry
from fastkcl.stdio.given_files import trusting

__all__ = ["GlueClient"]

_MISSING: Final = "EntityNotFoundException"
_UNUSABLE: Final = frozenset({"InvalidInputException", "ValidationException"})
_MOST_VERSION: Final = (1 << 31) - 1
_SHOWN: Final = 300  # characters of a service's message


class _Given:
    """Gives credentials that are there already, where botocore looks for some."""

    METHOD = CANONICAL_NAME = "fastkcl"

    def __init__(self, credentials: Any) -> None:  # noqa: ANN401
        self._credentials = credentials

    def load(self) -> Any:  # noqa: ANN401
        """They."""
        return self._credentials


class _Body:
    """The body of an answer, where botocore looks for urllib3's."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        """All of it."""
        return [self._body]


class GlueClient:
    """Calls of one registry service.

    Args:
        options: where it is.
        credentials: of botocore; None for those that it finds.
        longest: seconds of one answer.

    Raises:
        ConfigurationError: botocore is not installed, or there is no region or no such endpoint.
    """

    def __init__(
        self,
        options: GlueRegistry,
        credentials: Any = None,  # noqa: ANN401 - botocore has no types
        longest: float = LONGEST_ANSWER,
    ) -> None:
        try:
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, NoRegionError
            from botocore.session import get_session
        except ImportError as error:
            raise ConfigurationError("Glue's registry needs botocore: pip install 'fastkcl[avro]'") from error
        try:
            session = bound_session(get_session())
            if credentials is not None:
                session.get_component("credential_provider").providers = [_Given(credentials)]
            endpoint = _endpoint(options)
            if endpoint is not None:
                check_endpoint("its endpoint (AWS_ENDPOINT_URL_GLUE, AWS_ENDPOINT_URL)", endpoint)
            is_local = is_loopback(endpoint)
            if is_local and credentials is None and session.get_credentials() is None:
                session.set_credentials(*LOCAL)
            self._client = session.create_client(
                "glue",
                region_name=options.region
                or session.get_config_variable("region")
                or (LOCAL_REGION if is_local else None),
                endpoint_url=options.endpoint_url,
                config=Config(retries={"total_max_attempts": 1}),
            )
            check_endpoint("its endpoint (AWS_ENDPOINT_URL_GLUE, AWS_ENDPOINT_URL)", self._client.meta.endpoint_url)
            self._http = Http(_trusted(session), longest)
        except (BotoCoreError, ValueError, OSError) as error:
            way = " AWS_DEFAULT_REGION names it" if isinstance(error, NoRegionError) else ""
            raise ConfigurationError(f"Glue's registry is not known: {without_users(text_of(error))}{way}") from None
        self._client.meta.events.register("before-send.glue", self._send)
        self.where = without_users(str(self._client.meta.endpoint_url))

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
        try:
            return self._version(name, {"SchemaId": which, "SchemaVersionNumber": {"LatestVersion": True}})
        except MissingError as error:
            raise MissingError(
                f"{error}: a name is REGISTRY/SCHEMA, or SCHEMA of default-registry, or an ARN"
            ) from None

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
            try:
                answer = self._call(
                    "create_schema",
                    name,
                    RegistryId={"RegistryName": registry},
                    SchemaName=schema,
                    DataFormat=format.upper(),
                    Compatibility="BACKWARD",
                    SchemaDefinition=text,
                )
            except MissingError as error:
                raise MissingError(
                    f"{error}: a name is REGISTRY/SCHEMA, or SCHEMA of default-registry; make the registry by"
                    f" `aws glue create-registry --registry-name {registry}`, or boto3's create_registry"
                ) from None
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
        format_, text = check_text(
            answer.get("DataFormat"),
            answer.get("SchemaDefinition"),
            f"{self.where}: glue get_schema_version of {which}",
        )
        version = whole_number(answer.get("VersionNumber"), _MOST_VERSION)
        return SchemaText(format_, text, version=version, id=str(answer.get("SchemaVersionId")))

    def _send(self, request: Any, **_: Any) -> Any:  # noqa: ANN401 - of botocore
        """Answers a request that botocore has signed."""
        from botocore.awsrequest import AWSResponse

        parts = urlsplit(request.url)
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        host = parts.hostname or "" if parts.port == usual else parts.netloc  # as it is signed
        answer = self._http.call(request.method, request.url, {"Host": host, **request.headers}, request.body)
        answer.json_object(f"status {answer.status}")  # botocore's parsers take anything, or fail in many ways
        return AWSResponse(request.url, answer.status, dict(answer.headers), _Body(answer.body))

    def _call(self, operation: str, which: str, **request: Any) -> dict[str, Any]:  # noqa: ANN401 - of botocore
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
        from botocore.parsers import ResponseParserError

        call = f"{self.where}: glue {operation} of {which}"
        try:
            answer = getattr(self._client, operation)(**request)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code") or "Unknown")
            said = without_sent(str(error.response.get("Error", {}).get("Message") or ""))[:_SHOWN]
            if code == _MISSING:
                raise MissingError(f"{call}: {code}: {said}") from None
            if code in _UNUSABLE:
                raise UnusableError(f"{call}: {code}: {said}") from None
            raise AwayError(f"{call}: {code}: {said}") from None
        except ParamValidationError as error:
            raise UnusableError(f"{call}: {error}") from None
        except AwayError as error:
            raise AwayError(f"{call}: {error}") from None
        except (BotoCoreError, ResponseParserError) as error:
            raise AwayError(f"{call}: {without_users(without_sent(text_of(error)))[:_SHOWN]}") from None
        if not isinstance(answer, dict) or not isinstance(answer.get("SchemaVersionId"), str):
            raise AwayError(f"{call}: not the answer of Glue: it has no SchemaVersionId")
        return answer


def _endpoint(options: GlueRegistry) -> str | None:
    """Where calls go, if not to AWS."""
    names = ("AWS_ENDPOINT_URL_GLUE", "AWS_ENDPOINT_URL")
    return options.endpoint_url or next((os.environ[name] for name in names if os.environ.get(name)), None)


def _trusted(session: Any) -> ssl.SSLContext:  # noqa: ANN401 - of botocore
    """TLS by the certificates that botocore trusts."""
    from botocore.httpsession import get_cert_path

    bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or get_cert_path(True)
    return trusting(str(bundle))
