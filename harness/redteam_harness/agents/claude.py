"""An agent on a chat model: the tool loop runs here, where the key is; the tools run in the agent process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio

from redteam_harness.agents.agent import AgentFault, AgentLost
from redteam_harness.models.chat import ModelFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.host import ProcessAgent
    from redteam_harness.agents.isolated import IsolatedAgent
    from redteam_harness.agents.session import ProcessSession
    from redteam_harness.models.chat import ChatModel, Reply

__all__ = ["ModelAgent"]

_EMPTY_TRIES = 2
_UNUSABLE = {
    "refusal": "refused to answer (stop: refusal): the API ended its message, so there is no line to deliver",
    "model_context_window_exceeded": "ran out of its context window",
}


class ModelAgent:
    """Opens conversations of a model with a system prompt and the suite's tools.

    Attributes:
        host: runs the tools.
    """

    def __init__(
        self, host: ProcessAgent | IsolatedAgent, model: ChatModel, system: str, *, steps: int
    ) -> None:
        """Nothing is started yet.

        Args:
            host: runs the tools.
            model: answers.
            system: its prompt.
            steps: how many of its messages in a row may call tools.
        """
        self.host = host
        self._model = model
        self._system = system
        self._steps = steps

    async def open(self, opening: Opening) -> ModelSession:
        """Start a session; see `Agent`."""
        session = await self.host.open(opening)
        return ModelSession(session, self._model, self._system, self.host.tools, steps=self._steps)


class ModelSession:
    """One conversation of the model: its messages, and the session in which its tools run."""

    def __init__(
        self,
        session: ProcessSession,
        model: ChatModel,
        system: str,
        tools: Sequence[Mapping[str, Any]],
        *,
        steps: int,
    ) -> None:
        self._session = session
        self._model = model
        self._system = system
        self._tools = tools
        self._steps = steps
        self._messages: list[dict[str, Any]] = []

    @property
    def database(self) -> str:
        """What the tools' database is; see `AgentSession`."""
        return self._session.database

    @property
    def egress(self) -> tuple[str, ...] | None:
        """What the egress guard lets through in the tools' process; see `ProcessSession`."""
        return self._session.egress

    async def turn(self, number: int, text: str) -> str:
        """Have the model answer, calling tools until it does.

        Raises:
            AgentFault: the model could not be had, answered nothing, or called tools without end; a fault of
                ours is never shown to the model as a tool's answer.
            AgentLost: the tools' process was lost.
        """
        self._messages.append({"role": "user", "content": text})
        for _ in range(self._steps):
            reply = await self._reply()
            self._messages.append({"role": "assistant", "content": list(reply.content)})
            calls = [block for block in reply.content if block["type"] == "tool_use"]
            if calls:
                results = await self._results(number, calls)
                self._messages.append({"role": "user", "content": results})
            elif reply.stop != "pause_turn":
                return reply.text
        raise AgentFault(
            "steps",
            f"the agent's model called tools {self._steps} times without answering the user; "
            "`agent: {claude: {steps: N}}` allows it more",
        )

    async def close(self) -> tuple[str, ...]:
        """End it; see `AgentSession`."""
        return await self._session.close()

    async def _reply(self) -> Reply:
        """The model's next message; one that says nothing at all is asked for once more."""
        for _ in range(_EMPTY_TRIES):
            try:
                reply = await self._model.reply(
                    system=self._system, messages=self._messages, tools=self._tools
                )
            except ModelFault as fault:
                raise AgentFault("budget" if fault.kind == "budget" else "model", str(fault)) from fault
            if reply.stop in _UNUSABLE:
                raise AgentFault(reply.stop, f"the agent's model {_UNUSABLE[reply.stop]}")
            if reply.stop == "max_tokens" and _calls_tools(reply):
                raise AgentFault(
                    "max_tokens", "the agent's model was cut off by its limit of output tokens in a tool call"
                )
            if reply.text or _calls_tools(reply) or reply.stop == "pause_turn":
                return reply
        raise AgentFault(
            "empty", f"the agent's model answered with no text {_EMPTY_TRIES} times (stop: {reply.stop})"
        )

    async def _results(self, turn: int, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Call the tools that the model asked for, at once; the results in the order of the calls."""
        results: list[dict[str, Any]] = [{} for _ in calls]
        faults: list[AgentFault | AgentLost] = []

        async def one(index: int, block: Mapping[str, Any]) -> None:
            try:
                results[index] = await self._result(turn, block)
            except (AgentFault, AgentLost) as fault:
                # It voids the session, and so ends what the others wait for; the first says why.
                faults.append(fault)

        async with anyio.create_task_group() as tasks:
            for index, block in enumerate(calls):
                tasks.start_soon(one, index, block)
        if faults:
            raise faults[0]
        return results

    async def _result(self, turn: int, block: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._session.call(turn, block["id"], block["name"], block["input"])
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
        if answer["op"] == "error":
            return {**result, "content": f"{answer['type']}: {answer['message']}", "is_error": True}
        return {**result, "content": json.dumps(answer["value"], ensure_ascii=False)}


def _calls_tools(reply: Reply) -> bool:
    return any(block["type"] == "tool_use" for block in reply.content)
