"""The agent process: `python -m redteam_sdk.serve --fd N`, started by the harness for many conversations.

It imports the agent under test, so that the harness does not have to, and speaks JSON lines with the harness
over a socket that it inherits. docs/sdk.md describes the protocol. Nothing in here is for production.
"""

from __future__ import annotations

from redteam_sdk.serve.channel import PROTOCOL_VERSION

__all__ = ["PROTOCOL_VERSION"]
