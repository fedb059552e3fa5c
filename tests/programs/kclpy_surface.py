"""``python kclpy_surface.py PACKAGE``: the surface of amazon_kclpy, or of a package in its place, as one line of JSON.

Modules are named below the package, so that both packages give the same names. Imports neither by itself.

    {"modules":    {module: {name: what}},
     "exports":    {module: [name]},                   what ``from module import *`` brings
     "instances":  {class: {attribute: how}}}          public, of instances made here; how: "set" | "read only"

    what       ["module", name] | ["class", name, details] | ["function", signature] | ["value", repr]
    details    {"bases": [name], "signature": signature, "members": {name: member}}; null where another module has it
    member     ["method" | "staticmethod" | "classmethod", signature] | ["property"] | ["attribute", repr]
    signature  [[name, kind, default]], a default is null where there is none; null where Python does not tell it
"""

import importlib
import inspect
import json
import pkgutil
import sys

STREAMS = ("stdin", "stdout", "stderr")
# What Python itself puts into a class.
HOUSEKEEPING = {
    "__module__",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__qualname__",
    "__annotations__",
    "__new__",
    "__static_attributes__",
    "__firstlineno__",
}


def below(name):
    """A module's name below the package, or in full where it is elsewhere."""
    return name.removeprefix(REAL_NAME).removeprefix(".") if (name + ".").startswith(REAL_NAME + ".") else name


def text_of(value):
    """Its repr without the package's name; of objects without a value the type."""
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    return repr(value).replace(REAL_NAME + ".", "")


def signature(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return None
    return [[parameter.name, parameter.kind.name, default(parameter.default)] for parameter in parameters]


def default(value):
    if value is inspect.Parameter.empty:
        return None
    for name in STREAMS:
        if value is getattr(sys, name):
            return f"sys.{name}"
    return text_of(value)


def class_name(cls):
    return f"{below(cls.__module__)}.{cls.__qualname__}"


def member(value):
    if isinstance(value, staticmethod):
        return ["staticmethod", signature(value.__func__)]
    if isinstance(value, classmethod):
        return ["classmethod", signature(value.__func__)]
    if inspect.isroutine(value) and callable(value):
        return ["method", signature(value)]
    if inspect.isdatadescriptor(value):
        return ["property"]
    return ["attribute", text_of(value)]


def details(cls):
    members = {}
    for base in reversed(cls.__mro__):
        if base.__module__ != "builtins":
            members |= {name: member(value) for name, value in vars(base).items() if name not in HOUSEKEEPING}
    bases = [class_name(base) for base in cls.__mro__[1:]]
    return {"bases": bases, "signature": signature(cls), "members": members}


def what(value, module):
    if inspect.ismodule(value):
        return ["module", below(value.__name__)]
    if inspect.isclass(value):
        return ["class", class_name(value), details(value) if value.__module__ == module.__name__ else None]
    if inspect.isfunction(value):
        return ["function", signature(value)]
    return ["value", text_of(value)]


def attributes(instance):
    """The public ones that are no methods, and whether they can be set."""
    found = {}
    for name in dir(instance):
        if name.startswith("_") or callable(getattr(type(instance), name, None)):
            continue
        value = getattr(instance, name)
        try:
            setattr(instance, name, value)
        except AttributeError:
            found[name] = "read only"
        else:
            found[name] = "set"
    return found


def instances():
    """One of each class, as the package itself makes it."""
    kcl, messages, dispatch, v2, v3 = (
        importlib.import_module(f"{PACKAGE}.{name}")
        for name in ("kcl", "messages", "dispatch", "v2.processor", "v3.processor")
    )
    position = {"sequenceNumber": "1", "subSequenceNumber": 2}
    times = {"approximateArrivalTimestamp": 3}
    process = kcl.KCLProcess(kcl.RecordProcessorBase())
    return [
        process,
        process.io_handler,
        process.checkpointer,
        process.processor,
        process.processor.delegate,
        *(module.RecordProcessorBase() for module in (kcl, v2, v3)),
        kcl.CheckpointError("value"),
        dispatch.MalformedAction("value"),
        messages.MessageDispatcher(),
        messages.InitializeInput({"action": "initialize", "shardId": "s", **position}),
        messages.ProcessRecordsInput({"action": "processRecords", "records": [], "millisBehindLatest": 4}),
        messages.LeaseLostInput({"action": "leaseLost"}),
        messages.ShardEndedInput({"action": "shardEnded"}),
        messages.ShutdownRequestedInput({"action": "shutdownRequested"}),
        messages.CheckpointInput({"action": "checkpoint", "error": None, **position}),
        messages.ShutdownInput.zombie(),
        messages.LeaseLostCheckpointer(),
        messages.Record({"action": "record", "data": "", "partitionKey": "k", **position, **times}),
    ]


PACKAGE = sys.argv[1]
package = importlib.import_module(PACKAGE)
REAL_NAME = package.__name__
names = ["", *(below(found.name) for found in pkgutil.walk_packages(package.__path__, REAL_NAME + "."))]
# By the name that was asked for, which need not be the real one.
modules = {name: importlib.import_module(f"{PACKAGE}.{name}" if name else PACKAGE) for name in names}
surface = {
    "modules": {
        name: {key: what(value, module) for key, value in vars(module).items() if not key.startswith("__")}
        for name, module in modules.items()
    },
    "exports": {
        name: sorted(getattr(module, "__all__", [key for key in vars(module) if not key.startswith("_")]))
        for name, module in modules.items()
    },
    "instances": {class_name(type(instance)): attributes(instance) for instance in instances()},
}
print(json.dumps(surface))
