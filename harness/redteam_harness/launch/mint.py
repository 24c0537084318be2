"""Mints redteam contexts. The private key lives in this process, for the length of one launch."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from redteam_sdk.claims import to_claims
from redteam_sdk.context import ALGORITHM, Context, Trust

if TYPE_CHECKING:
    from redteam_forker import Fork

__all__ = ["Mint"]

_ISSUER = "redteam-harness"
_AUDIENCE = "redteam-agent"


class Mint:
    """One launch's signing key and the trust in it that agent processes are given.

    Args:
        tenant: whose data it is; the suite's name.
        run: the run's id.
        host: the only fork host that the tokens may name.
    """

    def __init__(self, *, tenant: str, run: str, host: str) -> None:
        self._tenant = tenant
        self._run = run
        self._key = Ed25519PrivateKey.generate()
        self._key_id = secrets.token_hex(8)
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._trust = Trust(
            issuer=_ISSUER,
            audience=_AUDIENCE,
            keys={self._key_id: public.decode("ascii")},
            hosts=frozenset({host}),
        )

    @property
    def trust(self) -> dict[str, Any]:
        """What an agent process needs to verify our tokens, in its JSON form; no secret is in it."""
        return dict(self._trust.to_json())

    def token(self, conversation: str, fork: Fork, *, lifetime_s: float) -> str:
        """A context for one conversation and its fork, valid from now for `lifetime_s` seconds."""
        start = datetime.now(UTC)
        context = Context(
            tenant=self._tenant,
            run=self._run,
            conversation=conversation,
            host=fork.host,
            port=fork.port,
            database=fork.name,
            user=fork.name,
            password=fork.password,
            not_before=start,
            expires_at=start + timedelta(seconds=lifetime_s),
            token_id=secrets.token_hex(16),
        )
        claims = dict(to_claims(context, issuer=_ISSUER, audience=_AUDIENCE))
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self._key_id})
