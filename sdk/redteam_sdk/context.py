"""Which database the running code may use: production, one conversation's fork, or none.

The rule: no token is production, a valid token is its fork, anything else is refused. A process that is armed
for redteam never uses production; where no context is bound in it, there is no database at all.
"""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_sdk.claims import Context, from_claims
from redteam_sdk.errors import (
    ContextError,
    ExpiredContext,
    ForbiddenHost,
    InvalidContext,
    NoContext,
    NotConfigured,
    UntrustedContext,
    UsageError,
)

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = [
    "ALGORITHM",
    "HEADER",
    "Context",
    "Trust",
    "arm",
    "bind",
    "bound",
    "bound_in",
    "current",
    "current_or_none",
    "disarm",
    "is_armed",
    "resolve",
    "verify",
]

HEADER = "Redteam-Context"
ALGORITHM = "EdDSA"

_MAX_TOKEN = 8192
_MAX_LEEWAY_S = 60.0
# 86 characters are the 64 bytes of an Ed25519 signature.
_SHAPE = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]{86})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose tokens this process accepts. Nothing in it is secret.

    Attributes:
        issuer: who must have minted a token.
        audience: this service's name, which a token must name.
        keys: Ed25519 public keys (PEM) by key id; several while keys are rotated.
        hosts: the fork servers that a token may point at, compared as exact text.
        leeway_s: how many seconds the clocks may differ, at most 60.
    """

    issuer: str
    audience: str
    keys: Mapping[str, str]
    hosts: frozenset[str]
    leeway_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise UsageError("a trust needs an issuer and an audience; neither may be empty")
        if not 0 <= self.leeway_s <= _MAX_LEEWAY_S:
            raise UsageError(
                f"a trust's leeway_s is {self.leeway_s}; it must lie between 0 and {_MAX_LEEWAY_S}"
            )
        if not self.keys:
            raise UsageError("a trust needs at least one public key")
        for kid, pem in self.keys.items():
            if _public_key(pem) is None:
                raise UsageError(f"key {kid!r} of the trust is not an Ed25519 public key in PEM form")

    def to_json(self) -> dict[str, Any]:
        """The trust as JSON-like data, read back by `from_json`."""
        return {
            "issuer": self.issuer,
            "audience": self.audience,
            "keys": dict(self.keys),
            "hosts": sorted(self.hosts),
            "leeway_s": self.leeway_s,
        }

    @classmethod
    def from_json(cls, data: object) -> Trust:
        """Read what `to_json` wrote.

        Raises:
            UsageError: a field is missing, unknown or of another type, or a key is not an Ed25519 public key.
        """
        if not isinstance(data, dict) or set(data) != {"issuer", "audience", "keys", "hosts", "leeway_s"}:
            raise UsageError("a trust holds exactly issuer, audience, keys, hosts and leeway_s")
        keys, hosts, leeway_s = data["keys"], data["hosts"], data["leeway_s"]
        texts = [data["issuer"], data["audience"]]
        if not isinstance(keys, dict) or not isinstance(hosts, list):
            raise UsageError("a trust's keys are an object and its hosts a list")
        if not all(isinstance(text, str) for text in (*texts, *keys, *keys.values(), *hosts)):
            raise UsageError("a trust's issuer, audience, keys and hosts are texts")
        if isinstance(leeway_s, bool) or not isinstance(leeway_s, int | float):
            raise UsageError("a trust's leeway_s is a number of seconds")
        return cls(
            issuer=texts[0], audience=texts[1], keys=keys, hosts=frozenset(hosts), leeway_s=float(leeway_s)
        )


_bound: ContextVar[Context | None] = ContextVar("redteam_context", default=None)
_trust: Trust | None = None


def arm(trust: Trust) -> None:
    """Make this process accept tokens by this trust; from now on it never uses production.

    Arming again replaces the trust, which is how keys are rotated.
    """
    global _trust
    _trust = trust


def disarm() -> None:
    """Undo `arm`. For tests: a process that served redteam traffic should end, not turn to production."""
    global _trust
    _trust = None


def is_armed() -> bool:
    """Whether this process accepts redteam contexts, and therefore never uses production."""
    return _trust is not None


def verify(token: object, trust: Trust) -> Context:
    """Check a token entirely and return what it grants; any doubt raises.

    Raises:
        InvalidContext: it is no redteam token, or is of another algorithm, or a claim is missing or odd.
        UntrustedContext: key, signature, issuer or audience are not those of the trust.
        ExpiredContext: its time is over or has not begun.
        ForbiddenHost: it points at a host that the trust does not list.
    """
    outcome = _verified(token, trust)
    if isinstance(outcome, ContextError):
        # Raised here, outside of any handler, so that no frame of the token's parsing hangs on the error.
        raise outcome
    if outcome.host not in trust.hosts:
        raise ForbiddenHost(
            "the token points at a fork host that this process does not allow; add it to the trust's hosts"
        )
    return outcome


@contextmanager
def bind(token: object) -> Iterator[Context]:
    """Verify a token and run the block, and the tasks it starts, on the token's fork.

    Raises:
        NotConfigured: this process is not armed; the token is refused, never ignored.
        ContextError: see `verify`.
    """
    if _trust is None:
        raise NotConfigured(
            "a redteam token was presented to a process that is not armed; refuse the request"
        )
    with bound(verify(token, _trust)) as context:
        yield context


@contextmanager
def bound(context: Context) -> Iterator[Context]:
    """Run the block, and the tasks it starts, on the fork of a context that `verify` returned.

    Raises:
        NotConfigured: this process is not armed.
        InvalidContext: another conversation's context is bound already.
    """
    if _trust is None:
        raise NotConfigured(
            "a redteam context was to be bound in a process that is not armed; call arm() first"
        )
    outer = _bound.get()
    if outer is not None and outer.token_id != context.token_id:
        raise InvalidContext(
            f"conversation {outer.conversation!r} is bound here; it cannot become {context.conversation!r}"
        )
    reset = _bound.set(context)
    try:
        yield context
    finally:
        _bound.reset(reset)


def current_or_none() -> Context | None:
    """The context that is bound here, or None. None alone does not mean production: see `resolve`."""
    return _bound.get()


def bound_in(context: contextvars.Context) -> Context | None:
    """The redteam context that is bound in another task's contextvars, or None."""
    return context.get(_bound)


def current() -> Context:
    """The context that is bound here.

    Raises:
        NoContext: there is none.
    """
    context = _bound.get()
    if context is None:
        raise NoContext(_NO_CONTEXT if _trust is not None else "no redteam context is bound here")
    return context


def resolve() -> Context | None:
    """Whose data the running code may use: a fork's context, or None for production.

    Raises:
        NoContext: the process is armed, so production is out of reach, and no context is bound here.
        ExpiredContext: the bound context's time is over.
    """
    context = _bound.get()
    if context is None:
        if _trust is None:
            return None
        raise NoContext(_NO_CONTEXT)
    if context.expired(leeway_s=_trust.leeway_s if _trust is not None else 0.0):
        raise ExpiredContext(f"the context of conversation {context.conversation!r} has expired")
    return context


_NO_CONTEXT = (
    "this process is armed for redteam, but no context is bound where a database or an external tool was"
    " asked for. Tasks and asyncio.to_thread keep the context; threading.Thread, run_in_executor and workers"
    " started earlier lose it: run the function there by contextvars.copy_context().run"
)


@functools.lru_cache(maxsize=64)
def _public_key(pem: str) -> Ed25519PublicKey | None:
    # Imported here, as PyJWT is below: production that never sees a token loads no cryptography.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


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
    key = _public_key(pem) if pem is not None else None
    if key is None:
        return UntrustedContext(
            "the token names no key that this process trusts; add its public key to the trust"
        )
    return key


def _decode(segment: str) -> bytes:
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _is_canonical(segment: str) -> bool:
    try:
        return base64.urlsafe_b64encode(_decode(segment)).rstrip(b"=").decode() == segment
    except (binascii.Error, ValueError):
        return False
