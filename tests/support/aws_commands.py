"""Commands that ask AWS, each with the arguments that it needs, and a process without anything of AWS around it."""

import os

__all__ = ["COMMANDS", "environment"]

COMMANDS = [
    ["kinesis", "list"],
    ["kinesis", "describe", "s", "--json"],
    ["kinesis", "tail", "s"],
    ["kinesis", "put", "s", "1"],
    ["kinesis", "groups", "list", "-c", "dynamodb"],
    ["kinesis", "groups", "describe", "g", "s", "-c", "kcl"],
    ["put", "s", "--profile", "iot"],
    ["load", "s", "table"],
]


def environment(**more: str) -> dict[str, str]:
    """Without anything of AWS."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**kept, **nowhere, "AWS_EC2_METADATA_DISABLED": "true", **more}
