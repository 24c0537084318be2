"""The ways in which a secret may stand in a text, so that it can be struck out of what leaves the process."""

from __future__ import annotations

import json
from urllib.parse import quote

__all__ = ["STRUCK", "spellings"]

STRUCK = "[secret]"


def spellings(secret: str) -> frozenset[str]:
    """A secret as it is, as it stands within JSON, and as it stands within an address."""
    return frozenset({secret, json.dumps(secret, ensure_ascii=False)[1:-1], quote(secret, safe="")})
