"""Names of databases and roles, and the one place where an identifier is quoted.

A name is `rt_<server 4>_<template 8>_<random 16>`: base32 in lower case, 33 bytes, so it is never cut at
Postgres' 63 bytes and says nothing of a tenant or a test to whoever lists databases. What a template is built
under has `build_` and ten letters in the place of the random part: found without a builder, it is garbage.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets

from redteam_sdk.errors import InternalError

__all__ = [
    "OWN_NAME",
    "build_name",
    "fork_name",
    "instance_tag",
    "is_own",
    "quote_ident",
    "quote_literal",
    "template_name",
]

_MAX_IDENTIFIER_BYTES = 63
OWN_NAME = re.compile(
    r"\Art_[a-z2-7]{4}_[a-z2-7]{8}_(?:[a-z2-7]{16}|build_[a-z2-7]{10}|template|baseline|app|owner)\Z"
)


def _base32(data: bytes, length: int) -> str:
    return base64.b32encode(data).decode("ascii").lower().rstrip("=")[:length]


def instance_tag(identity: str) -> str:
    """Four letters for a server, from its system identifier."""
    return _base32(hashlib.sha256(identity.encode()).digest(), 4)


def template_name(instance: str, template_hash: str, part: str = "template") -> str:
    """The name of a template's `template`, `baseline`, `app` (its NOLOGIN group) or `owner` (of definers).

    Args:
        instance: a server's tag, from `instance_tag`.
        template_hash: hexadecimal hash of all that went into the template.
        part: which of the three.
    """
    name = f"rt_{instance}_{_base32(bytes.fromhex(template_hash), 8)}_{part}"
    if not OWN_NAME.match(name):
        raise InternalError(f"{name!r} is not a name of ours")
    return name


def fork_name(instance: str, template_hash: str) -> str:
    """A new name for a fork and for its role, never used before (80 random bits)."""
    return f"rt_{instance}_{_base32(bytes.fromhex(template_hash), 8)}_{_base32(secrets.token_bytes(10), 16)}"


def build_name(instance: str, template_hash: str) -> str:
    """A new name for a template while it is built (50 random bits)."""
    stem = f"rt_{instance}_{_base32(bytes.fromhex(template_hash), 8)}"
    return f"{stem}_build_{_base32(secrets.token_bytes(7), 10)}"


def is_own(name: str) -> bool:
    """Whether a database or role name is one that this platform makes."""
    return OWN_NAME.match(name) is not None


def quote_ident(name: str) -> str:
    """Quote an identifier for SQL text.

    Raises:
        InternalError: the name is empty, holds a NUL, or is longer than Postgres keeps (63 bytes).
    """
    if not name or "\0" in name or len(name.encode()) > _MAX_IDENTIFIER_BYTES:
        raise InternalError(f"{name!r} cannot be a Postgres identifier")
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a string constant for the few statements that take no parameters (CREATE ROLE ... PASSWORD)."""
    if "\0" in text:
        raise InternalError("a string constant cannot hold a NUL")
    escaped = text.replace("'", "''")
    if "\\" in escaped:
        return " E'" + escaped.replace("\\", "\\\\") + "'"
    return "'" + escaped + "'"
