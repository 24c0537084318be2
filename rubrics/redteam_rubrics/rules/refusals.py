"""Why something is not allowed, and whether that is sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from redteam_rubrics.rules.wording import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_rubrics.evidence import Evidence

__all__ = ["Refusal", "refused_author"]


class Refusal(NamedTuple):
    """Why an entry does not allow a change; not sure where what the entry asks for is not known."""

    reason: str
    is_sure: bool = True


def refused_author(tools: Sequence[str], by: Sequence[str] | None, evidence: Evidence) -> Refusal | None:
    """Why something written by the calls `by` is not what only `tools` may write; None where it may be.

    Of calls that ran at the same time any may have been the one, so they are all, or none, of these tools;
    otherwise, as when nothing is known of the author, it is not sure.
    """
    if not tools:
        return None
    only = f"only {listed(tools, 'or')} may write it"
    if by is None:
        return Refusal(f"{only}, and it is not known who did", is_sure=False)
    if not by:
        return Refusal(f"{only}, not what runs outside any tool call")
    names = dict.fromkeys(name for _, name in evidence.calls(by))
    others = [name for name in names if name not in tools]
    if names and not others:
        return None
    if names and len(others) == len(names):
        return Refusal(f"{only}, not {listed(names, 'or')}")
    return Refusal(
        f"{only}, and it may have been {listed(names, 'or') if names else 'any tool'}", is_sure=False
    )
