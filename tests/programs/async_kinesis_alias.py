"""A pytest plugin: `import kinesis` gives fastkcl.kinesis, module for module, to the tests of async-kinesis.

A name that fastkcl does not have is a stand-in: whoever uses it gets a NotImplementedError that names it. So a file
of tests is loaded whole, and each of its tests fails by itself.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from types import ModuleType
from typing import NoReturn

import fastkcl.kinesis
import fastkcl.kinesis.checkpoints
import fastkcl.kinesis.testing
import fastkcl.pytest_plugin

MODULES = (
    *("aggregators", "base", "checkpointers", "consumer", "dynamodb", "exceptions", "metrics", "processors"),
    *("producer", "prometheus", "serializers", "testing", "timeout_compat", "utils"),
)
_PUBLIC = (fastkcl.kinesis, fastkcl.kinesis.checkpoints, fastkcl.kinesis.testing, fastkcl.pytest_plugin)


class _Missing(type):
    def __call__(cls, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"fastkcl has no {cls.__module__}.{cls.__name__}")

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"fastkcl has no {cls.__module__}.{cls.__name__}, so no .{name} of it")


def _alias(name: str) -> ModuleType:
    """A module of async-kinesis: what fastkcl.kinesis's of the same name has, then what fastkcl.kinesis has."""
    module = ModuleType(name)
    try:
        same = [importlib.import_module(f"fastkcl.{name}")]
    except ModuleNotFoundError:
        same = []

    def find(wanted: str) -> object:
        if wanted.startswith(("__", "pytest")):
            raise AttributeError(wanted)
        for public in (*same, *_PUBLIC):
            if hasattr(public, wanted):
                return getattr(public, wanted)
        missing = _Missing(wanted, (), {"__module__": name})
        setattr(module, wanted, missing)
        return missing

    module.__getattr__ = find  # type: ignore[method-assign]
    return module


package = _alias("kinesis")
package.__path__ = []
sys.modules["kinesis"] = package
for _name in MODULES:
    sys.modules[f"kinesis.{_name}"] = _alias(f"kinesis.{_name}")
    setattr(package, _name, sys.modules[f"kinesis.{_name}"])
# What async-kinesis had before Python did.
sys.modules["kinesis.timeout_compat"].timeout = asyncio.timeout  # type: ignore[attr-defined]
