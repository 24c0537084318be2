"""What a redteam context says, and its form as the claims of a signed token.

Reading is strict: a claim that is missing, of another type, or out of bounds refuses the whole token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from redteam_sdk.errors import InvalidContext
from redteam_sdk.scripted import ScriptedFault, read_faults

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_LIFETIME_S", "Context", "from_claims", "is_origin", "to_claims"]

_VERSION = 1
_MAX_TEXT = 255
_MAX_IDENTIFIER_BYTES = 63  # what Postgres keeps of a name
_MAX_PORT = 65535
# Seconds since 1970 up to the year 9999; beyond it datetime cannot follow.
_MAX_TIME = 253_402_300_799
# A day is longer than any conversation; a token that outlives its fork by years is a mistake.
MAX_LIFETIME_S = 86_400
_ORIGIN = re.compile(r"https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:(?P<port>[1-9][0-9]{0,4}))?", re.ASCII)
_TEXTS = ("tenant", "run", "conversation", "host", "database", "user", "password")
_OPTIONAL = {"collector", "faults"}


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
        collector: the origin (`https://host:port`) of the harness's collector, which is told what tools do;
            or None.
        faults: what external tools are to play in this conversation.
        token: the signed token that it was verified from; a secret, and None where there was none.
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
    collector: str | None = None
    faults: tuple[ScriptedFault, ...] = ()
    token: str | None = field(default=None, repr=False, compare=False)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied byte by byte: where the bytes go, the secret goes.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "a redteam context holds a secret and is not pickled; hand it over by context.serialise()"
        )

    def __copy__(self) -> Context:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Context:
        return self

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


def is_origin(text: str) -> bool:
    """Whether a text is `http(s)://host` or `http(s)://host:port`, in small letters, and nothing more."""
    found = _ORIGIN.fullmatch(text)
    return found is not None and 0 < int(found["port"] or 1) <= _MAX_PORT


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
            **({"collector": context.collector} if context.collector is not None else {}),
            **({"faults": [list(fault) for fault in context.faults]} if context.faults else {}),
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
    if not isinstance(facts, dict) or set(facts) - _OPTIONAL != {"version", "port", *_TEXTS}:
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
    if expires_at - not_before > timedelta(seconds=MAX_LIFETIME_S):
        raise InvalidContext(f"the token is valid for longer than {MAX_LIFETIME_S // 3600} hours")
    port = facts["port"]
    if type(port) is not int or not 0 < port <= _MAX_PORT:
        raise InvalidContext("the token's claim 'port' is not a port number")
    return Context(
        **texts,
        port=port,
        not_before=not_before,
        expires_at=expires_at,
        token_id=_text("jti", claims.get("jti")),
        collector=_collector(facts["collector"]) if "collector" in facts else None,
        faults=_faults(facts["faults"]) if "faults" in facts else (),
    )


def _text(name: str, value: object) -> str:
    # isprintable refuses control characters and lone surrogates, which no name of ours has.
    if type(value) is not str or not 0 < len(value) <= _MAX_TEXT or not value.isprintable():
        raise InvalidContext(f"the token's claim {name!r} is not a plain text of 1 to {_MAX_TEXT} characters")
    return value


def _collector(value: object) -> str:
    if is_origin(_text("collector", value)):
        return str(value)
    raise InvalidContext("the token's claim 'collector' is not an origin like https://harness.example:8443")


def _faults(value: object) -> tuple[ScriptedFault, ...]:
    try:
        return read_faults(value)
    except ValueError as error:
        raise InvalidContext(f"the token's claim 'faults' {error}") from None


def _time(name: str, value: object) -> datetime:
    if type(value) is not int or not 0 <= value <= _MAX_TIME:
        raise InvalidContext(f"the token's claim {name!r} is not a whole number of seconds since 1970")
    return datetime.fromtimestamp(value, UTC)
