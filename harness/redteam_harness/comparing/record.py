"""The record of comparisons and decisions: append-only, hash-chained, beside the candidate's evidence.

A decision is signed with the key of whoever took it, over the comparison that it was taken on: neither can be
exchanged afterwards.
"""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.storage import canonical
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory

__all__ = ["Signer", "append_comparison", "append_decision", "check_record", "read_signer"]

_NAME = "comparisons.jsonl"
_SIGNED = ("comparison", "decision", "who", "reason")


class Signer:
    """Somebody's private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = base64.b64encode(raw).decode("ascii")

    def sign(self, facts: Mapping[str, Any]) -> str:
        """The signature of some facts' canonical JSON, in base64."""
        return base64.b64encode(self._key.sign(canonical(dict(facts)).encode())).decode("ascii")


def read_signer(path: Path) -> Signer:
    """Read a private Ed25519 key in PEM.

    Raises:
        UsageError: it cannot be read, or is none.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise UsageError(f"key {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise UsageError(f"{path} is no private key in PEM without a password") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key; `openssl genpkey -algorithm ed25519` makes one")
    return Signer(key)


def append_comparison(run: RunDirectory, comparison: Mapping[str, Any], **facts: Any) -> str:
    """Append what was compared and found; returns the entry's hash.

    Raises:
        EvidenceFault: it cannot be written.
        UsageError: somebody else is writing the record just now.
    """
    with _record(run) as journal:
        return journal.append("comparison", **facts, found=dict(comparison))


def append_decision(
    run: RunDirectory, comparison: str, *, decision: str, who: str, reason: str, signer: Signer | None
) -> None:
    """Append what somebody decided on a comparison.

    Args:
        run: the candidate's.
        comparison: the hash of the comparison's entry.
        decision: `ship` or `hold`.
        who: the person's name.
        reason: in their words.
        signer: their key, or None: then it is a name that anybody could have written.

    Raises:
        EvidenceFault: it cannot be written.
    """
    facts = {"comparison": comparison, "decision": decision, "who": who, "reason": reason}
    signed = {} if signer is None else {"key": signer.public, "signature": signer.sign(facts)}
    with _record(run) as journal:
        journal.append("decision", **facts, **signed)


def check_record(run: RunDirectory) -> list[dict[str, Any]]:
    """The record's entries, its chain and every signature checked; empty where there is none.

    Raises:
        EnvironmentFault: an entry is not what was written, or not signed by the key that it names.
    """
    path = run.path / _NAME
    if not path.exists():
        return []
    entries = read_journal(path)
    for number, entry in enumerate(entries, start=1):
        if "signature" in entry and not _is_signed(entry):
            raise EnvironmentFault(f"{path}:{number}: the decision's signature is not that of its key")
    return entries


def _is_signed(entry: Mapping[str, Any]) -> bool:
    signed = canonical({name: entry[name] for name in _SIGNED}).encode()
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(entry["key"]))
        key.verify(base64.b64decode(entry["signature"]), signed)
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True


@contextmanager
def _record(run: RunDirectory) -> Iterator[Journal]:
    path = run.path / _NAME
    with Journal(path, resume=path.exists()) as journal:
        yield journal
