"""Postgres servers: an embedded one that we start, or one that runs already. All look alike (`Server`)."""

from __future__ import annotations

from redteam_forker.servers.opening import open_server
from redteam_forker.servers.server import PsqlCommand, Server, ServerFacts

__all__ = ["PsqlCommand", "Server", "ServerFacts", "open_server"]
