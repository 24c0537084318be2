"""Mints redteam contexts. A launch makes a key of its own, or is given one that a deployed service trusts."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from redteam_sdk.claims import MAX_LIFETIME_S, to_claims
from redteam_sdk.context import ALGORITHM, Context, Trust
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from redteam_forker import Fork
    from redteam_sdk.scripted import ScriptedFault

__all__ = ["Mint", "SigningKey"]

_ISSUER = "redteam-harness"
_AUDIENCE = "redteam-agent"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An Ed25519 key pair. The private half is in no repr."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key, known to nobody."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """The key in a PEM file, such as `openssl genpkey -algorithm ed25519` writes.

        Raises:
            UsageError: it cannot be read, others may read it, or it holds no unencrypted Ed25519 key.
        """
        try:
            with path.open("rb") as file:
                mode = path.stat().st_mode
                data = file.read()
        except OSError as error:
            raise UsageError(f"signing key {path} cannot be read: {error.strerror}") from None
        if stat.S_IMODE(mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(f"signing key {path} is open to others than its owner; run chmod 600 on it")
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError(f"signing key {path} is not an unencrypted Ed25519 private key in PEM form")
        return cls(key)

    @classmethod
    def load_or_make(cls, path: Path) -> SigningKey:
        """The key in a file, which is made where there is none, for its owner only.

        Raises:
            UsageError: see `load`; or it cannot be made.
        """
        if path.exists():
            return cls.load(path)
        pem = cls.generate().private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        made = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(made, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(pem)
            try:
                # Whole or not at all, and where two are made at once the first holds.
                with suppress(FileExistsError):
                    path.hardlink_to(made)
            finally:
                made.unlink()
        except OSError as error:
            raise UsageError(f"signing key {path} cannot be made: {error.strerror}") from None
        return cls.load(path)

    @property
    def public_pem(self) -> str:
        """The public half, for a trust."""
        public = self.private.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    @property
    def id(self) -> str:
        """The key's id, from its public half: a new key never goes by an old one's."""
        raw = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return hashlib.sha256(raw).hexdigest()[:16]


class Mint:
    """One launch's signing key and the trust in it that agent processes are given.

    Args:
        tenant: whose data it is; the suite's name.
        run: the run's id.
        host: the only fork host that the tokens may name.
        key: signs the tokens; a new one unless it is given.
        audience: the one service that may accept them.
        egress: what agent processes may reach beside their forks.
        collector: the origin to which the tokens have a deployed service report, or None.
        collectors: origins that the trust allows; a token's collector must be one of them.
    """

    def __init__(
        self,
        *,
        tenant: str,
        run: str,
        host: str,
        key: SigningKey | None = None,
        audience: str = _AUDIENCE,
        egress: Iterable[str] = (),
        collector: str | None = None,
        collectors: Iterable[str] = (),
    ) -> None:
        self._tenant = tenant
        self._run = run
        self._audience = audience
        self._collector = collector
        self._key = key if key is not None else SigningKey.generate()
        self._trust = Trust(
            issuer=_ISSUER,
            audience=audience,
            keys={self._key.id: self._key.public_pem},
            hosts=frozenset({host}),
            egress=frozenset(egress),
            collectors=frozenset(collectors),
        )

    @property
    def trust(self) -> dict[str, Any]:
        """What an agent process needs to verify our tokens, in its JSON form; no secret is in it."""
        return dict(self._trust.to_json())

    def token(
        self, conversation: str, fork: Fork, *, lifetime_s: float, faults: Sequence[ScriptedFault] = ()
    ) -> str:
        """A context for one conversation and its fork, valid from now for `lifetime_s`, or a day at most.

        Args:
            conversation: its id.
            fork: its data.
            lifetime_s: in seconds.
            faults: what external tools play in it.
        """
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
            # Times are cut to whole seconds: one less keeps the longest lifetime within its bound.
            expires_at=start + timedelta(seconds=min(lifetime_s, MAX_LIFETIME_S - 1)),
            token_id=secrets.token_hex(16),
            collector=self._collector,
            faults=tuple(faults),
        )
        claims = dict(to_claims(context, issuer=_ISSUER, audience=self._audience))
        return jwt.encode(claims, self._key.private, algorithm=ALGORITHM, headers={"kid": self._key.id})
