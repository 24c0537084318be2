"""Answers the harness's requests, many conversations at once on one event loop.

Each request is answered by a task of its own. Whatever the agent's code does in it, raising, hanging or
asking to exit, is that conversation's fault and no other's.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redteam_sdk import context, db, record
from redteam_sdk._version import __version__
from redteam_sdk.errors import EnvironmentFault, UntrustedContext, UsageError
from redteam_sdk.external import external_tools
from redteam_sdk.faults import cause_of, describe, message_of
from redteam_sdk.frozen import Answers
from redteam_sdk.marks import marked
from redteam_sdk.serve.belonging import Belonging, belong
from redteam_sdk.serve.channel import PROTOCOL_VERSION, Channel, leave
from redteam_sdk.serve.conversation import Conversation, Refused, fault_of, is_async, is_drivers, task_name
from redteam_sdk.serve.load import Loaded, load
from redteam_sdk.serve.output import Printed
from redteam_sdk.serve.watchdog import watch
from redteam_sdk.session import Message
from redteam_sdk.tool import invoke
from redteam_sdk.values import Unserialisable, to_json, type_name

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import NoReturn

__all__ = ["Process"]

# For asyncio.to_thread in the agent's code. With the default, a handful, one that hangs would starve all.
_EXECUTOR_THREADS = 128
_CANCEL_WAIT_S = 5.0


class Process:
    """The agent process, from its first request to the end of its socket."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._loop = asyncio.new_event_loop()
        self._inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._loaded = Loaded(agent=None, tools={}, schemas=())
        self._belonging: Belonging | None = None
        self._conversations: dict[str, Conversation] = {}
        # Whose code a task runs. Python 3.11 does not show a task's contextvars, so it is noted at creation.
        self._owners: WeakKeyDictionary[asyncio.Task[Any], str] = WeakKeyDictionary()
        self._answering: dict[asyncio.Task[None], tuple[str | None, Any]] = {}
        self._printed = Printed(sys.stdout, self._report_printed)

    def run(self) -> NoReturn:
        """Serve until the harness closes the socket, which ends the process from the reader's thread."""
        sys.stdout = self._printed
        self._channel.start(self._deliver)
        stall_s = self._arm(self._inbox.get())
        self._loop.set_task_factory(self._make_task)  # type: ignore[arg-type]  # typeshed wants 3.13's
        self._loop.set_default_executor(ThreadPoolExecutor(_EXECUTOR_THREADS, thread_name_prefix="agent"))
        asyncio.set_event_loop(self._loop)
        watch(self._loop, stall_s, self._report_stall)
        while True:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # Raised through the loop by a task of the agent; whoever awaits that task gets it too.
                sys.stderr.write(f"a task of the agent asked the process to end: {describe(error)}\n")

    # From the reader's thread.
    def _deliver(self, request: dict[str, Any]) -> None:
        self._inbox.put(request)
        self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        while not self._inbox.empty():
            request = self._inbox.get_nowait()
            task = self._loop.create_task(self._answer(request), name=_title(request))
            owner = request.get("conversation")
            owner = owner if isinstance(owner, str) else None
            if owner is not None and request.get("op") != "close":
                self._owners[task] = owner
            self._answering[task] = (owner, request.get("id"))
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._answering.pop(task, None)

    def _arm(self, request: dict[str, Any]) -> float:
        """Trust, import, answer; returns stall_s. Runs before the loop, as imports do in production."""
        try:
            if request.get("op") != "arm" or request.get("version") != PROTOCOL_VERSION:
                raise UsageError(
                    f"redteam-sdk {__version__} expects 'arm' of protocol version {PROTOCOL_VERSION} first;"
                    " install the harness's version of the SDK for the agent"
                )
            stall_s, names = request.get("stall_s", 20.0), (request.get("agent"), request.get("tools"))
            if isinstance(stall_s, bool) or not isinstance(stall_s, int | float) or stall_s <= 0:
                raise UsageError("stall_s must be a number of seconds above 0")
            if not all(name is None or isinstance(name, str) for name in names):
                raise UsageError("agent and tools must be texts or null")
            # Loaded now, while nobody waits: at the first token it would hold the loop.
            importlib.import_module("jwt")
            # Before the import: code that asks for a database while it is imported must not get production.
            trust = context.Trust.from_json(request.get("trust"))
            context.arm(trust)
            if request.get("own") is not None:
                self._belonging = belong(request["own"], self._channel)
            cwd = os.getcwd()
            if sys.path[:1] != [cwd]:
                sys.path.insert(0, cwd)
            self._loaded = load(*names)
            if self._belonging is not None:
                self._belonging.load()
        except (UsageError, EnvironmentFault) as error:
            self._printed.finish(None)
            self._channel.send({"op": "refused", "message": str(error)})
            leave(0)
        self._channel.send(
            {
                "op": "armed",
                "tools": list(self._loaded.schemas),
                "python": platform.python_version(),
                "sdk": __version__,
                "egress": sorted(trust.egress),
                "externals": external_tools(),
                "marked": marked(),
            }
        )
        return float(stall_s)

    async def _answer(self, request: dict[str, Any]) -> None:
        """The boundary around the agent's code: every request gets exactly one answer."""
        try:
            answer = await self._handle(request)
        except asyncio.CancelledError as error:
            answer = fault_of(error)
            if answer["message"] == "CancelledError":
                answer["message"] += ": what answered this request was cancelled"
        except BaseException as error:  # noqa: BLE001 - also SystemExit: the agent may not end the process
            answer = fault_of(error)
        task = asyncio.current_task()
        if task in self._answering:  # else it was answered for, when its conversation closed
            self._channel.send({**answer, "id": request.get("id")})

    def _handle(self, request: dict[str, Any]) -> Coroutine[Any, Any, dict[str, Any]]:
        match request.get("op"):
            case "open":
                return self._open(
                    _text(request, "conversation"), request.get("token"), request.get("answers")
                )
            case "turn":
                return self._turn(self._known(request), _number(request, "turn"), _text(request, "text"))
            case "call":
                return self._call(self._known(request), request)
            case "close":
                return self._close(self._known(request))
            case op:
                raise Refused(
                    "protocol", f"there is no request {op!r} in protocol version {PROTOCOL_VERSION}"
                )

    async def _open(self, name: str, token: object, recorded: object) -> dict[str, Any]:
        answers = None if recorded is None else Answers.from_json(recorded)
        if name in self._conversations:
            raise Refused("protocol", f"conversation {name!r} is open already")
        with context.bind(token) as bound:
            self._channel.hide(bound.password)
            if bound.conversation != name:
                raise UntrustedContext(f"the token of conversation {name!r} was minted for another one")
            try:
                seen = await db.fetchrow(
                    "SELECT current_database()::text AS database, current_user::text AS user"
                )
            except BaseException:
                await db.close_context(bound)  # another token may open this fork with another secret
                raise
        if seen is None or seen["database"] != bound.database:
            raise EnvironmentFault(
                f"the tools of conversation {name!r} do not see its fork {bound.database!r}"
            )
        mine = self._belonging
        conversation = Conversation(bound, self._channel, whole_process=mine is not None, answers=answers)
        probes = await mine.ask(conversation) if mine is not None else {}
        self._conversations[name] = conversation
        facts = {} if answers is None else {"answers": len(answers)}
        return {
            "op": "opened",
            "database": seen["database"],
            "user": seen["user"],
            "probes": probes,
            **facts,
        }

    async def _turn(self, conversation: Conversation, turn: int, text: str) -> dict[str, Any]:
        agent, session = self._loaded.agent, conversation.session
        if agent is None:
            raise Refused("protocol", "this process was armed without an agent; it only serves tools")
        if conversation.turning:
            raise Refused("protocol", f"conversation {session.id!r} is still answering an earlier turn")
        conversation.turning = True
        try:
            with conversation.at_turn(turn):
                if is_async(agent):
                    answer = await agent(text, session)
                else:
                    answer = await conversation.in_thread(lambda: agent(text, session), f"turn {turn}")
                    if inspect.isawaitable(answer):
                        answer = await answer
        finally:
            conversation.turning = False
            self._printed.finish(session.id)
        if not isinstance(answer, str):
            raise Refused(
                "unserialisable", f"the agent answered with a {type_name(answer)}; an answer is a str"
            )
        try:
            reply = to_json(answer)
        except Unserialisable as error:
            raise Refused("unserialisable", f"the agent's answer cannot be sent: {error}") from error
        session.history += [Message("user", text), Message("agent", reply)]
        return {"op": "reply", "text": reply}

    async def _call(self, conversation: Conversation, request: dict[str, Any]) -> dict[str, Any]:
        name, call, turn = _text(request, "tool"), _text(request, "call"), _number(request, "turn")
        arguments = request.get("arguments")
        if not isinstance(arguments, dict):
            raise Refused("protocol", "a call's arguments are an object")
        with conversation.at_turn(turn):
            fn = self._loaded.tools.get(name)
            if fn is None:
                message = f"there is no tool {name!r}; there are {', '.join(self._loaded.tools) or 'none'}"
                facts = {"call": call, "name": name, "xid": None}
                record.emit("tool_call", **facts, arguments=arguments)
                record.emit("tool_error", **facts, type="UnknownTool", message=message)
                return {"op": "error", "type": "UnknownTool", "message": message}
            try:
                in_thread = functools.partial(conversation.in_thread, name=f"tool {name}")
                value = await invoke(fn, arguments, call=call, in_thread=in_thread)
            except Exception as error:
                if cause_of(error) is not None:
                    raise
                return {"op": "error", "type": type(error).__name__, "message": message_of(error)}
            finally:
                self._printed.finish(conversation.session.id)
        try:
            return {"op": "result", "value": to_json(value)}
        except Unserialisable as error:
            raise Refused("unserialisable", f"the result of tool {name!r} cannot be sent: {error}") from error

    async def _close(self, conversation: Conversation) -> dict[str, Any]:
        name = conversation.session.id
        running = [
            task
            for task, owner in list(self._owners.items())
            if owner == name and not task.done() and not is_drivers(task)
        ]
        late = [*map(task_name, running), *(f"thread of {what}" for what in conversation.threads.values())]
        for task in running:
            task.cancel(f"conversation {name!r} was closed")
        if running:
            await asyncio.wait(running, timeout=_CANCEL_WAIT_S)
        await db.close_context(conversation.context)
        for task, (owner, number) in list(self._answering.items()):
            if owner == name and task is not asyncio.current_task():
                del self._answering[task]
                stuck = Refused(
                    "exception", "the conversation was closed, and what answered this goes on regardless"
                )
                self._channel.send({**fault_of(stuck), "id": number})
        self._printed.finish(name)
        conversation.closed = True
        self._conversations.pop(name, None)
        self._channel.unhide(conversation.context.password)
        return {"op": "closed", "late": late}

    def _known(self, request: dict[str, Any]) -> Conversation:
        name = _text(request, "conversation")
        conversation = self._conversations.get(name)
        if conversation is None:
            raise Refused("protocol", f"conversation {name!r} is not open")
        return conversation

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        given = options.get("context")
        bound = context.bound_in(given) if given is not None else context.current_or_none()
        if bound is not None:
            self._owners[task] = bound.conversation
        return task

    def _report_printed(self, owner: str | None, line: str) -> None:
        # What a closed conversation's code still prints is nobody's.
        known = owner if owner in self._conversations else None
        self._channel.send({"op": "printed", "conversation": known, "text": line})

    # From the watchdog's thread.
    def _report_stall(self, task: asyncio.Task[Any] | None, for_s: float, stack: str) -> None:
        owner = self._owners.get(task) if task is not None else None
        self._channel.send({"op": "stalled", "conversation": owner, "for_s": round(for_s, 1), "stack": stack})


def _title(request: dict[str, Any]) -> str:
    which = request.get("turn") if request.get("op") == "turn" else request.get("call", "")
    return f"{request.get('op')} {which}".strip()


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise Refused("protocol", f"request {request.get('op')!r} needs a text {name!r}")
    return value


def _number(request: dict[str, Any], name: str) -> int:
    value = request.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("protocol", f"request {request.get('op')!r} needs a whole number {name!r}")
    return value
