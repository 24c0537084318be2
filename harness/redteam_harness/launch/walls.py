"""Tries, once in a launch, whether a fork's role gets in where it must not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from redteam_harness.registers.catalog import try_walls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker import Pool, Server
    from redteam_harness.launch.prepare import Built

__all__ = ["tried_walls"]

_LIFETIME_S, _CHECKOUT_S = 600.0, 120.0


async def tried_walls(server: Server, built: Built, pools: Mapping[str, Pool]) -> dict[str, str] | None:
    """Try the maintenance database, and the template and baseline of a fork, by its own role.

    Returns:
        What became of each attempt, see `try_walls`; None on a server that is not ours, where the grants are
        measured for each fork instead.

    Raises:
        ForkUnavailable, DropFailed: no fork could be had, or it could not be dropped again.
    """
    if not server.facts.ours:
        return None
    case, pool = next(iter(pools.items()))
    template = built.templates[case]
    fork = await pool.checkout(lifetime_s=_LIFETIME_S, deadline_s=_CHECKOUT_S, label="walls")
    try:
        return await try_walls(fork, (server.facts.maintenance, template.name, template.baseline))
    finally:
        with anyio.CancelScope(shield=True):
            await pool.drop(fork)
