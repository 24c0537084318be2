"""Two runs side by side: whether they may be compared, what differs, and whether by chance."""

from __future__ import annotations

__all__: list[str] = []
