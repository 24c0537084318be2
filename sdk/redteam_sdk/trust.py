"""Whose tokens a process accepts: keys, audience, hosts, clocks. Nothing in here is secret."""

from __future__ import annotations

import functools
import json
import os
import stat
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redteam_sdk.claims import is_origin
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

__all__ = ["Trust", "public_key", "read_trust"]

_MAX_LEEWAY_S = 60.0
_MAX_FILE_BYTES = 64 * 1024
_FIELDS = {"issuer", "audience", "keys", "hosts", "leeway_s"}
_OPTIONAL = {"retired", "collectors", "egress"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Whose tokens this process accepts.

    Attributes:
        issuer: who must have minted a token.
        audience: this service's name, which a token must name; each service has its own.
        keys: Ed25519 public keys (PEM) by key id; several while keys are rotated.
        hosts: the fork servers that a token may point at, compared as exact text.
        leeway_s: how many seconds the clocks may differ, at most 60.
        retired: the moment (aware) from which a key's tokens are refused, by key id.
        collectors: where a token may have this process report to, as origins: `https://host:port`, or
            `http://127.0.0.1` for any port there.
        egress: what this process may reach beside forks and collectors: `host`, `host:port`, `[IPv6]:port`,
            or the path of a Unix socket or of a directory of them.

    Raises:
        UsageError: a field could not hold what it must, and which.
    """

    issuer: str
    audience: str
    keys: Mapping[str, str]
    hosts: frozenset[str]
    leeway_s: float = 5.0
    retired: Mapping[str, datetime] = field(default_factory=dict)
    collectors: frozenset[str] = frozenset()
    egress: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise UsageError("a trust needs an issuer and an audience; neither may be empty")
        for name in ("hosts", "collectors", "egress"):
            if isinstance(getattr(self, name), str):  # whose every substring would be allowed
                raise UsageError(f"a trust's {name} are a set of texts, not one text")
        for origin in self.collectors:
            if not is_origin(origin):
                raise UsageError(
                    f"collector {origin!r} of the trust is not like https://harness.example:8443"
                )
        if self.egress:
            from redteam_sdk.egress.destinations import parse_destination  # seldom wanted

            for text in self.egress:
                parse_destination(text)
        if not 0 <= self.leeway_s <= _MAX_LEEWAY_S:
            raise UsageError(
                f"a trust's leeway_s is {self.leeway_s}; it must lie between 0 and {_MAX_LEEWAY_S}"
            )
        if not self.keys:
            raise UsageError("a trust needs at least one public key")
        for kid, pem in self.keys.items():
            if public_key(pem) is None:
                raise UsageError(f"key {kid!r} of the trust is not an Ed25519 public key in PEM form")
        for kid, moment in self.retired.items():
            if kid not in self.keys:
                raise UsageError(f"the trust retires key {kid!r}, which is none of its keys")
            if moment.tzinfo is None:
                raise UsageError(f"the moment at which key {kid!r} is retired has no time zone")
        # Copies: what was checked must not be changed by whoever made it.
        object.__setattr__(self, "hosts", frozenset(self.hosts))
        object.__setattr__(self, "collectors", frozenset(self.collectors))
        object.__setattr__(self, "egress", frozenset(self.egress))
        object.__setattr__(self, "keys", dict(self.keys))
        object.__setattr__(self, "retired", dict(self.retired))

    def is_retired(self, kid: str) -> bool:
        """Whether the key's time is over by this process's clock."""
        moment = self.retired.get(kid)
        return moment is not None and datetime.now(UTC) >= moment

    def allows_collector(self, origin: str) -> bool:
        """Whether a token may have this process report to an origin; `is_origin` holds for it."""
        host, _, port = origin.rpartition(":")
        return origin in self.collectors or (port.isdigit() and host in self.collectors)

    def to_json(self) -> dict[str, Any]:
        """The trust as JSON-like data, read back by `from_json`."""
        data: dict[str, Any] = {
            "issuer": self.issuer,
            "audience": self.audience,
            "keys": dict(self.keys),
            "hosts": sorted(self.hosts),
            "leeway_s": self.leeway_s,
        }
        if self.retired:
            data["retired"] = {kid: moment.isoformat() for kid, moment in self.retired.items()}
        if self.collectors:
            data["collectors"] = sorted(self.collectors)
        if self.egress:
            data["egress"] = sorted(self.egress)
        return data

    @classmethod
    def from_json(cls, data: object) -> Trust:
        """Read what `to_json` wrote.

        Raises:
            UsageError: a field is missing, unknown or of another type, or a key is not an Ed25519 public key.
        """
        if not isinstance(data, dict) or set(data) - _OPTIONAL != _FIELDS:
            raise UsageError(
                "a trust holds exactly issuer, audience, keys, hosts and leeway_s, and if it likes "
                "retired, collectors and egress"
            )
        keys, hosts, leeway_s = data["keys"], data["hosts"], data["leeway_s"]
        retired = data.get("retired", {})
        collectors, egress = data.get("collectors", []), data.get("egress", [])
        texts = [data["issuer"], data["audience"]]
        if not isinstance(keys, dict) or not isinstance(retired, dict):
            raise UsageError("a trust's keys and its retired are objects")
        if not all(isinstance(one, list) for one in (hosts, collectors, egress)):
            raise UsageError("a trust's hosts, collectors and egress are lists")
        texts += [*keys, *keys.values(), *hosts, *collectors, *egress]
        if not all(isinstance(text, str) for text in texts):
            raise UsageError("a trust's issuer, audience, keys, hosts, collectors and egress are texts")
        if isinstance(leeway_s, bool) or not isinstance(leeway_s, int | float):
            raise UsageError("a trust's leeway_s is a number of seconds")
        return cls(
            issuer=texts[0],
            audience=texts[1],
            keys=keys,
            hosts=frozenset(hosts),
            leeway_s=float(leeway_s),
            retired={kid: _moment(kid, text) for kid, text in retired.items()},
            collectors=frozenset(collectors),
            egress=frozenset(egress),
        )


def read_trust(value: str) -> Trust:
    """A trust from its JSON, or from the file of that path which holds it.

    Raises:
        UsageError: it cannot be read, may be written by others than its owner, or holds no trust.
    """
    if value.lstrip().startswith("{"):
        return _parse(value, "the trust")
    what = f"the trust in {value}"
    try:
        with Path(value).open("rb") as file:
            facts = os.fstat(file.fileno())
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}") from None
    if os.name == "posix" and stat.S_IMODE(facts.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise UsageError(f"{what} may be written by others than its owner; run chmod go-w on it")
    if len(data) > _MAX_FILE_BYTES:
        raise UsageError(f"{what} is longer than {_MAX_FILE_BYTES} bytes")
    return _parse(data.decode(errors="replace"), what)


def _parse(text: str, what: str) -> Trust:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"{what} is no JSON") from None
    try:
        return Trust.from_json(data)
    except UsageError as error:
        raise UsageError(f"{what} cannot be used: {error}") from None


def _moment(kid: str, text: object) -> datetime:
    try:
        return datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        raise UsageError(
            f"the moment at which key {kid!r} is retired is not like 2026-11-30T00:00:00Z"
        ) from None


@functools.lru_cache(maxsize=64)
def public_key(pem: str) -> Ed25519PublicKey | None:
    """The Ed25519 public key in a PEM text, or None where it holds another thing."""
    # Imported here, as PyJWT is in `verify`: production that never sees a token loads no cryptography.
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None
