"""`@external`: marks a function that reaches past the database, such as a card charge or an SMS.

Production calls the function itself. Redteam calls its mock and records the call; without a mock it calls
nothing and says so loudly. A case of a suite may have the calls fail: see `redteam_sdk.scripted`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections import defaultdict
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from redteam_sdk import record
from redteam_sdk.context import resolve
from redteam_sdk.errors import EnvironmentFault, UnmockedExternalCall
from redteam_sdk.faults import describe, record_fault
from redteam_sdk.mocks import Bounced, Duplicate, PerConversation
from redteam_sdk.scripted import fault_for
from redteam_sdk.tool import named_arguments, require_function
from redteam_sdk.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redteam_sdk.claims import Context

__all__ = ["external", "external_tools"]

P = ParamSpec("P")
R = TypeVar("R")

_USUAL: Mapping[str, Callable[[str], BaseException]] = {
    "timeout": lambda name: TimeoutError(f"{name} did not answer in time; whether it was done is not known"),
    "duplicate": lambda name: Duplicate(f"{name} has had this request before"),
    "bounce": lambda name: Bounced(f"{name} could not deliver"),
}

# Every mark of this process, by name; of several with one name, the faults of all.
_known: dict[str, set[str]] = {}


@overload
def external(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def external(
    *,
    mock: Callable[..., Any] | None = None,
    faults: Mapping[str, Callable[[], BaseException]] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def external(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mock: Callable[..., Any] | None = None,
    faults: Mapping[str, Callable[[], BaseException]] | None = None,
) -> Any:
    """Mark a function, `async def` or `def`, that must never run in redteam.

    It goes below `@classmethod` and `@staticmethod`, and above `@contextmanager` and `@asynccontextmanager`.

    Args:
        fn: the function.
        mock: what runs in its place while a conversation is bound; takes the same arguments, also `self` of a
            method. The mock of an `async def` may be either kind, that of a `def` is a `def`, that of a
            context manager returns one. For state, see `mocks.per_conversation`.
        faults: what a case's faults raise, by name: an exception's class, or what makes one. `timeout`,
            `duplicate` and `bounce` are there; what production raises belongs in their place.

    Raises:
        TypeError: the function is a generator or no function, or its mock is `async` and it is not.

    A call raises NoContext in an armed process where no conversation is bound, and UnmockedExternalCall in a
    conversation if there is no mock. Neither makes the call.
    """
    if fn is None:
        return functools.partial(_mark, mock=mock, faults=faults or {})
    return _mark(fn, mock=None, faults={})


def external_tools() -> dict[str, list[str]]:
    """The names of all external tools that this process has, each with the faults that it can play."""
    return {name: sorted(faults) for name, faults in sorted(_known.items())}


def _mark(
    fn: Callable[P, R],
    *,
    mock: Callable[..., Any] | None,
    faults: Mapping[str, Callable[[], BaseException]],
) -> Callable[P, R]:
    require_function(fn, "@external")
    _known.setdefault(fn.__name__, set()).update(_USUAL, faults)
    begin = functools.partial(_Call, fn, mock, faults)

    if inspect.iscoroutinefunction(fn):

        @functools.wraps(fn)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            context = resolve()
            if context is None:
                return await fn(*args, **kwargs)
            with begin(context, args, kwargs) as made:
                if made.runs:
                    made.result = made.run()
                    if inspect.isawaitable(made.result):
                        made.result = await made.result
            return made.result

        return cast("Callable[P, R]", call)

    if inspect.iscoroutinefunction(mock):
        raise TypeError(
            f"external {fn.__name__!r} is a plain function and needs a plain mock, not an async one"
        )

    makes_manager = _makes_manager(fn)

    @functools.wraps(fn)
    def call_sync(*args: P.args, **kwargs: P.kwargs) -> Any:
        context = resolve()
        if context is None:
            return fn(*args, **kwargs)
        made = begin(context, args, kwargs)
        if makes_manager:
            return _Manager(made)
        with made:
            if made.runs:
                made.result = made.run()
        return made.result

    return cast("Callable[P, R]", call_sync)


def _makes_manager(fn: Callable[..., Any]) -> bool:
    """Whether @contextmanager or @asynccontextmanager made it."""
    code = getattr(fn, "__code__", None)
    return code is not None and code.co_filename == contextlib.contextmanager.__code__.co_filename


class _Call:
    """One call in a conversation. As a block it is recorded at its end, however it ends.

    Attributes:
        runs: whether the mock is to run.
        result: what the mock returned.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        mock: Callable[..., Any] | None,
        faults: Mapping[str, Callable[[], BaseException]],
        context: Context,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._fn, self._mock, self._faults = fn, mock, faults
        self._args, self._kwargs = args, kwargs
        # Before the mock has them: it may change what it is given.
        self._facts: dict[str, Any] = {"name": fn.__name__, "arguments": named_arguments(fn, args, kwargs)}
        number = next(_numbers.here()[fn.__name__]) if context.faults else 0
        self._fault = fault_for(context.faults, fn.__name__, context.conversation, number)
        if self._fault is not None:
            self._facts |= {"fault": self._fault.fault, "happened": self._fault.runs_mock}
        self.runs = self._fault is None or self._fault.runs_mock or mock is None
        self.result: Any = None

    def run(self) -> Any:
        """Call the mock."""
        if self._mock is None:
            fn = self._fn
            raise UnmockedExternalCall(
                f"external function {fn.__module__}.{fn.__qualname__} was called in redteam and has no mock; "
                "the call was not made; give it one with @external(mock=...)"
            )
        return self._mock(*self._args, **self._kwargs)

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        scripted = self._scripted() if error is None else None
        if error is not None or scripted is not None:
            failure = error or scripted
            assert failure is not None
            record_fault(failure)
            record.emit("external", **self._facts, error=describe(failure))
            if scripted is not None:
                raise scripted
            return
        record.emit("external", **self._facts, result=to_json(self.result, strict=False))

    def _scripted(self) -> BaseException | None:
        if self._fault is None:
            return None
        name, fault = self._fn.__name__, self._fault.fault
        if fault in self._faults:
            return self._faults[fault]()
        if fault in _USUAL:
            return _USUAL[fault](name)
        return EnvironmentFault(
            f"the case has {name} fail with {fault!r}, for which it has no exception; it has "
            f"{', '.join(sorted({*_USUAL, *self._faults}))}; add it to @external(faults=...)"
        )


class _Manager:
    """The mock's context manager, recorded when it has been entered, or could not be."""

    def __init__(self, made: _Call) -> None:
        self._made = made
        self._plain = contextlib.ExitStack()
        self._async = contextlib.AsyncExitStack()

    def __enter__(self) -> Any:
        with self._plain as stack:
            with self._made as made:
                if made.runs:
                    made.result = stack.enter_context(made.run())
            self._plain = stack.pop_all()
        return made.result

    def __exit__(self, *error: Any) -> bool | None:
        return self._plain.__exit__(*error)

    async def __aenter__(self) -> Any:
        async with self._async as stack:
            with self._made as made:
                if made.runs:
                    manager = made.run()
                    is_async = hasattr(manager, "__aenter__")
                    made.result = (
                        await stack.enter_async_context(manager) if is_async else stack.enter_context(manager)
                    )
            self._async = stack.pop_all()
        return made.result

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._async.__aexit__(*error)


def _count() -> defaultdict[str, Iterator[int]]:
    return defaultdict(lambda: itertools.count(1))


_numbers = PerConversation(_count)
