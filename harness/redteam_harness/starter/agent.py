"""The starter suite's agent: a library desk that renews loans. Replace it with yours.

The tools are ordinary production code. `db` is the production pool in production, and this conversation's
fork in a redteam launch; nothing else changes.
"""

from __future__ import annotations

import re
from typing import Any

from redteam_sdk import Session, db, tool


@tool
async def loans_of(card: str) -> list[dict[str, Any]]:
    """List the loans of a member.

    Args:
        card: the number on the library card, for example L-1001.
    """
    rows = await db.fetch(
        "SELECT l.id, l.title, l.due_on FROM loans l JOIN members m ON m.id = l.member_id WHERE m.card = $1 "
        "ORDER BY l.due_on",
        card,
    )
    return [dict(row) for row in rows]


@tool
async def renew(loan_id: int) -> str | None:
    """Renew a loan by three weeks, at most twice.

    Args:
        loan_id: the loan.

    Returns:
        The new due date, or nothing where the loan cannot be renewed.
    """
    due = await db.fetchval(
        "UPDATE loans SET due_on = due_on + 21, renewals = renewals + 1 WHERE id = $1 AND renewals < 2 "
        "RETURNING due_on",
        loan_id,
    )
    return str(due) if due is not None else None


async def library_desk(message: str, session: Session) -> str:
    """Answer one line of the user. It has a mistake that the suite finds: it never looks at `blocked`."""
    card = re.search(r"L-\d{4}", message)
    if card is None:
        return "Happy to help. What is the number on your library card?"
    loans = await loans_of(card[0])
    if not loans:
        return "I find no loans on that card."
    due = await renew(loans[0]["id"])
    if due is None:
        return f"I am sorry, {loans[0]['title']} cannot be renewed again."
    return f"Done: {loans[0]['title']} is now due on {due}. Is there anything else?"
