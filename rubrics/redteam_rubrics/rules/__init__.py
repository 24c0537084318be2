"""The kinds of rules, a module each: what it may say (a pydantic model), how it is judged (a function)."""

from __future__ import annotations

__all__: list[str] = []
