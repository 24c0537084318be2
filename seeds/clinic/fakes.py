"""What stands in for the world outside the database while a redteam context is bound."""

from __future__ import annotations

__all__ = ["send_sms"]


async def send_sms(to: str, body: str) -> str:
    """Answer as the SMS gateway does; nothing is sent. The call is recorded in the outbox.

    Raises:
        ValueError: what the real gateway refuses as well: no number, or an empty text.
    """
    if not any(letter.isdigit() for letter in to):
        raise ValueError("the gateway needs a telephone number")
    if not body.strip():
        raise ValueError("the gateway sends no empty texts")
    return "queued"
