"""What builds the databases of stored conversations again, for commands that judge them."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from redteam_harness.cli.servers import chosen_server
from redteam_harness.judging.rebuild import NotRebuilt, open_end_states
from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from redteam_harness.cli.settings import Settings
    from redteam_harness.judging.rebuild import EndStates
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite

__all__ = ["rebuilt_end_states"]


@asynccontextmanager
async def rebuilt_end_states(
    dsn: str | None,
    settings: Settings,
    suite: Suite,
    facts: Mapping[str, Any],
    progress: Progress,
    *,
    needed: bool,
) -> AsyncIterator[EndStates | NotRebuilt]:
    """What rebuilds databases, or why none is rebuilt, which rules without a database do without.

    Args:
        dsn: what `--server` says.
        settings: the launcher's.
        suite: whose data.
        facts: run.json of the run that is judged again.
        progress: is told which server.
        needed: whether a rule asks for one; a server is started for nothing else.
    """
    if not needed:
        yield NotRebuilt("no rule asks for it")
        return
    async with AsyncExitStack() as stack:
        end_states: EndStates | NotRebuilt
        try:
            server = await stack.enter_async_context(chosen_server(dsn, settings))
            progress.say(f"server  {server.facts.kind} PostgreSQL {server.facts.version}")
            end_states = await stack.enter_async_context(open_end_states(server, suite, facts, progress))
        except EnvironmentFault as error:
            end_states = NotRebuilt(f"no server to build its database again: {error}")
        except NotRebuilt as why:
            end_states = why
        yield end_states
