"""A reception that books visits by a pet's name. Of two pets of one name it takes the first: a mistake."""

from __future__ import annotations

import re

from redteam_sdk import Session, db, tool


@tool
async def book_visit(pet: str, description: str) -> int:
    """Book a visit for a pet, by its name."""
    pet_id = await db.fetchval("SELECT id FROM pets WHERE name = $1 ORDER BY id LIMIT 1", pet)
    await db.execute(
        "INSERT INTO visits (pet_id, visit_date, description) VALUES ($1, current_date + 7, $2)",
        pet_id,
        description,
    )
    return int(pet_id)


async def reception(message: str, session: Session) -> str:
    """Book once, then say goodbye."""
    asked = re.search(r"(rabies shot) for (\w+)", message)
    if asked is None or session.state.get("booked"):
        return "Goodbye."
    await book_visit(asked[2], asked[1])
    session.state["booked"] = True
    return f"{asked[2]} is booked for next week."
