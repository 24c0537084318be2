"""An agent on a chat model: the tool loop runs here, where the key is; the tools run in the agent process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from redteam_harness.agents.agent import AgentFault
from redteam_harness.models.chat import ModelFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.agents.agent import Opening
    from redteam_harness.agents.host import ProcessAgent
    from redteam_harness.agents.process import ProcessSession
    from redteam_harness.models.chat import ChatModel

__all__ = ["ModelAgent"]

_MAX_STEPS = 16


class ModelAgent:
    """Opens conversations of a model with a system prompt and the suite's tools."""

    def __init__(self, host: ProcessAgent, model: ChatModel, system: str) -> None:
        self._host = host
        self._model = model
        self._system = system

    async def open(self, opening: Opening) -> ModelSession:
        """Start a session; see `Agent`."""
        session = await self._host.open(opening)
        return ModelSession(session, opening, self._model, self._system, self._host.tools)


class ModelSession:
    """One conversation of the model: its messages, and the session in which its tools run."""

    def __init__(
        self,
        session: ProcessSession,
        opening: Opening,
        model: ChatModel,
        system: str,
        tools: Sequence[Mapping[str, Any]],
    ) -> None:
        self._session = session
        self._sink = opening.sink
        self._model = model
        self._system = system
        self._tools = tools
        self._messages: list[dict[str, Any]] = []

    @property
    def database(self) -> str:
        """What the tools' database is; see `AgentSession`."""
        return self._session.database

    async def turn(self, number: int, text: str) -> str:
        """Have the model answer, calling tools until it does.

        Raises:
            AgentFault: the model API failed, or it called tools without end; a fault of ours is never shown
                to the model as a tool's answer.
        """
        self._messages.append({"role": "user", "content": text})
        for _ in range(_MAX_STEPS):
            try:
                reply = await self._model.reply(
                    system=self._system, messages=self._messages, tools=self._tools
                )
            except ModelFault as fault:
                raise AgentFault("model", str(fault)) from fault
            usage = {"input": reply.usage.input, "output": reply.usage.output, "cached": reply.usage.cached}
            self._sink({"kind": "model_call", "model": self._model.name, "stop": reply.stop, "usage": usage})
            self._messages.append({"role": "assistant", "content": list(reply.content)})
            if reply.stop != "tool_use":
                return reply.text
            calls = [block for block in reply.content if block["type"] == "tool_use"]
            results = [await self._result(number, block) for block in calls]
            self._messages.append({"role": "user", "content": results})
        raise AgentFault(
            "steps", f"the agent's model called tools {_MAX_STEPS} times without answering the user"
        )

    async def close(self) -> tuple[str, ...]:
        """End it; see `AgentSession`."""
        return await self._session.close()

    async def _result(self, turn: int, block: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._session.call(turn, block["id"], block["name"], block["input"])
        result: dict[str, Any] = {"type": "tool_result", "tool_use_id": block["id"]}
        if answer["op"] == "error":
            return {**result, "content": f"{answer['type']}: {answer['message']}", "is_error": True}
        return {**result, "content": json.dumps(answer["value"], ensure_ascii=False)}
