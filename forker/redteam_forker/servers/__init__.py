"""Postgres servers: embedded (one of our own, or one that is kept), in a container, or somebody else's.

All look alike (`Server`).
"""

from __future__ import annotations

from redteam_forker.servers.opening import open_server
from redteam_forker.servers.server import PsqlCommand, Server, ServerFacts
from redteam_forker.servers.shared import discard_shared

__all__ = ["PsqlCommand", "Server", "ServerFacts", "discard_shared", "open_server"]
