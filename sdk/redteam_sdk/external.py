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

from redteam_sdk import marks, record
from redteam_sdk.context import resolve
from redteam_sdk.errors import AnswerNotRecorded, EnvironmentFault, UnmockedExternalCall
from redteam_sdk.faults import cause_of, describe, record_fault
from redteam_sdk.mocks import Bounced, Duplicate, PerConversation
from redteam_sdk.scripted import ScriptedFault, fault_for
from redteam_sdk.tool import named_arguments, require_function
from redteam_sdk.values import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from redteam_sdk.claims import Context
    from redteam_sdk.frozen import Answer

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
    gap: str | None = None,
    faults: Mapping[str, Callable[[], BaseException]] | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def external(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mock: Callable[..., Any] | None = None,
    gap: str | None = None,
    faults: Mapping[str, Callable[[], BaseException]] | None = None,
) -> Any:
    """Mark a function, `async def` or `def`, that must never run in redteam.

    It goes below `@classmethod` and `@staticmethod`, and above `@contextmanager` and `@asynccontextmanager`.

    Args:
        fn: the function.
        mock: what runs in its place while a conversation is bound; takes the same arguments, also `self` of a
            method. The mock of an `async def` may be either kind, that of a `def` is a `def`, that of a
            context manager returns one. For state, see `mocks.per_conversation`.
        gap: one sentence on what the real thing does and the mock does not, for whoever reads a verdict that
            rests on the mock. `redteam check` asks for it.
        faults: what a case's faults raise, by name: an exception's class, or what makes one. `timeout`,
            `duplicate` and `bounce` are there; what production raises belongs in their place.

    Raises:
        TypeError: the function is a generator or no function, its mock is `async` and it is not, or there is
            a `gap` and no mock.
        ValueError: the `gap` is blank.

    A call raises NoContext in an armed process where no conversation is bound, and UnmockedExternalCall in a
    conversation if there is no mock. Neither makes the call.
    """
    if fn is None:
        return functools.partial(_mark, mock=mock, gap=gap, faults=faults or {})
    return _mark(fn, mock=None, gap=None, faults={})


def external_tools() -> dict[str, list[str]]:
    """The names of all external tools that this process has, each with the faults that it can play."""
    return {name: sorted(faults) for name, faults in sorted(_known.items())}


def _mark(
    fn: Callable[P, R],
    *,
    mock: Callable[..., Any] | None,
    gap: str | None,
    faults: Mapping[str, Callable[[], BaseException]],
) -> Callable[P, R]:
    require_function(fn, "@external")
    if gap is not None and mock is None:
        raise TypeError(
            f"external {fn.__name__!r} has a gap and no mock that it could be about; give it a mock"
        )
    if gap is not None and not gap.strip():
        raise ValueError(f"the gap of external {fn.__name__!r} is blank; say what its mock does not do")
    _known.setdefault(fn.__name__, set()).update(_USUAL, faults)
    marks.note("externals", fn, mocked=mock is not None, gap=gap)
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
        recording = record.current()
        self._answers = None if recording is None else recording.answers
        self._answer: Answer | None = None
        if self._answers is None:
            number = next(_numbers.here()[fn.__name__]) if context.faults else 0
            self._fault = fault_for(context.faults, fn.__name__, context.conversation, number)
        else:
            # What was recorded decides, also on which faults were played.
            self._answer = self._answers.take(fn.__name__, self._facts["arguments"])
            self._fault = None if self._answer is None else _played(self._answer)
            self._facts |= {"recorded": True}
        if self._fault is not None:
            self._facts |= {"fault": self._fault.fault, "happened": self._fault.runs_mock}
        self.runs = self._fault is None or self._fault.runs_mock or mock is None
        self.result: Any = None

    def run(self) -> Any:
        """Call the mock.

        Raises:
            AnswerNotRecorded: a replay has no answer to this call.
            UnmockedExternalCall: there is no mock.
        """
        if self._answers is not None and self._answer is None:
            raise self._answers.missing(self._fn.__name__, self._facts["arguments"])
        if self._mock is None:
            fn = self._fn
            raise UnmockedExternalCall(
                f"external function {fn.__module__}.{fn.__qualname__} was called in redteam and has no mock; "
                "the call was not made; give it one with @external(mock=...)"
            )
        return self._mock(*self._args, **self._kwargs)

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        failure = error if self._stays(error) else self._failure()
        if failure is not None:
            record_fault(failure)
            record.emit("external", **self._facts, error=describe(failure))
            if failure is not error:
                raise failure from None
            return False
        record.emit("external", **self._facts, result=to_json(self.result, strict=False))
        return True

    def _stays(self, error: BaseException | None) -> bool:
        """Whether it is the call's error, whatever was scripted or recorded."""
        if error is None:
            return False
        return self._answer is None or not isinstance(error, Exception) or cause_of(error) is not None

    def _failure(self) -> BaseException | None:
        """What the call raises by the script or the record; where it answers, the result is put right."""
        if self._fault is not None:
            return self._scripted()
        if self._answer is None:
            return None
        try:
            if self._answer.error is not None:
                return self._answer.raised()
            self.result = self._answer.like(self.result)
        except AnswerNotRecorded as unlike:
            return unlike
        return None

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


def _played(answer: Answer) -> ScriptedFault | None:
    if answer.fault is None:
        return None
    return ScriptedFault(answer.name, answer.fault, happened=answer.happened)


def _count() -> defaultdict[str, Iterator[int]]:
    return defaultdict(lambda: itertools.count(1))


_numbers = PerConversation(_count)
