"""Python values as JSON: what a tool was given and what it returned, for the trace and for a model."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import asyncpg

from redteam_sdk.errors import UsageError

__all__ = ["Unserialisable", "to_json", "type_name"]

_MAX_DEPTH = 32
_AS_TEXT = (
    Decimal,
    UUID,
    PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
)


class Unserialisable(UsageError):
    """A value has no JSON form; the message names its type and where it was found, never the value."""


def type_name(value: object) -> str:
    """The name of a value's type, with its module unless it is built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def to_json(value: object, *, strict: bool = True) -> Any:
    """A JSON-like copy of a value.

    Times become ISO 8601, Decimal and UUID text, records and dataclasses objects (without the fields that
    they keep out of their repr), sets sorted lists, enums their values.

    Args:
        value: what a tool took or returned.
        strict: raise for what has no JSON form; else put `<its type>` in its place, as the trace does.

    Raises:
        Unserialisable: only when strict.
    """
    return _convert(value, strict, "value", 0)


def _convert(value: Any, strict: bool, where: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return _none(value, strict, f"{where} (nested deeper than {_MAX_DEPTH} levels, or in itself)")
    match value:
        case Enum():
            return _convert(value.value, strict, where, depth + 1)
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else _none(value, strict, f"{where} (not finite)")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                return _none(value, strict, f"{where} (half a character pair)")
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping() | asyncpg.Record():
            return {
                _key(key, strict, where): _convert(item, strict, f"{where}{_step(key)}", depth + 1)
                for key, item in value.items()
            }
        case list() | tuple():
            return [_convert(item, strict, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
        case set() | frozenset():
            items = [_convert(item, strict, f"{where}[]", depth + 1) for item in value]
            return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))
    return _convert_object(value, strict, where, depth)


def _convert_object(value: Any, strict: bool, where: str, depth: int) -> Any:
    if isinstance(value, _AS_TEXT):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _convert(getattr(value, field.name), strict, f"{where}.{field.name}", depth + 1)
            for field in dataclasses.fields(value)
            if field.repr
        }
    dump = getattr(type(value), "model_dump", None)  # pydantic, without depending on it
    if callable(dump):
        return _convert(dump(value, mode="json"), strict, where, depth + 1)
    return _none(value, strict, where)


def _step(key: object) -> str:
    # Keys that look like names say where; others may be data, which a message does not repeat.
    return f".{key}" if isinstance(key, str) and key.isidentifier() else "[...]"


def _key(key: object, strict: bool, where: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str(_convert(key, strict, f"a key of {where}", 0))
    if isinstance(key, int | date | UUID) and not isinstance(key, bool):
        return str(key) if not isinstance(key, date) else key.isoformat()
    return str(_none(key, strict, f"a key of {where}"))


def _none(value: object, strict: bool, where: str) -> str:
    if strict:
        raise Unserialisable(f"{where} is a {type_name(value)}, which has no JSON form; return plain data")
    return f"<{type_name(value)}>"
