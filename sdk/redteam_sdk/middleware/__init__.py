"""Middlewares that bind the context of a request's `Redteam-Context` header: `asgi` and `wsgi`.

They import no framework. A request without the header passes as if they were not there; one whose header is
not a valid token of this service is answered 403, with no detail to the caller and the reason in the log.
Nothing else in a request, neither its address nor its cookies nor its body, has any effect.
"""

from __future__ import annotations

import logging

from redteam_sdk.context import HEADER, Context, admit
from redteam_sdk.errors import ContextError, InvalidContext

__all__ = ["FORBIDDEN", "HEADER_NAME", "admitted"]

HEADER_NAME = HEADER.lower()
FORBIDDEN = b"Forbidden\n"

_log = logging.getLogger(__name__)


def admitted(tokens: list[str], client: object) -> Context | None:
    """The context of a request's token, or None where the request must be answered 403.

    Args:
        tokens: every value of the header in the request, at least one.
        client: who sent it, for the log, which also gets the reason; neither gets the token.
    """
    outcome: Context | ContextError
    if len(tokens) == 1:
        outcome = admit(tokens[0])
    else:
        outcome = InvalidContext(f"the request has {len(tokens)} {HEADER} headers; it may have one")
    if isinstance(outcome, ContextError):
        _log.warning("refused a request of %r: %s: %s", client, type(outcome).__name__, outcome)
        return None
    return outcome
