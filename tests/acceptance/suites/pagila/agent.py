"""A counter that takes films back. Its tool closes every open rental of the customer: a mistake."""

from __future__ import annotations

import re

from redteam_sdk import Session, db, tool


@tool
async def take_back(rental: int) -> int:
    """Book a rental as returned."""
    done = await db.fetch(
        "UPDATE rental SET return_date = now() WHERE return_date IS NULL AND customer_id = "
        "(SELECT customer_id FROM rental WHERE rental_id = $1) RETURNING rental_id",
        rental,
    )
    return len(done)


async def counter(message: str, session: Session) -> str:
    """Ask for the rental's number, take it back once, then say goodbye."""
    number = re.search(r"\b\d+\b", message)
    if session.state.get("done"):
        return "Goodbye."
    if number is None:
        return "Welcome back! What is the number of the rental?"
    await take_back(int(number[0]))
    session.state["done"] = True
    return "Thank you, it is booked as returned."
