"""Imports the agent under test and its tools, and says plainly why if that fails."""

from __future__ import annotations

import importlib
import inspect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_sdk.errors import UsageError
from redteam_sdk.faults import describe
from redteam_sdk.tool import is_tool, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

__all__ = ["Loaded", "load", "load_callable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the process serves.

    Attributes:
        agent: takes a line and the session and gives the answer; None when only tools are served.
        tools: the functions that `@tool` marked, by name.
        schemas: what a model is told of each.
    """

    agent: Callable[..., Any] | None
    tools: Mapping[str, Callable[..., Any]]
    schemas: tuple[dict[str, Any], ...]


def load(agent: str | None, tools: str | None) -> Loaded:
    """Import `module:callable` and a module of tools.

    Raises:
        UsageError: says which module, what was looked for in it, and the original error.
    """
    if agent is None and tools is None:
        raise UsageError("neither an agent nor a module of tools was named; there is nothing to serve")
    found = _load_tools(tools) if tools is not None else {}
    return Loaded(
        agent=_load_agent(agent) if agent is not None else None,
        tools=found,
        schemas=tuple(schema(fn) for fn in found.values()),
    )


def load_callable(spec: str, what: str) -> Callable[..., Any]:
    """Import `module:callable`; `what` names it in messages.

    Raises:
        UsageError: the module cannot be imported, or there is nothing callable of that name in it.
    """
    module_name, colon, path = spec.partition(":")
    if not colon or not module_name or not path:
        raise UsageError(f"{what} is not of the form module:callable")
    found: Any = _import(module_name, what)
    for part in path.split("."):
        if not hasattr(found, part):
            raise UsageError(f"{what}: module {module_name!r} was imported and has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{what} is a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def _load_agent(spec: str) -> Callable[..., Any]:
    found = load_callable(spec, f"agent {spec!r}")
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return found  # something built in, whose parameters cannot be known
    try:
        signature.bind("message", "session")
    except TypeError as error:
        raise UsageError(f"agent {spec!r} must take (message, session); it takes {signature}") from error
    return found


def _load_tools(module_name: str) -> dict[str, Callable[..., Any]]:
    what = f"tools module {module_name!r}"
    tools: dict[str, Callable[..., Any]] = {}
    for value in vars(_import(module_name, what)).values():
        if not is_tool(value):
            continue
        name = value.__name__
        if tools.setdefault(name, value) is not value:
            raise UsageError(f"{what} has two tools of the name {name!r}; a model could not tell them apart")
    if not tools:
        raise UsageError(f"{what} was imported and has no function marked with @tool")
    return tools


def _import(module_name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except BaseException as error:  # noqa: BLE001 - somebody else's module may even call sys.exit
        failure = describe(error)
    raise UsageError(
        f"{what} cannot be served: importing module {module_name!r} from {os.getcwd()} failed: {failure}"
    )
