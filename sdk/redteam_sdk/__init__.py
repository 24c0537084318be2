"""The redteam SDK: what production tool code imports.

`db` is the production database, or one conversation's private fork while a signed redteam context is bound.
`@tool` marks what the agent calls; `@external` marks what must never run in redteam. Without a redteam
context all of it passes through to production. See docs/sdk.md for the rule and its proofs.
"""

from __future__ import annotations

from redteam_sdk import context, db
from redteam_sdk._version import __version__
from redteam_sdk.carry import carry
from redteam_sdk.errors import (
    ContextError,
    EgressRefused,
    EnvironmentFault,
    NoContext,
    RedteamError,
    UnmockedExternalCall,
    UsageError,
)
from redteam_sdk.external import external
from redteam_sdk.session import Message, Session, handoff
from redteam_sdk.tool import tool

__all__ = [
    "ContextError",
    "EgressRefused",
    "EnvironmentFault",
    "Message",
    "NoContext",
    "RedteamError",
    "Session",
    "UnmockedExternalCall",
    "UsageError",
    "__version__",
    "carry",
    "context",
    "db",
    "external",
    "handoff",
    "tool",
]
