"""Rejudging: a run's rules once more, over its stored evidence and its end states, built again."""

from __future__ import annotations

__all__: list[str] = []
