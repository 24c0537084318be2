"""The judge's model as rubrics want it, and the record of all that it answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.trace import now
from redteam_harness.models.chat import Request
from redteam_rubrics import Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_harness.evidence.run import RunDirectory
    from redteam_harness.models import chat
    from redteam_harness.models.calls import ModelCalls
    from redteam_rubrics import Answer

__all__ = ["ConversationJudge", "JudgeEndpoint"]


@dataclass(frozen=True, slots=True)
class JudgeEndpoint:
    """A model in the role of the judge: its calls are paced, tried again, budgeted and booked as all are.

    What it answers is handed on as it is. `ChatModel.parsed` would ask again by itself, and what did not fit
    would be lost, where a judge's raw answer is evidence.
    """

    calls: ModelCalls
    endpoint: chat.Endpoint

    @property
    def name(self) -> str:
        """The model's id."""
        return self.endpoint.name

    async def ask(self, *, system: str, message: str, shape: type[Answer]) -> Reply:
        """One answer; whose conversation it is, `ModelCalls.conversation` knows.

        Raises:
            ModelFault: none could be had.
        """
        request = Request(system=system, messages=[{"role": "user", "content": message}], shape=shape)
        reply = await self.calls.call(self.endpoint, "judge", request, _as_it_is)
        return Reply(text=reply.text, stop=reply.stop, request=reply.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationJudge:
    """A `JudgeModel` for one conversation: what it answered is appended to the conversation's `judge.jsonl`.

    Attributes:
        endpoint: the model.
        run: the evidence.
        conversation: whose.
        asking: told when a question goes out.
        facts: what each record says besides: of a rejudging, its number.
    """

    endpoint: JudgeEndpoint
    run: RunDirectory
    conversation: str
    asking: Callable[[], None]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's id."""
        return self.endpoint.name

    async def ask(self, *, system: str, message: str, shape: type[Answer]) -> Reply:
        """See `JudgeEndpoint.ask`."""
        self.asking()
        return await self.endpoint.ask(system=system, message=message, shape=shape)

    def keep(self, record: Mapping[str, Any]) -> None:
        """Append a record and sync it to disk.

        Raises:
            EvidenceFault: it could not be written.
        """
        self.run.append_judged(self.conversation, {"kind": "answer", "at": now(), **self.facts, **record})


def _as_it_is(reply: chat.Reply) -> chat.Reply:
    return reply
