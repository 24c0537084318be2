"""The isolated process: `python -m redteam_harness.scenarios.runner FD` runs one scenario, confined.

It is given the scenario as JSON on its standard input and answers in JSON lines on the descriptor that it
inherits. Before the agent is imported it is confined (`sandbox`), and `@tool` and `@external` are replaced:
no marked function runs, the scenario's mocks answer.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import os
import random
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redteam_sdk
from redteam_harness.scenarios import sandbox
from redteam_sdk import record
from redteam_sdk.egress import guard
from redteam_sdk.errors import UsageError
from redteam_sdk.faults import describe, message_of
from redteam_sdk.frozen import Answer
from redteam_sdk.serve.load import load_callable
from redteam_sdk.session import Message, Session
from redteam_sdk.tool import named_arguments, require_function
from redteam_sdk.values import to_json, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["main"]

_MAX_TEXT = 8_192
_MAX_MESSAGE = 1_000
_MAX_CALLS = 100
_MAX_FILES = 20_000
_NOT_CODE = ("__pycache__", "node_modules")
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/etc/localtime", "/etc/ld.so.cache")


class _TooMany(Exception):
    """A step made more calls than are kept."""


class _Mocks:
    """Answers every call of a marked function, and keeps what was called in the step that is held."""

    def __init__(self, mocks: list[dict[str, Any]]) -> None:
        self._known = {(one["tool"], _canonical(one["arguments"])): one for one in mocks}  # the last one wins
        self.begin()

    def begin(self) -> None:
        """Begin a step."""
        self.calls: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []

    def emit(self, event: dict[str, Any]) -> None:
        """As a recorder of the SDK: what is refused is the step's error, also where the agent swallows it."""
        if event["kind"] == "agent_fault":
            self.error(str(event["cause"]), str(event["message"]))

    def error(self, kind: str, message: str, **facts: Any) -> None:
        """Keep an error of the step; the same one once."""
        found = {"kind": kind, **facts, "message": message[:_MAX_MESSAGE]}
        if found not in self.errors and len(self.errors) < _MAX_CALLS:
            self.errors.append(found)

    def answer(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call returns, or raises."""
        name, arguments = fn.__name__, named_arguments(fn, args, kwargs)
        if len(self.calls) >= _MAX_CALLS:
            self.error("calls", f"more than {_MAX_CALLS} calls in one step")
            raise _TooMany(f"more than {_MAX_CALLS} calls in one step")
        call: dict[str, Any] = {"tool": name, "arguments": _bounded(arguments)}
        self.calls.append(call)
        mock = self._known.get((name, _canonical(arguments)))
        if mock is None:
            marker = f"[no mock answers {name}]"
            call["miss"] = marker
            self.error("mock-miss", self._nearest(name, arguments), resource=name)
            return marker
        if mock["error"] is None:
            call["answer"] = mock["answer"]
            return copy.deepcopy(mock["answer"])
        call["error"] = mock["error"]
        try:
            raised = Answer(name=name, arguments=arguments, error=mock["error"]).raised()
        except Exception:  # whatever the agent's own exception raises when it is made; it goes on
            kind = mock["error"].partition(":")[0]
            self.error("mock", f"{name} has an error {kind!r}, of which the agent's code has no exception")
            raise
        raise raised

    def _nearest(self, name: str, arguments: Mapping[str, Any]) -> str:
        known = [json.loads(given) for tool, given in self._known if tool == name]
        if not known:
            return f"{name} was called, and no mock is for it"
        differ = min(
            ([key for key in {**one, **arguments} if one.get(key) != arguments.get(key)] for one in known),
            key=len,
        )
        return f"{name} was called as no mock has it; the nearest differs in {', '.join(sorted(differ))}"


def _marker(mocks: _Mocks, mark: str) -> Callable[..., Any]:
    """What stands in place of `@tool` or `@external`."""

    def marked(fn: Any = None, /, **_options: Any) -> Any:
        if fn is None:
            return marked
        require_function(fn, mark)
        if inspect.isgeneratorfunction(inspect.unwrap(fn)):
            raise UsageError(f"{mark} {fn.__name__} makes a context manager, which no mock can answer")
        if inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def call(*args: Any, **kwargs: Any) -> Any:
                return mocks.answer(fn, args, kwargs)

            return call

        @functools.wraps(fn)
        def call_sync(*args: Any, **kwargs: Any) -> Any:
            return mocks.answer(fn, args, kwargs)

        return call_sync

    return marked


def _replace_marks(mocks: _Mocks) -> None:
    for name in ("tool", "external"):
        marker = _marker(mocks, f"@{name}")
        setattr(redteam_sdk, name, marker)
        setattr(sys.modules[f"redteam_sdk.{name}"], name, marker)


def _see_socket(mocks: _Mocks, event: str, args: tuple[Any, ...]) -> None:
    """The kernel refuses a socket before the guard could see anything; it is told all the same."""
    if event == "socket.__new__" and args[1] in (socket.AF_INET, socket.AF_INET6):
        mocks.error("egress", "the agent's code opened a network socket; there is no network here")


def _confine(folder: Path) -> dict[str, int]:
    """Leave the process Python, its packages and the agent's code to read; nothing hidden, none to write."""
    trees = [Path(prefix, name) for prefix in (sys.prefix, sys.base_prefix) for name in ("lib", "lib64")]
    trees += map(Path, _SYSTEM)
    files = [Path(one) for one in _DEVICES]
    for root in dict.fromkeys((folder, *map(Path, sys.path[1:]))):
        if not any(root.is_relative_to(tree) for tree in trees):
            files += _visible(root, most=_MAX_FILES - len(files))
    return sandbox.enter(trees, files)


def _visible(root: Path, *, most: int) -> list[Path]:
    """The files and folders below a folder of somebody's code: a .env lies beside it more often than not."""
    found: list[Path] = [root] if root.is_file() else []
    for where, folders, names in os.walk(root):
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in _NOT_CODE)
        shown = (Path(where, one) for one in sorted(names) if not one.startswith("."))
        found += [Path(where), *(one for one in shown if not one.is_symlink())]  # a link may lead anywhere
        if len(found) > most:
            raise sandbox.Unconfined(
                f"{root} has too many files; give the scenario and its agent a folder of their own"
            )
    return found


def _steps(agent: Callable[..., Any], asked: dict[str, Any], mocks: _Mocks) -> Iterator[dict[str, Any]]:
    session = Session(id=asked["scenario"])
    with asyncio.Runner() as runner, record.recording(mocks, everywhere=True):
        for number, step in enumerate(asked["steps"], start=1):
            mocks.begin()
            output = _reply(agent, step["say"], session, mocks, runner)
            # Kept from the conversation too: the next step is answered by what the report shows.
            session.history += [Message("user", step["say"]), Message("agent", output or "")]
            yield {"step": number, "output": output, "calls": mocks.calls, "errors": mocks.errors}


def _reply(
    agent: Callable[..., Any], line: str, session: Session, mocks: _Mocks, runner: asyncio.Runner
) -> str | None:
    try:
        answer = agent(line, session)
        if inspect.isawaitable(answer):
            answer = runner.run(_awaited(answer))
    except BaseException as error:  # noqa: BLE001 - whatever the agent's code raises is the step's
        mocks.error("exception", message_of(error), type=type(error).__name__)
        return None
    if not isinstance(answer, str):
        mocks.error("reply", f"the agent answered with {type_name(answer)}, and not with a text")
        return None
    if len(answer) > _MAX_TEXT:
        mocks.error("size", f"the reply has {len(answer):,} characters; {_MAX_TEXT:,} are kept")
    return answer[:_MAX_TEXT]


async def _awaited(answer: Any) -> Any:
    return await answer


def _bounded(value: Any) -> Any:
    size = len(json.dumps(value, ensure_ascii=False))
    return value if size <= _MAX_TEXT else f"[{size:,} characters]"


def _canonical(value: Any) -> str:
    return json.dumps(to_json(value, strict=False), sort_keys=True, separators=(",", ":"))


def main() -> None:
    """Run the scenario on standard input."""
    out = os.fdopen(int(sys.argv[1]), "w", encoding="ascii")
    os.set_inheritable(out.fileno(), False)

    def tell(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")  # in ASCII: half a character has a form, too
        out.flush()

    asked = json.load(sys.stdin)
    folder = Path(asked["folder"])
    mocks = _Mocks(asked["mocks"])
    sys.path.insert(0, str(folder))
    random.seed(asked["scenario"])
    try:
        held = _confine(folder)
    except sandbox.Unconfined as error:
        tell(op="unconfined", message=str(error))
        return
    try:
        guard.start(())
        sys.addaudithook(functools.partial(_see_socket, mocks))
        _replace_marks(mocks)
        agent = load_callable(asked["agent"], f"agent {asked['agent']!r}")
    except UsageError as error:
        tell(op="refused", message=str(error)[:_MAX_TEXT])
        return
    except BaseException as error:  # noqa: BLE001 - the agent's module may raise anything
        tell(
            op="refused",
            message=f"agent {asked['agent']!r} cannot be imported: {describe(error)}"[:_MAX_TEXT],
        )
        return
    try:
        for step in _steps(agent, asked, mocks):
            tell(op="step", **step)
    except BaseException:  # noqa: BLE001 - ours; told, and the parent calls it a fault
        tell(op="fault", message=traceback.format_exc()[-_MAX_TEXT:])
        return
    tell(op="done", held=held)


if __name__ == "__main__":
    main()
    os._exit(0)  # threads that the agent left behind are not waited for
