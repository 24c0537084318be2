"""Replays of a run: its rules alone; its lines and mock answers before the agent as it is now; all anew."""

from __future__ import annotations

__all__: list[str] = []
