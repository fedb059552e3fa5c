"""Where the daemon's credentials come from, under the names of both AWS SDKs.

KCL 1 is built on the AWS SDK 1 and KCL 3 on the SDK 2, whose providers have other names for the same thing; a daemon
that is given the other generation's name starts, and then has no credentials. So each known name is put into the
language of the generation. Names that are not known here pass unchanged: they may be classes of the user's own.

A third kind is read here, not by the SDK: ``CustomEnvironmentVariableCredentialsProvider`` takes the credentials from
PREFIX_AWS_ACCESS_KEY_ID, PREFIX_AWS_SECRET_ACCESS_KEY and PREFIX_AWS_SESSION_TOKEN, so that the stream's are others
than those that children see as AWS_ACCESS_KEY_ID. The daemon gets them as system properties from a file that only its
user can read; they are on no command line, in no log and in no child's environment other than under their prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from fastkcl.daemon.settings import Options, Setting

__all__ = ["CUSTOM_PROVIDER", "DEFAULT_PREFIX", "PREFIX_VARIABLE", "apply", "missing_classes", "translate"]

CUSTOM_PROVIDER = "CustomEnvironmentVariableCredentialsProvider"
"""The provider that is read here."""
PREFIX_VARIABLE = "CUSTOM_PREFIX"
"""Environment variable: the prefix, where the command line does not give it."""
DEFAULT_PREFIX = "CUSTOM"

_KEYS = ("awsCredentialsProvider", "awsCredentialsProviderDynamoDB", "awsCredentialsProviderCloudWatch")
_SDK_1_PACKAGE = "com.amazonaws.auth."
_SDK_2_PACKAGE = "software.amazon.awssdk.auth.credentials."
_KCL_3_PACKAGE = "software.amazon.kinesis.multilang.auth."
_BY_ANOTHER_NAME = ("StsAssumeRoleCredentialsProvider",)  # KCL 3 has its own class for it
# The SDK 1's, and that of the SDK 2.
_PROVIDERS = (
    ("DefaultAWSCredentialsProviderChain", "DefaultCredentialsProvider"),
    ("SystemPropertiesCredentialsProvider", "SystemPropertyCredentialsProvider"),
    ("profile.ProfileCredentialsProvider", "ProfileCredentialsProvider"),
    ("EC2ContainerCredentialsProviderWrapper", "ContainerCredentialsProvider"),
    ("WebIdentityTokenCredentialsProvider", "WebIdentityTokenFileCredentialsProvider"),
)
_TO_SDK_2 = dict(_PROVIDERS)
_TO_SDK_1 = {new: old for old, new in _PROVIDERS}


def apply(options: Options, environ: Mapping[str, str], prefix: str | None) -> None:
    """Make the providers' names the generation's, and read the custom one.

    Args:
        options: changed in place.
        environ: where the custom provider's variables are.
        prefix: of these variables; None for that of CUSTOM_PREFIX, or CUSTOM.

    Raises:
        ValueError: a custom provider without its variables, or beside the system properties' own.
    """
    old = options.generation.is_1
    names: list[str] = []
    for key, setting in list(_settings(options)):
        value = ",".join(_one(name.strip(), old=old) for name in setting.value.split(",") if name.strip())
        names += value.split(",")
        if value != setting.value:
            if setting.origin != "default":
                options.notes.append(f"{setting.origin}: {setting.value} is {value} in KCL {options.generation.value}")
            options.settings[key] = replace(setting, value=value)
    if CUSTOM_PROVIDER not in names:
        if prefix is not None:
            raise ValueError(f"a prefix of credentials is given, but the provider is not {CUSTOM_PROVIDER}")
        return
    system_properties = "SystemPropertiesCredentialsProvider" if old else "SystemPropertyCredentialsProvider"
    if system_properties in names:
        raise ValueError(f"{CUSTOM_PROVIDER} and {system_properties} cannot be used side by side")
    options.secrets.update(_read(environ, prefix or environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX, old=old))
    for key, setting in list(_settings(options)):
        if CUSTOM_PROVIDER in setting.value:
            options.settings[key] = replace(setting, value=setting.value.replace(CUSTOM_PROVIDER, system_properties))


def missing_classes(options: Options, classpath: Iterable[Path]) -> list[str]:
    """Providers that are in no jar: the daemon goes on without them, and has no credentials.

    Args:
        options: with the providers' names.
        classpath: jars, folders of classes, and folders of jars that end in ``/*``.

    Returns:
        A line for each.
    """
    packages = (_SDK_1_PACKAGE,) if options.generation.is_1 else (_KCL_3_PACKAGE, _SDK_2_PACKAGE)
    wanted = {
        (name, setting.origin): {f"{package}{name}".replace(".", "/") + ".class" for package in (*packages, "")}
        for _, setting in _settings(options)
        for each in setting.value.split(",")
        if (name := each.partition("|")[0]) and name.rpartition(".")[2] not in _BY_ANOTHER_NAME
    }
    for place in classpath:
        if not wanted:
            break
        for entries in _classes(place):
            wanted = {name: files for name, files in wanted.items() if not files & entries}
    return [
        f"{origin}: there is no class {name} on the daemon's class path, and it would go on without these credentials"
        for name, origin in wanted
    ]


def _settings(options: Options) -> Iterator[tuple[str, Setting]]:
    """The providers that are set, by key."""
    for key in _KEYS:
        key = key.replace("aws", "AWS", 1) if options.generation.is_1 else key
        if key in options.settings:
            yield key, options.settings[key]


def _classes(place: Path) -> Iterator[Set[str]]:
    """Names of class files in a place of a class path, as many sets as there are jars."""
    if place.name == "*":
        for jar in sorted(place.parent.glob("*.[jJ][aA][rR]")):
            yield from _classes(jar)
    elif place.is_dir():
        yield {path.relative_to(place).as_posix() for path in place.rglob("*.class")}
    else:
        with suppress(OSError, BadZipFile), ZipFile(place) as archive:
            yield set(archive.namelist())


def translate(name: str, *, old: bool) -> str:
    """A provider's name in the SDK 1 (`old`) or the SDK 2; unchanged if it is not known."""
    short = name.removeprefix(_SDK_1_PACKAGE).removeprefix(_SDK_2_PACKAGE)
    if short.rpartition(".")[2] == CUSTOM_PROVIDER:
        return CUSTOM_PROVIDER
    if old:
        return _TO_SDK_1.get(short, short if short in _TO_SDK_2 else name)
    return _TO_SDK_2.get(short, short if short in _TO_SDK_1 else name)


def _one(text: str, *, old: bool) -> str:
    name, bar, arguments = text.partition("|")
    return translate(name.strip(), old=old) + bar + arguments


def _read(environ: Mapping[str, str], prefix: str, *, old: bool) -> dict[str, str]:
    access, secret, token = (f"{prefix}_AWS_{name}" for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"))
    missing = [name for name in (access, secret) if not environ.get(name, "").strip()]
    if missing:
        raise ValueError(
            f"{CUSTOM_PROVIDER}: the environment has no {' and no '.join(missing)}; the prefix {prefix} is changed with"
            f" --credentials-prefix or {PREFIX_VARIABLE}"
        )
    found = {"aws.accessKeyId": environ[access].strip()}
    found["aws.secretKey" if old else "aws.secretAccessKey"] = environ[secret].strip()
    if environ.get(token, "").strip():
        found["aws.sessionToken"] = environ[token].strip()
    return found
