"""What is said of credentials of botocore's that do not come: which of its providers has failed, how, and what to do.

The texts of its own errors have parts from outside: what a process has printed, a service's answer, a token in a cache.
Any of these may be secret, so none is said here. The provider is that of the innermost call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

from fastkcl.stdio.reports import printable

__all__ = ["fault_of", "late", "profile_with", "provider_of", "text_of", "told"]

_PROCESS: Final = "custom-process"
_WEB: Final = "assume-role-with-web-identity"
_SSO: Final = "sso"
_CONTAINER: Final = "container-role"

_SETTINGS: Final = {_PROCESS: "credential_process", _WEB: "web_identity_token_file", _SSO: "sso_session"}
_PLACES: Final = {
    _PROCESS: "credential_process of the profile {profile}",
    _WEB: "web_identity_token_file of the profile {profile}, or AWS_WEB_IDENTITY_TOKEN_FILE",
    _SSO: "SSO of the profile {profile}",
    _CONTAINER: "the container's service of credentials",
    "assume-role": "the role of the profile {profile}",
    "iam-role": "the machine's service of credentials (IMDS)",
    "login": "`aws login` of the profile {profile}",
}
_PLACE: Final = "the profile {profile}"
_REMEDIES: Final = {
    _PROCESS: "run its command by hand to see why",
    _WEB: "look at the file, role_arn, AWS_ENDPOINT_URL_STS and HTTPS_PROXY",
    _SSO: "run `aws sso login --profile {profile}`",
    _CONTAINER: "look at AWS_CONTAINER_CREDENTIALS_FULL_URI (_RELATIVE_URI) and AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "login": "run `aws login`",
}
_REMEDY: Final = "look at AWS_PROFILE, its role and its endpoints, and HTTPS_PROXY"
_STATUS: Final = re.compile(r"non 200 response (\d{3})\b")


def told(error: BaseException, session: Any = None) -> str | None:  # noqa: ANN401 - botocore has no types
    """An error of getting credentials in one line; None for one whose own text is safe, and says what to do.

    Args:
        error: caught where credentials are got, or at a call that needs them.
        session: botocore's or aiobotocore's, whose profile is named.
    """
    from botocore import exceptions as errors

    provider = provider_of(frame for frame, _ in walk_tb(error.__traceback__))
    remedy = None
    match error:
        case errors.CredentialRetrievalError():
            provider = error.kwargs.get("provider")
            if provider not in (_PROCESS, _CONTAINER):
                return None
            fault = _retrieval_fault(str(error.kwargs.get("error_msg")))
        case errors.SSOTokenLoadError() | errors.TokenRetrievalError():
            provider, fault = _SSO, printable(str(error))
        case errors.ParamValidationError() if provider is not None:
            names = sorted(set(re.findall(r"parameter (\w+)", str(error))))
            fault = f"it has a value that AWS does not take ({', '.join(names) or 'of a parameter'})"
        case errors.BotoCoreError() | errors.ClientError() | ConnectionError():
            return None
        case OSError():
            fault = _file_fault(error, provider)
            remedy = "see that it is there, and that you may run it" if provider == _PROCESS else None
            remedy = "see that the file is there, and that you may read it" if provider == _WEB else remedy
        case EOFError():
            fault = "nobody can be asked here for the code of mfa_serial"
        case RuntimeError() if "still expired" in str(error):
            fault = "the credentials that it gives have expired"
        case _:
            fault = _unreadable(provider, type(error).__name__)
    return fault_of(provider, fault, session, remedy)


def text_of(error: BaseException, session: Any = None) -> str:  # noqa: ANN401
    """The text of an error that may be one of getting credentials; then without what may be secret."""
    from botocore.exceptions import BotoCoreError

    if isinstance(error, BotoCoreError) or provider_of(frame for frame, _ in walk_tb(error.__traceback__)):
        return told(error, session) or str(error)
    return str(error)


def late(provider: str | None, seconds: float, session: Any) -> str:  # noqa: ANN401
    """What is said where no credentials have come in time."""
    return fault_of(provider, f"no credentials have come in {seconds:g} s", session)


def fault_of(provider: str | None, fault: str, session: Any = None, remedy: str | None = None) -> str:  # noqa: ANN401
    """A fault with its provider, the profile, and what to do."""
    profile = profile_with(session, _SETTINGS.get(provider or ""))
    place = _PLACES.get(provider or "", _PLACE).format(profile=repr(profile))
    advice = remedy or _REMEDIES.get(provider or "", _REMEDY)
    return f"{place}: {fault}: {advice.format(profile=profile)}"


def profile_with(session: Any, setting: str | None) -> str:  # noqa: ANN401
    """The name of the profile, or of the one among its sources that has a setting."""
    if session is None:
        from botocore.session import get_session

        session = get_session()
    first: str = session.profile or "default"
    profiles = session.full_config.get("profiles", {})
    name, passed = first, set[str]()
    while name in profiles and name not in passed:
        if setting in profiles[name]:
            return name
        passed.add(name)
        name = profiles[name].get("source_profile")
    return first


def provider_of(frames: Iterable[FrameType]) -> str | None:
    """The provider of credentials, as botocore names it, in the innermost frame that has one."""
    found = None
    for frame in frames:
        owner = frame.f_locals.get("self")
        name = getattr(type(owner), "METHOD", None)
        if name is None and hasattr(type(owner), "get_frozen_credentials"):
            name = getattr(owner, "method", None)
        found = name if isinstance(name, str) else found
    return found


def _retrieval_fault(text: str) -> str:
    if text.startswith("Unsupported version"):
        return "its output has another Version than 1"
    if text.startswith("Missing required key"):
        return "its output lacks AccessKeyId or SecretAccessKey"
    if found := _STATUS.search(text):
        return f"it answers with the status {found[1]}"
    return "it has failed"


def _file_fault(error: OSError, provider: str | None) -> str:
    name = "" if error.filename is None else printable(str(error.filename))
    if provider == _PROCESS:
        name = re.split(r"[\s=]", name, maxsplit=1)[0]  # a command in quotation marks has its arguments, too
    return f"{name}: {error.strerror}" if name else str(error.strerror or type(error).__name__)


def _unreadable(provider: str | None, kind: str) -> str:
    if provider == _PROCESS:
        return f"the command, or its output, cannot be read ({kind}): it must print the JSON of credentials"
    if provider == _SSO:
        return f"the token in ~/.aws/sso/cache, or the credentials that it answers, cannot be read ({kind})"
    if provider in ("shared-credentials-file", "config-file"):
        return f"its credentials cannot be read ({kind})"
    return f"the credentials cannot be read that AWS, or a proxy, has answered ({kind})"
