"""Checks a token entirely. What is not exactly what the harness mints is refused, for a reason of its own."""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from redteam_sdk.claims import Context, from_claims
from redteam_sdk.errors import (
    ContextError,
    ExpiredContext,
    ForbiddenHost,
    InvalidContext,
    UntrustedContext,
)
from redteam_sdk.trust import Trust, public_key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["ALGORITHM", "check", "verify"]

ALGORITHM = "EdDSA"

_MAX_TOKEN = 8192
# 86 characters are the 64 bytes of an Ed25519 signature.
_SHAPE = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{86})", re.ASCII)
_CLAIMS = {"iss", "aud", "nbf", "exp", "jti", "redteam"}


def verify(token: object, trust: Trust) -> Context:
    """Check a token entirely and return what it grants; any doubt raises.

    Raises:
        InvalidContext: it is no redteam token, or is of another algorithm, or a claim is missing or odd.
        UntrustedContext: key, signature, issuer or audience are not those of the trust.
        ExpiredContext: its time is over or has not begun.
        ForbiddenHost: it points at a fork host or a collector that the trust does not list.
    """
    outcome = check(token, trust)
    # Raised here, outside of any handler and without the token in this frame, so that neither hangs on the
    # error for whoever prints or reports its frames.
    del token
    if isinstance(outcome, ContextError):
        raise outcome
    return outcome


def check(token: object, trust: Trust) -> Context | ContextError:
    """As `verify`, but returns the refusal."""
    outcome = _verified(token, trust)
    if isinstance(outcome, ContextError):
        return outcome
    if outcome.host not in trust.hosts:
        return ForbiddenHost(
            "the token points at a fork host that this process does not allow; add it to the trust's hosts"
        )
    if outcome.collector is not None and not trust.allows_collector(outcome.collector):
        return ForbiddenHost(
            "the token names a collector that this process does not allow; add it to the trust's collectors"
        )
    assert isinstance(token, str)
    return replace(outcome, token=token)


def _verified(token: object, trust: Trust) -> Context | ContextError:
    import jwt

    key = _key_for(token, trust)
    if isinstance(key, ContextError):
        return key
    assert isinstance(token, str)
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=trust.audience,
            issuer=trust.issuer,
            leeway=trust.leeway_s,
            options={"require": ["iss", "aud", "nbf", "exp", "jti"], "strict_aud": True},
        )
        if set(claims) != _CLAIMS:
            return InvalidContext("the token's claims are not exactly those of a redteam context")
        return from_claims(claims)
    except jwt.ExpiredSignatureError:
        return ExpiredContext("the token's time is over")
    except jwt.ImmatureSignatureError:
        return ExpiredContext("the token's time has not begun; compare the clocks of harness and service")
    except jwt.InvalidSignatureError:
        return UntrustedContext("the token's signature is not that of the key it names")
    except jwt.InvalidIssuerError:
        return UntrustedContext("the token was issued by somebody else than the trusted issuer")
    except jwt.InvalidAudienceError:
        return UntrustedContext("the token was minted for another audience than this service")
    except jwt.MissingRequiredClaimError as error:
        return InvalidContext(f"the token lacks the claim {error.claim!r}")
    except InvalidContext as error:
        return InvalidContext(str(error))
    except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError, RecursionError):
        # What PyJWT meets in a payload that is signed and still no set of claims.
        return InvalidContext("the token's claims cannot be read")


def _key_for(token: object, trust: Trust) -> Ed25519PublicKey | ContextError:
    """The public key that the token's header names, once the token has exactly the shape that we mint."""
    if not isinstance(token, str) or len(token) > _MAX_TOKEN or (parts := _SHAPE.fullmatch(token)) is None:
        return InvalidContext("the token is not a signed redteam context")
    # base64 lets the last character carry bits that decode to nothing: one token must have one spelling.
    if not all(map(_is_canonical, parts.groups())):
        return InvalidContext("the token is not a signed redteam context")
    try:
        header = json.loads(_decode(parts[1]))
    except (ValueError, RecursionError):
        return InvalidContext("the token's header cannot be read")
    if not isinstance(header, dict) or not set(header) <= {"alg", "kid", "typ"}:
        return InvalidContext("the token's header holds something else than alg, kid and typ")
    if header.get("alg") != ALGORITHM or header.get("typ", "JWT") != "JWT":
        return InvalidContext(f"the token is not a JWT of algorithm {ALGORITHM}")
    kid = header.get("kid")
    pem = trust.keys.get(kid) if isinstance(kid, str) else None
    key = public_key(pem) if pem is not None else None
    if key is None:
        return UntrustedContext(
            "the token names no key that this process trusts; add its public key to the trust"
        )
    if isinstance(kid, str) and trust.is_retired(kid):
        return UntrustedContext(f"the token names key {kid!r}, which the trust has retired")
    return key


def _decode(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _is_canonical(segment: str) -> bool:
    try:
        return base64.urlsafe_b64encode(_decode(segment)).rstrip(b"=").decode() == segment
    except (binascii.Error, ValueError):
        return False
