"""What models used, for every rendering: by role and model, and in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.models.usage import Spent

__all__ = ["usage_data", "usage_lines"]


def usage_data(usage: Sequence[Spent]) -> dict[str, Any]:
    """Rows by role and model, and the sum in US dollars: null where a price is not known."""
    return {"rows": [row.to_json() for row in usage], "usd": _sum(usage)}


def usage_lines(usage: Sequence[Spent]) -> list[str]:
    """A line for each role and model, and one for the sum where there are several."""
    lines = [_line(row) for row in usage]
    if len(usage) > 1:
        total = _sum(usage)
        lines.append(f"in all  {'unknown: a model has no price' if total is None else f'${total:.4f}'}")
    return lines


def _sum(usage: Sequence[Spent]) -> float | None:
    if any(row.unpriced for row in usage):
        return None
    return round(sum(row.usd for row in usage), 6)


def _line(row: Spent) -> str:
    tokens = row.usage
    parts = [f"{tokens.input:,} in"]
    if tokens.cache_write or tokens.cache_read:
        parts.append(f"cache {tokens.cache_write:,} written, {tokens.cache_read:,} read")
    parts.append(f"{tokens.output:,} out")
    cost = "price unknown" if row.unpriced else f"${row.usd:.4f}"
    calls = f"{row.calls:,} calls"
    if row.replayed:
        calls += f", {row.replayed:,} from the call cache"
    if row.faults:
        calls += f", {row.faults:,} failed tries"
    return f"{row.role:<6}  {row.model}  {calls}  {', '.join(parts)}  {cost}"
