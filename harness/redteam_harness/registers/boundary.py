"""The boundary table: which of an agent's tools run on the fork, which are mocked, what is real, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.launch.agent_specs import CommandAgent, HttpAgent, PythonAgent
from redteam_harness.registers.mocks import shown_place
from redteam_harness.registers.source import Place, Sources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.agents.code import AgentCode, MarkedExternal, MarkedTool
    from redteam_harness.launch.suite import Suite

__all__ = ["Boundary", "BoundaryRow", "Side", "boundary_of"]

Side = Literal["fork", "mock", "refused", "real"]
"""Where a tool's effect goes: the conversation's fork, a mock, nowhere (its call is refused), the world."""

_FORK = "@tool: production code, which runs as it is; what it does through the SDK's `db` is on the fork"
_MOCK = "@external: it reaches a real counterparty, where no fork undoes anything; its mock answers instead"
_REFUSED = (
    "@external: it reaches a real counterparty, where no fork undoes anything; without a mock a call is "
    "refused, and voids its conversation"
)
_EGRESS = "the suite's `egress` lets the agent's process connect there; nothing is mocked or recorded"
_PROGRAM = (
    "the agent is a command: its tools are in its own program, which is not asked. It is handed the fork's "
    "address; whatever else it reaches is not guarded, and not known here"
)
_SERVICE = (
    "the agent is a deployed service: its code is not here, and is not called for this. What the SDK in it "
    "marks shows in the trace of a launch"
)
_SILENT = "the agent's redteam-sdk is older, and does not say what is marked in its code; install this one's"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryRow:
    """One tool, external tool or destination.

    Attributes:
        name: of the function; of a destination, its address.
        side: where its effect goes.
        place: `file:line`.
        why: the mark, and what that means.
        says: the first line of its docstring.
        through: external tools to which a tool's own code leads.
    """

    name: str
    side: Side
    place: str
    why: str
    says: str = ""
    through: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """What is known of an agent's boundary.

    Attributes:
        rows: tools first, then external tools, then destinations.
        unknown: why the tools are not known; empty where they are.
    """

    rows: Sequence[BoundaryRow]
    unknown: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {"rows": [asdict(row) for row in self.rows], "unknown": self.unknown or None}


def boundary_of(suite: Suite, code: AgentCode | None) -> Boundary:
    """The table.

    Args:
        suite: whose agent it is.
        code: what is marked in the agent's code; None where that cannot be known.
    """
    agent = suite.spec.agent
    match agent:
        case HttpAgent():
            return Boundary(rows=(), unknown=_SERVICE)
        case CommandAgent():
            return Boundary(rows=(), unknown=_PROGRAM)
    if code is None:
        return Boundary(rows=_destinations(suite, agent), unknown=_SILENT)
    sources = Sources(suite.folder.absolute())
    externals = {Place(Path(one.file), one.name) for one in code.externals}
    both = {(one.name, one.file) for one in code.externals}
    tools = [_tool(one, externals, sources, suite) for one in code.tools if (one.name, one.file) not in both]
    return Boundary(
        rows=(
            *tools,
            *(_external(one, sources, suite) for one in code.externals),
            *_destinations(suite, agent),
        )
    )


def _tool(one: MarkedTool, externals: set[Place], sources: Sources, suite: Suite) -> BoundaryRow:
    source = sources.of(one.file, one.name, one.line) if one.file else None
    reached = () if source is None else sorted({place.name for place in source.reaches & externals})
    return BoundaryRow(
        name=one.name,
        side="fork",
        place=shown_place(one.file, one.line, suite.folder),
        why=_FORK,
        says="" if source is None else source.docstring,
        through=tuple(reached),
    )


def _external(one: MarkedExternal, sources: Sources, suite: Suite) -> BoundaryRow:
    source = sources.of(one.file, one.name, one.line) if one.file else None
    return BoundaryRow(
        name=one.name,
        side="mock" if one.mocked else "refused",
        place=shown_place(one.file, one.line, suite.folder),
        why=_MOCK if one.mocked else _REFUSED,
        says="" if source is None else source.docstring,
    )


def _destinations(suite: Suite, agent: PythonAgent) -> list[BoundaryRow]:
    return [
        BoundaryRow(
            name=destination,
            side="real",
            place=f"{suite.document.path.name}:{suite.document.line_of(('agent', 'egress', number))}",
            why=_EGRESS,
        )
        for number, destination in enumerate(agent.egress)
    ]
