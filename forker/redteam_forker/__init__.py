"""The forker: servers, seeds, templates, forks and change sets. It knows no model and no rubric.

    open_server ─► build_template(seed) ─► create_fork ─► close_fork ─► collect_changes ─► drop_fork

A server holds sealed templates, each with a baseline that may be read. A fork is a clone for one
conversation, with a role that can enter it and nothing else.
"""

from __future__ import annotations

from redteam_forker.changes import ChangeSet, before_schema, collect_changes
from redteam_forker.errors import DropFailed, ForkUnavailable, SeedError, ServerUnavailable
from redteam_forker.fork import (
    Fork,
    Settled,
    close_fork,
    connect_fork_admin,
    create_fork,
    drop_fork,
    list_forks,
)
from redteam_forker.seeds import Seed, read_seed
from redteam_forker.servers import Server, ServerFacts, open_server
from redteam_forker.template import Template, build_template, drop_template

__all__ = [
    "ChangeSet",
    "DropFailed",
    "Fork",
    "ForkUnavailable",
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
    "list_forks",
    "open_server",
    "read_seed",
]
