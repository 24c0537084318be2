"""What a redteam context says, and its form as the claims of a signed token.

Reading is strict: a claim that is missing, of another type, or out of bounds refuses the whole token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redteam_sdk.errors import InvalidContext

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Context", "from_claims", "to_claims"]

_VERSION = 1
_MAX_TEXT = 255
_MAX_IDENTIFIER_BYTES = 63  # what Postgres keeps of a name
_MAX_PORT = 65535
# Seconds since 1970 up to the year 9999; beyond it datetime cannot follow.
_MAX_TIME = 253_402_300_799
_TEXTS = ("tenant", "run", "conversation", "host", "database", "user", "password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One conversation's right to use one fork, for a while. Its secret is in no repr and in no message.

    Attributes:
        tenant: whose data the fork is made of.
        run: the launch that the conversation belongs to.
        conversation: the one conversation that may use the fork.
        host: the fork server's host name or address, or the directory of its Unix socket.
        port: the fork server's port.
        database: the fork.
        user: the login role that was made for this fork.
        password: that role's secret.
        not_before: the first moment at which the context may be used (aware; whole seconds in a token).
        expires_at: the first moment at which it may not be used any more (aware; whole seconds in a token).
        token_id: unique to the token.
    """

    tenant: str
    run: str
    conversation: str
    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    not_before: datetime
    expires_at: datetime
    token_id: str

    def dsn(self) -> str:
        """The fork's address for any Postgres driver. It holds the secret: pass it on, never print it."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        database = quote(self.database, safe="")
        if self.host.startswith("/"):
            return f"postgresql://{login}@/{database}?host={quote(self.host, safe='/')}&port={self.port}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"postgresql://{login}@{host}:{self.port}/{database}"

    def expired(self, *, leeway_s: float = 0.0) -> bool:
        """Whether the context's time is over by this process's clock, with so many seconds of grace."""
        return datetime.now(UTC) >= self.expires_at + timedelta(seconds=leeway_s)


def to_claims(context: Context, *, issuer: str, audience: str) -> dict[str, Any]:
    """The claims of a token that carries the context. Times are cut to whole seconds.

    Args:
        context: what the token grants.
        issuer: who mints it.
        audience: the one service that may accept it.

    Raises:
        InvalidContext: the context could not be read back, for example because a name is empty.
    """
    claims: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "nbf": int(context.not_before.timestamp()),
        "exp": int(context.expires_at.timestamp()),
        "jti": context.token_id,
        "redteam": {
            "version": _VERSION,
            "port": context.port,
            **{name: getattr(context, name) for name in _TEXTS},
        },
    }
    from_claims(claims)  # never mint what would be refused
    return claims


def from_claims(claims: Mapping[str, Any]) -> Context:
    """Read the claims of a token whose signature, issuer, audience and times were verified.

    Raises:
        InvalidContext: a claim is missing, of another type, or out of bounds. No value is in the message.
    """
    facts = claims.get("redteam")
    if not isinstance(facts, dict) or set(facts) != {"version", "port", *_TEXTS}:
        raise InvalidContext(
            "the token's claim 'redteam' does not hold exactly the facts of a redteam context"
        )
    if type(facts["version"]) is not int or facts["version"] != _VERSION:
        raise InvalidContext(f"the token's claims are not of version {_VERSION}; update redteam-sdk")
    texts = {name: _text(name, facts[name]) for name in _TEXTS}
    for name in ("database", "user"):
        if len(texts[name].encode()) > _MAX_IDENTIFIER_BYTES:
            raise InvalidContext(f"the token's claim {name!r} is longer than a Postgres name")
    # Drivers read a comma as a list of hosts; the others would end the host part of an address.
    if any(character in ",@?#%\\ " for character in texts["host"]):
        raise InvalidContext("the token's claim 'host' is not one host name, address or socket directory")
    not_before, expires_at = _time("nbf", claims.get("nbf")), _time("exp", claims.get("exp"))
    if expires_at <= not_before:
        raise InvalidContext("the token ends before it begins")
    port = facts["port"]
    if type(port) is not int or not 0 < port <= _MAX_PORT:
        raise InvalidContext("the token's claim 'port' is not a port number")
    return Context(
        **texts,
        port=port,
        not_before=not_before,
        expires_at=expires_at,
        token_id=_text("jti", claims.get("jti")),
    )


def _text(name: str, value: object) -> str:
    # isprintable refuses control characters and lone surrogates, which no name of ours has.
    if type(value) is not str or not 0 < len(value) <= _MAX_TEXT or not value.isprintable():
        raise InvalidContext(f"the token's claim {name!r} is not a plain text of 1 to {_MAX_TEXT} characters")
    return value


def _time(name: str, value: object) -> datetime:
    if type(value) is not int or not 0 <= value <= _MAX_TIME:
        raise InvalidContext(f"the token's claim {name!r} is not a whole number of seconds since 1970")
    return datetime.fromtimestamp(value, UTC)
