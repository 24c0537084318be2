"""What was checked of a conversation's isolation, as it was checked; what was not stays unsaid.

The record is filled while the conversation is held and is in its journal entry, which is written after its
fork is gone: nothing is claimed before it happened. What a record means for a reader is in `degraded`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from redteam_forker.database import copy_method, is_file_copy_better
from redteam_harness.evidence.trace import now
from redteam_harness.launch.agent_specs import CommandAgent, HttpAgent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_forker import Fork, ServerFacts, Template
    from redteam_harness.launch.agent_specs import AnyAgent

__all__ = ["AgentKind", "Attesting", "Guarded", "agent_kind", "copied_by"]

AgentKind = Literal["python", "command", "url"]

_MISSES = ("UnmockedExternalCall", "AnswerNotRecorded")


@runtime_checkable
class Guarded(Protocol):
    """A session whose agent process may have said that our egress guard is armed in it."""

    @property
    def egress(self) -> tuple[str, ...] | None:
        """What the guard lets through beside forks; None: nobody said that there is a guard."""
        ...


def agent_kind(agent: AnyAgent) -> AgentKind:
    """Which of the three kinds of agent it is, by its first key in suite.yaml."""
    match agent:
        case HttpAgent():
            return "url"
        case CommandAgent():
            return "command"
        case _:
            return "python"


def copied_by(facts: ServerFacts, size_bytes: int) -> str:
    """How the server copies a template of this size: `clone` shares blocks, the others write them."""
    if facts.clone or copy_method(facts) == "clone":
        return "clone" if facts.clone else "clone (in the kernel)"
    return "file_copy" if is_file_copy_better(facts, size_bytes) else "wal_log"


@dataclass(slots=True)
class _Attempt:
    """One fork of a conversation, and what was seen on it."""

    fork: dict[str, Any]
    saw: str | None = None
    guard: tuple[str, ...] | None = None
    kept: bool = False
    dropped_at: str | None = None
    left: tuple[str, ...] | None = None
    why: str = ""


@dataclass(slots=True)
class Attesting:
    """Takes down what checks found while one conversation is held.

    Attributes:
        server: of the launch.
        agent: which kind it is.
        walls: what became of attempts to enter other databases by a fork's role, by database; None: nobody
            tried.
    """

    server: ServerFacts
    agent: AgentKind
    walls: Mapping[str, str] | None = None
    _attempts: list[_Attempt] = field(default_factory=list)

    def forked(self, fork: Fork, template: Template) -> None:
        """A fork was checked out."""
        self._attempts.append(
            _Attempt(
                fork={
                    "name": fork.name,
                    "template": template.name,
                    "at": now(),
                    "created_s": round(fork.created_s, 3),
                    "copied_by": copied_by(self.server, template.size_bytes),
                    "role_reaches": list(fork.reaches),
                }
            )
        )

    def opened(self, database: str, session: object) -> None:
        """The agent's tools said which database they see, before the first turn."""
        self._last.saw = database
        if isinstance(session, Guarded):
            self._last.guard = session.egress

    def kept(self) -> None:
        """The fork was kept, as was asked for."""
        self._last.kept = True

    def dropped(self, left: tuple[str, ...] | None, why: str = "") -> None:
        """A drop was tried, and the catalog asked afterwards.

        Args:
            left: what still bears the fork's name: `database`, `role`; None: the catalog could not be asked.
            why: what the drop, or the question, failed with.
        """
        self._last.dropped_at, self._last.left, self._last.why = now(), left, why

    @property
    def _last(self) -> _Attempt:
        return self._attempts[-1]

    def to_json(self, events: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """The record so far.

        Args:
            events: the conversation's, of which refused connections and mock misses are counted.
        """
        events = list(events)
        last = self._attempts[-1] if self._attempts else None
        guard = last.guard if last is not None else None
        return {
            "server": {
                "kind": self.server.kind,
                "version": self.server.version,
                "file_system": self.server.file_system,
            },
            "agent": self.agent,
            "fork": None if last is None else last.fork,
            "walls": None if self.walls is None else dict(self.walls),
            "tools_saw": None if last is None else last.saw,
            "egress": {
                "guard": None if guard is None else "armed",
                "allowed": list(guard or ()),
                "refused": sum(_is_refusal(event) for event in events),
            },
            "mock_misses": [event["name"] for event in events if _is_miss(event)],
            "kept": last is not None and last.kept,
            "drop": _drop(last),
            "earlier_forks": [{"name": one.fork["name"], "drop": _drop(one)} for one in self._attempts[:-1]],
        }


def _drop(attempt: _Attempt | None) -> dict[str, Any] | None:
    if attempt is None or attempt.dropped_at is None:
        return None
    left = None if attempt.left is None else list(attempt.left)
    return {"at": attempt.dropped_at, "catalog_shows": left, "why": attempt.why}


def _is_refusal(event: Mapping[str, Any]) -> bool:
    return event["kind"] == "agent_fault" and event.get("cause") == "egress" and "message" in event


def _is_miss(event: Mapping[str, Any]) -> bool:
    return event["kind"] == "external" and str(event.get("error", "")).startswith(_MISSES)
