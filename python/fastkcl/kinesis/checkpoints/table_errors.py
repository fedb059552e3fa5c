"""Errors of a checkpointer's table, with everything that is needed to fix them.

An error names the API call, the table, its region and the account. Some last until somebody changes a permission, a
credential or a name (`is_lasting`): trying again only hides them. The others pass.

Rules: the account comes from the answer, the credentials or the access key id. If none has it, one call of STS returns
it, which needs no permission and takes at most two seconds.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
from typing import Any

from fastkcl.kinesis.exceptions import CheckpointTableError
from fastkcl.kinesis.failures import Failure, error_code, failure_of, what_to_allow

__all__ = ["account_of_arn", "account_of_key", "is_lasting", "is_unreachable", "table_error"]

_TABLE_ARN = re.compile(r"arn:[^:\s]*:dynamodb:[^:\s]*:(\d{12}):")
_ARN = re.compile(r"arn:[^:\s]*:(?:kinesis|iam|sts):[^:\s]*:(\d{12}):")
_STS_SECONDS = 4.0


def is_lasting(error: BaseException) -> bool:
    """Whether an error of a call stays until somebody mends a permission, a credential or a name."""
    return failure_of(error) in (Failure.DENIED, Failure.NOT_FOUND) or error_code(error) == "ValidationException"


def is_unreachable(error: BaseException) -> bool:
    """Whether there was no answer."""
    return failure_of(error) is Failure.UNAVAILABLE


async def table_error(
    error: BaseException,
    operation: str,
    table: str,
    region: str,
    session: Any,  # noqa: ANN401
    endpoint: str | None,
    account: str | None = None,
) -> CheckpointTableError:
    """An error with all that is needed to mend it.

    Args:
        error: of the call.
        operation: e.g. ``DescribeTable``.
        table: its name.
        region: the client's.
        session: aiobotocore's, with the credentials.
        endpoint: another DynamoDB than AWS.
        account: the table's, if an earlier answer has said it.
    """
    account = account or account_of_arn(table) or await _account_of(error, session, region, endpoint)
    where = f"{region} at {endpoint}" if endpoint else region
    said = f"no answer: {error!r}" if is_unreachable(error) else (str(error) or repr(error)) + what_to_allow(error)
    return CheckpointTableError(
        f"{operation} of DynamoDB table {table} in {where}, account {account or 'not known'}: {said}",
        operation,
        table,
        account,
        is_lasting=is_lasting(error),
    )


async def _account_of(error: BaseException, session: Any, region: str, endpoint: str | None) -> str | None:  # noqa: ANN401
    said = account_of_arn(str(error))
    if said is not None:
        return said
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_STS_SECONDS):
            credentials = await session.get_credentials()
            if credentials is None:
                return None
            frozen = await credentials.get_frozen_credentials()
            known = getattr(frozen, "account_id", None) or account_of_key(frozen.access_key)
            if known or endpoint or is_unreachable(error):
                return known
            from aiobotocore.config import AioConfig

            half = _STS_SECONDS / 2
            config = AioConfig(connect_timeout=half, read_timeout=half, retries={"total_max_attempts": 1})
            async with session.create_client("sts", region_name=region, config=config) as sts:
                return str((await sts.get_caller_identity())["Account"])
    return None


def account_of_arn(text: str) -> str | None:
    """The account that a text names by an ARN, a table's before that of the caller; None if it names none."""
    found = _TABLE_ARN.search(text) or _ARN.search(text)
    return None if found is None else found[1]


def account_of_key(access_key_id: str) -> str | None:
    """The account that an access key id of AWS is of; None if it is no such id, or one of before 2019."""
    if not re.fullmatch(r"A[KS]IA[A-Z2-7]{16}", access_key_id) or access_key_id[4] < "Q":
        return None
    try:
        decoded = base64.b32decode(access_key_id[4:] + "=" * (-len(access_key_id[4:]) % 8))
    except binascii.Error:
        return None
    return f"{(int.from_bytes(decoded[:6]) & 0x7FFF_FFFF_FF80) >> 7:012}"
