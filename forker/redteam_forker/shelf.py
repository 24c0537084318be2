"""Where warm forks wait, and the visit that each gets there when there is nothing else to do.

The first session of a new database reads some 80 pages of its catalogs and tables from files that nobody has
opened yet. A visit reads them into the server's memory beforehand: a session of ours, over before the fork is
handed out, that looks at tables and runs nothing of theirs.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from redteam_forker import _pg
from redteam_forker.errors import ForkUnavailable
from redteam_forker.sql import query

if TYPE_CHECKING:
    from redteam_forker.fork import Warm
    from redteam_forker.servers.server import Server, ServerFacts

__all__ = ["Shelf", "is_visit_worthwhile", "visit"]


class Shelf:
    """Forks that wait. Those that were visited are handed out first."""

    def __init__(self, *, visits: bool) -> None:
        self._visits = visits
        self._visited: deque[Warm] = deque()
        self._new: deque[Warm] = deque()

    def __len__(self) -> int:
        return len(self._visited) + len(self._new)

    @property
    def wants_visit(self) -> bool:
        """Whether one waits that is to be visited and was not."""
        return self._visits and bool(self._new)

    def put(self, warm: Warm, *, visited: bool) -> None:
        """Let it wait here."""
        (self._visited if visited else self._new).append(warm)

    def take(self) -> Warm:
        """The one to hand out next. There must be one."""
        return (self._visited or self._new).popleft()

    def take_new(self) -> Warm:
        """The one to visit next. There must be one."""
        return self._new.popleft()


def is_visit_worthwhile(facts: ServerFacts) -> bool:
    """Whether first sessions there read from files. A clone through the log leaves its pages in memory.

    Elsewhere a login trigger of the seed's could also run in a visit: only a superuser may pass it by (P28).
    """
    return facts.ours


async def visit(server: Server, warm: Warm) -> None:
    """Read what every first session of this fork is about to read.

    Raises:
        ForkUnavailable: it cannot be entered, or does not answer.
    """
    with _pg.translated(f"cannot visit fork {warm.name!r}", ForkUnavailable):
        session = await server.connect(warm.name)
        try:
            await session.execute(query("first_reads"))
        finally:
            await _pg.close(session)
