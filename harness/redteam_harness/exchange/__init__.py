"""Conversations to and from other tools: OpenTelemetry spans out; histories in."""

from __future__ import annotations

__all__ = []
