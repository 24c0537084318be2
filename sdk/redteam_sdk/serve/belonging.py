"""A process that belongs to one conversation, for code that captures its database's address at import.

The fork's address is in its environment before the agent is imported, and its context is bound everywhere.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redteam_sdk import context
from redteam_sdk.errors import ContextError, UsageError
from redteam_sdk.serve.conversation import Refused, is_async
from redteam_sdk.serve.load import load_callable
from redteam_sdk.serve.probe import ask_addresses
from redteam_sdk.values import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_sdk.serve.channel import Channel
    from redteam_sdk.serve.conversation import Conversation

__all__ = ["Belonging", "belong"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Belonging:
    """What a process was given with its conversation.

    Attributes:
        environment: the variables that were set, with the fork's address in them. Secret.
        probe: `module:callable`, asked for `current_database()` as the agent's own code sees it, or None.
    """

    environment: Mapping[str, str] = field(repr=False)
    probe: str | None
    _found: list[Callable[[], Any]] = field(default_factory=list)

    def load(self) -> None:
        """Find the probe, once the agent is imported.

        Raises:
            UsageError: it is not there, or takes arguments.
        """
        if self.probe is None:
            return
        found = load_callable(self.probe, f"probe {self.probe!r}")
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            raise UsageError(f"probe {self.probe!r} is called without arguments: {error}") from None
        self._found.append(found)

    async def ask(self, conversation: Conversation) -> dict[str, str]:
        """What database the addresses lead to, and the agent's own engine; all of them must be the fork.

        Raises:
            Refused: one is not, or a variable was changed; then nothing is connected to.
            EnvironmentFault: an address gave no connection.
        """
        for name, value in self.environment.items():
            if os.environ.get(name) != value:
                raise Refused(
                    "isolation",
                    f"importing the agent changed the variable {name}, which held its fork's address; "
                    "does it load a .env file that overrides what is set? Let the environment win",
                )
        seen = await ask_addresses(self.environment, os.environ)
        if self._found:
            seen[f"probe {self.probe}"] = await self._own_engine(conversation)
        fork = conversation.context.database
        for asked, database in seen.items():
            if database != fork:
                raise Refused(
                    "isolation", f"{asked} leads to database {database!r}, not to this conversation's fork"
                )
        if self.environment and not seen:
            raise Refused(
                "isolation",
                f"nothing says where {', '.join(self.environment)} leads: no form of address that can be "
                "tried; give the agent a `probe`",
            )
        return seen

    async def _own_engine(self, conversation: Conversation) -> str:
        probe = self._found[0]
        answer = await (probe() if is_async(probe) else conversation.in_thread(probe, "probe"))
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str):
            raise Refused(
                "isolation",
                f"probe {self.probe!r} answered with a {type_name(answer)}; it must answer what "
                "SELECT current_database() says, a str",
            )
        return answer


def belong(own: object, channel: Channel) -> Belonging:
    """Take the process over for the conversation that the harness's `arm` names; it must be armed.

    Raises:
        UsageError: the request is not of the protocol, or its token is refused.
    """
    if not isinstance(own, dict) or set(own) != {"token", "environment", "probe"}:
        raise UsageError("own holds exactly token, environment and probe")
    environment, probe = own["environment"], own["probe"]
    if not isinstance(environment, dict) or not all(isinstance(text, str) for text in environment.values()):
        raise UsageError("own's environment is an object of texts")
    if not (probe is None or isinstance(probe, str)):
        raise UsageError("own's probe is a text or null")
    try:
        context_ = context.own(own["token"])
    except ContextError as error:
        raise UsageError(f"the process cannot belong to its conversation: {error}") from None
    channel.hide(context_.password)
    os.environ.update(environment)
    return Belonging(environment=environment, probe=probe)
