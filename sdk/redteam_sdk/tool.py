"""`@tool`: marks a function that the agent calls, and records its calls while a conversation is recorded.

In production a call costs one contextvar read more than the bare function. Nothing of what a tool does
changes: arguments, result and exceptions pass through as they are.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from redteam_sdk import marks, record
from redteam_sdk.bookkeeping import next_xid, next_xid_async
from redteam_sdk.faults import message_of, record_fault
from redteam_sdk.schema import InvalidArguments, convert_arguments, schema
from redteam_sdk.values import to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

__all__ = [
    "InvalidArguments",
    "convert_arguments",
    "invoke",
    "is_tool",
    "named_arguments",
    "require_function",
    "schema",
    "tool",
]

P = ParamSpec("P")
R = TypeVar("R")

_MARK = "__redteam_tool__"


def tool(fn: Callable[P, R]) -> Callable[P, R]:
    """Mark a function, `async def` or `def`, as a tool of the agent. Its type and behaviour stay as they are.

    While a conversation is recorded each call is a `tool_call` and a `tool_result` or `tool_error` event. On
    a fork the events carry the server's next transaction id, before and after.

    Raises:
        TypeError: it is no plain function: a class, a generator, a staticmethod object, ...
    """
    require_function(fn, "@tool")
    marks.note("tools", fn)

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            if not record.is_recording():
                return await fn(*args, **kwargs)
            shown = named_arguments(fn, args, kwargs)
            return await _recorded(fn.__name__, record.next_call(), shown, lambda: fn(*args, **kwargs))

        wrapper = cast("Callable[P, R]", call)
    else:

        @functools.wraps(fn)
        def call_sync(*args: P.args, **kwargs: P.kwargs) -> Any:
            if not record.is_recording():
                return fn(*args, **kwargs)
            facts = {"call": record.next_call(), "name": fn.__name__}
            shown = named_arguments(fn, args, kwargs)
            record.emit("tool_call", **facts, arguments=shown, xid=next_xid())
            try:
                value = fn(*args, **kwargs)
            except BaseException as error:
                record.emit("tool_error", **facts, **_error_facts(error), xid=next_xid())
                raise
            record.emit("tool_result", **facts, value=to_json(value, strict=False), xid=next_xid())
            return value

        wrapper = cast("Callable[P, R]", call_sync)
    setattr(wrapper, _MARK, True)
    return wrapper


def require_function(fn: object, mark: str) -> None:
    """Refuse what cannot be called as one function that returns one value.

    Raises:
        TypeError: it is a class, a staticmethod or classmethod object, a generator, or has no name.
    """
    if not callable(fn) or isinstance(fn, type | staticmethod | classmethod) or not hasattr(fn, "__name__"):
        raise TypeError(f"{mark} goes on a function, below @staticmethod and @classmethod")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{mark} goes on a function that returns one value; {fn.__name__!r} is a generator")


def is_tool(value: object) -> bool:
    """Whether `@tool` made it."""
    return callable(value) and hasattr(value, _MARK)


async def invoke(
    marked: Callable[..., Any],
    arguments: Mapping[str, Any],
    *,
    call: str,
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
) -> Any:
    """Call a tool with a model's JSON arguments, recorded under the model's own id for the call.

    Args:
        marked: a function that `@tool` marked, with whatever other decorators are around the mark: all of
            them run, so an `@external` above or below it still holds.
        arguments: as the model gave them; converted to the types of the signature.
        call: the id.
        in_thread: runs a plain `def` off the event loop, with the context.

    Raises:
        InvalidArguments: the arguments do not fit the signature.
        Exception: whatever the tool raises.
    """
    with record.calling(call):
        try:
            converted = convert_arguments(marked, arguments)
        except InvalidArguments as error:
            shown = to_json(arguments, strict=False)
            return await _recorded(
                marked.__name__, record.next_call(), shown, functools.partial(_refuse, error)
            )
        if inspect.iscoroutinefunction(marked):
            return await marked(**converted)
        return await in_thread(lambda: marked(**converted))


def named_arguments(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """A call's arguments by name as JSON-like data, defaults included, without `self` and `cls`.

    What has no JSON form is shown as `<its type>`. Arguments that do not fit are shown as they were given.
    """
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
        bound.apply_defaults()
        named = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}
    except (TypeError, ValueError):
        named = {**({"args": list(args)} if args else {}), **kwargs}
    shown: dict[str, Any] = to_json(named, strict=False)
    return shown


async def _recorded(name: str, call: str, shown: dict[str, Any], run: Callable[[], Awaitable[Any]]) -> Any:
    facts = {"call": call, "name": name}
    try:
        # Within: what is cancelled while it waits for the transaction id has begun, and ends.
        await _emit("tool_call", {**facts, "arguments": shown})
        value = await run()
    except Exception as error:
        await _emit("tool_error", {**facts, **_error_facts(error)})
        raise
    except BaseException as error:
        # Cancelled or told to exit: record it, and do not wait for a server on the way out.
        record.emit("tool_error", **facts, **_error_facts(error), xid=None)
        raise
    await _emit("tool_result", {**facts, "value": to_json(value, strict=False)})
    return value


async def _refuse(error: InvalidArguments) -> None:
    raise error


async def _emit(kind: str, facts: dict[str, Any]) -> None:
    xid = None
    try:
        xid = await next_xid_async()
    finally:
        record.emit(kind, **facts, xid=xid)


def _error_facts(error: BaseException) -> dict[str, Any]:
    record_fault(error)
    return {"type": type(error).__name__, "message": message_of(error)}
