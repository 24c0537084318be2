"""Mock-only scenarios: an agent without a database, in a process that can reach nothing."""

from __future__ import annotations

__all__ = []
