"""`@external`: marks a function that reaches past the database, such as a card charge or an SMS.

Production calls the function itself. Redteam calls its mock and records the call; without a mock it calls
nothing and says so loudly.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from redteam_sdk import record
from redteam_sdk.context import resolve
from redteam_sdk.errors import UnmockedExternalCall
from redteam_sdk.faults import describe, record_fault
from redteam_sdk.tool import named_arguments, require_function
from redteam_sdk.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["external"]

P = ParamSpec("P")
R = TypeVar("R")


@overload
def external(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def external(*, mock: Callable[..., Any] | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def external(fn: Callable[..., Any] | None = None, /, *, mock: Callable[..., Any] | None = None) -> Any:
    """Mark a function, `async def` or `def`, that must never run in redteam.

    Args:
        fn: the function.
        mock: what runs in its place while a conversation is bound; takes the same arguments. The mock of an
            `async def` may be either kind, that of a `def` is a `def`.

    Raises:
        TypeError: the function is a generator or no function, or its mock is `async` and it is not.

    A call raises NoContext in an armed process where no conversation is bound, and UnmockedExternalCall in a
    conversation if there is no mock. Neither makes the call.
    """
    if fn is None:
        return functools.partial(_mark, mock=mock)
    return _mark(fn, mock=None)


def _mark(fn: Callable[P, R], *, mock: Callable[..., Any] | None) -> Callable[P, R]:
    require_function(fn, "@external")

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            if resolve() is None:
                return await fn(*args, **kwargs)
            facts = _facts(fn, args, kwargs)
            try:
                result = _mock_of(fn, mock)(*args, **kwargs)
                if inspect.isawaitable(result):
                    result = await result
            except BaseException as error:
                _record_error(facts, error)
                raise
            record.emit("external", **facts, result=to_json(result, strict=False))
            return result

        return cast("Callable[P, R]", call)

    if inspect.iscoroutinefunction(mock):
        raise TypeError(
            f"external {fn.__name__!r} is a plain function and needs a plain mock, not an async one"
        )

    @functools.wraps(fn)
    def call_sync(*args: P.args, **kwargs: P.kwargs) -> Any:
        if resolve() is None:
            return fn(*args, **kwargs)
        facts = _facts(fn, args, kwargs)
        try:
            result = _mock_of(fn, mock)(*args, **kwargs)
        except BaseException as error:
            _record_error(facts, error)
            raise
        record.emit("external", **facts, result=to_json(result, strict=False))
        return result

    return cast("Callable[P, R]", call_sync)


def _mock_of(fn: Callable[..., Any], mock: Callable[..., Any] | None) -> Callable[..., Any]:
    if mock is None:
        raise UnmockedExternalCall(
            f"external function {fn.__module__}.{fn.__qualname__} was called in redteam and has no mock; "
            "the call was not made; give it one with @external(mock=...)"
        )
    return mock


def _facts(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"name": fn.__name__, "arguments": named_arguments(fn, args, kwargs)}


def _record_error(facts: dict[str, Any], error: BaseException) -> None:
    record_fault(error)
    record.emit("external", **facts, error=describe(error))
