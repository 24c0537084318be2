"""The forker: servers, seeds, templates, forks and change sets. It knows no model and no rubric.

    open_server ─► open_registry ─► sweep ─► build_template(seed) ─► plan_budget ─► open_pool
    pool.checkout ─► close_fork ─► collect_changes ─► pool.drop | keep_fork

A server holds sealed templates, each with a baseline that may be read. A fork is a clone for one
conversation, with a role that can enter it and nothing else. The registry says whose each fork is, so that
what a killed launcher left can be told from what another one uses.

Names are found when they are first used: pytest imports `redteam_forker.pytest_plugin` in every project of an
environment, and must not pay for drivers and parsers there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redteam_forker.budget import Budget, plan_budget
    from redteam_forker.changes import ChangeSet, before_schema, collect_changes
    from redteam_forker.errors import DropFailed, ForkUnavailable, SeedError, ServerUnavailable
    from redteam_forker.fork import (
        Fork,
        Settled,
        close_fork,
        connect_fork_admin,
        create_fork,
        drop_fork,
        keep_fork,
        list_forks,
    )
    from redteam_forker.ledger import Entry
    from redteam_forker.pool import Pool, open_pool
    from redteam_forker.registry import Registry, open_registry
    from redteam_forker.seeds import Seed, read_seed
    from redteam_forker.servers import Server, ServerFacts, open_server
    from redteam_forker.template import Template, build_template, drop_template

__all__ = [
    "Budget",
    "ChangeSet",
    "DropFailed",
    "Entry",
    "Fork",
    "ForkUnavailable",
    "Pool",
    "Registry",
    "Seed",
    "SeedError",
    "Server",
    "ServerFacts",
    "ServerUnavailable",
    "Settled",
    "Template",
    "before_schema",
    "build_template",
    "close_fork",
    "collect_changes",
    "connect_fork_admin",
    "create_fork",
    "drop_fork",
    "drop_template",
    "keep_fork",
    "list_forks",
    "open_pool",
    "open_registry",
    "open_server",
    "plan_budget",
    "read_seed",
]

_HOMES = {
    "Budget": "budget",
    "ChangeSet": "changes",
    "DropFailed": "errors",
    "Entry": "ledger",
    "Fork": "fork",
    "ForkUnavailable": "errors",
    "Pool": "pool",
    "Registry": "registry",
    "Seed": "seeds",
    "SeedError": "errors",
    "Server": "servers",
    "ServerFacts": "servers",
    "ServerUnavailable": "errors",
    "Settled": "fork",
    "Template": "template",
    "before_schema": "changes",
    "build_template": "template",
    "close_fork": "fork",
    "collect_changes": "changes",
    "connect_fork_admin": "fork",
    "create_fork": "fork",
    "drop_fork": "fork",
    "drop_template": "template",
    "keep_fork": "fork",
    "list_forks": "fork",
    "open_pool": "pool",
    "open_registry": "registry",
    "open_server": "servers",
    "plan_budget": "budget",
    "read_seed": "seeds",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value
