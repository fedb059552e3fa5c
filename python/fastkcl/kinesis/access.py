"""Finds regions, endpoints, credentials and roles in the same way as botocore.

    Access ──▶ botocore: region, endpoint (FIPS, VPC, AWS_ENDPOINT_URL), CA bundle, proxy
           └─▶ credentials: botocore's chain, or a function of the program; with a role, assumed by them

A query gets an `Access`, which holds no secret. It is sent to other processes; each of them finds its own credentials,
and finds them again when they expire.

Rules: botocore is imported at the first look-up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from fastkcl.credentials import text_of
from fastkcl.http_bodies import bound_session
from fastkcl.masking import without_users

__all__ = ["Access", "AccessError", "Endpoint", "NotNowError"]

ROLE_SESSION_NAME = "fastkcl"
ROLE_TIMEOUT = 10.0
"""Seconds for the answer of a service of roles."""
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)


class AccessError(ValueError):
    """Region, endpoint or credentials cannot be found as they are set."""


class NotNowError(AccessError):
    """The program's function of credentials has failed; it may give some later."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the service is.

    Attributes:
        url: of the service.
        region: that requests are signed for.
        ca_bundle: file of the certificates that are trusted; None for an endpoint without TLS.
        proxy: URL of a proxy; None for none.
    """

    url: str
    region: str
    ca_bundle: str | None
    proxy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a stream's service is reached.

    Attributes:
        region: None for that of the environment or the profile.
        endpoint_url: None for AWS's, or that of the environment or the profile.
        role_arn: of a role to assume.
        role_external_id: for the role.
        role_session_name: for the role.
        sts_endpoint: URL of the service that gives roles.
        credentials: ``module:function`` of a function that returns access key, secret key, session token or None, and
            when they expire (an aware datetime, or None); None for botocore's chain.
    """

    region: str | None = None
    endpoint_url: str | None = None
    role_arn: str | None = None
    role_external_id: str | None = None
    role_session_name: str = ROLE_SESSION_NAME
    sts_endpoint: str | None = None
    credentials: str | None = None

    def endpoint(self) -> Endpoint:
        """Where the service is, as botocore has it.

        Raises:
            AccessError: no region, or an endpoint or bundle that cannot be.
        """
        from botocore import UNSIGNED
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.httpsession import get_cert_path
        from botocore.utils import get_environ_proxies

        try:
            session = _session()
            client = session.create_client(
                "kinesis",
                region_name=self.region,
                endpoint_url=self.endpoint_url,
                config=Config(signature_version=UNSIGNED),
            )
            url, region = client.meta.endpoint_url, client.meta.region_name
            bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE") or True
        except (BotoCoreError, ValueError) as error:
            raise AccessError(f"the service of Kinesis is not known: {without_users(str(error))}") from None
        scheme = url.partition(":")[0]
        ca_bundle = get_cert_path(bundle) if scheme == "https" else None
        if ca_bundle is not None and not os.path.exists(ca_bundle):  # noqa: PTH110 - a file, or a folder
            raise AccessError(f"there is no CA bundle {ca_bundle}: see AWS_CA_BUNDLE and REQUESTS_CA_BUNDLE")
        return Endpoint(url, region, ca_bundle, get_environ_proxies(url).get(scheme))

    def find_credentials(self) -> Any:  # noqa: ANN401 - botocore has no types
        """Credentials of botocore, which are made anew when they expire.

        Raises:
            AccessError: there are none.
        """
        from botocore.exceptions import BotoCoreError

        try:
            session = _session()
            own = session.get_credentials() if self.credentials is None else _from_function(self.credentials)
        except BotoCoreError as error:
            raise AccessError(f"there are no credentials: {text_of(error)}") from None
        if own is None:
            raise AccessError(
                "there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or an instance's "
                "role, on the driver and on the executors"
            )
        return own if self.role_arn is None else self._assumed(session, own)

    def _assumed(self, session: Any, own: Any) -> Any:  # noqa: ANN401
        from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

        region = self.region

        def create_client(service: str, **arguments: Any) -> Any:  # noqa: ANN401
            return session.create_client(
                service, region_name=region, endpoint_url=self.sts_endpoint, config=_patience(), **arguments
            )

        arguments = {"RoleSessionName": self.role_session_name}
        if self.role_external_id is not None:
            arguments["ExternalId"] = self.role_external_id
        fetcher = AssumeRoleCredentialFetcher(create_client, own, self.role_arn, extra_args=arguments)
        return DeferredRefreshableCredentials(method="assume-role", refresh_using=fetcher.fetch_credentials)


def _patience() -> Any:  # noqa: ANN401
    """Seconds for a service of roles that is away: an error is wanted soon, and the caller tries again."""
    from botocore.config import Config

    return Config(connect_timeout=4, read_timeout=ROLE_TIMEOUT, retries={"total_max_attempts": 1})


def _session() -> Any:  # noqa: ANN401
    from botocore.session import get_session

    return bound_session(get_session())


def _from_function(path: str) -> Any:  # noqa: ANN401
    from botocore.credentials import Credentials, RefreshableCredentials

    function = _find_function(path)

    def fetch() -> dict[str, object]:
        key, secret, token, expiry = _called(path, function)
        expiry = _NEVER if expiry is None else expiry
        if expiry <= datetime.now(UTC):
            raise NotNowError(f"credentials={path} gives keys that have expired at {expiry.isoformat()}")
        return {"access_key": key, "secret_key": secret, "token": token, "expiry_time": expiry.isoformat()}

    key, secret, token, expiry = _called(path, function)
    if expiry is None:
        return Credentials(key, secret, token, method="fastkcl")
    return RefreshableCredentials(
        key, secret, token, expiry, refresh_using=fetch, method="fastkcl", advisory_timeout=60, mandatory_timeout=10
    )


def _find_function(path: str) -> Callable[[], object]:
    module, separator, name = path.partition(":")
    if not separator or not module or not name:
        raise AccessError(f"credentials must be module:function, not {path!r}")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise AccessError(f"credentials={path}: {error}; executors need the module, too") from error
    if not callable(function):
        raise AccessError(f"credentials={path}: {name} is not a function")
    return function  # type: ignore[no-any-return]


def _called(path: str, function: Callable[[], object]) -> tuple[str, str, str | None, Any]:
    try:
        given = function()
    except Exception as error:
        raise NotNowError(f"credentials={path} has failed: {type(error).__name__}: {error}") from error
    if not isinstance(given, tuple) or len(given) != 4:
        raise AccessError(f"credentials={path} must return key, secret, token and expiry, not {type(given).__name__}")
    key, secret, token, expiry = given
    if not isinstance(key, str) or not isinstance(secret, str) or not isinstance(token, str | None):
        raise AccessError(f"credentials={path}: key and secret must be text, and the token text or None")
    if expiry is not None and (not isinstance(expiry, datetime) or expiry.tzinfo is None):
        raise AccessError(f"credentials={path}: the expiry must be a datetime with a time zone, or None")
    return key, secret, token, expiry
