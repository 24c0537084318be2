"""How the values of a type are compared: from the catalog, or, where there is none, from the type's name."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, Any

from redteam_forker.changes.values import ArrayOf, MultirangeOf, RangeOf, RecordOf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import asyncpg

    from redteam_forker.changes.values import Kind

__all__ = ["kind_named", "kinds_of", "read_kinds"]

_BUILT_IN: dict[int, Kind] = {
    20: "number",  # int8
    21: "number",  # int2
    23: "number",  # int4
    1700: "number",  # numeric
    114: "json",
    3802: "json",  # jsonb
}
_NAMED: dict[str, Kind] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "numeric"), "number"),
    **dict.fromkeys(("json", "jsonb"), "json"),
    **dict.fromkeys(("int4range", "int8range", "numrange"), RangeOf("number")),
    **dict.fromkeys(("int4multirange", "int8multirange", "nummultirange"), MultirangeOf("number")),
}
_MODIFIER = re.compile(r"\([\d,-]+\)")
# A type cannot hold itself; a bound all the same, for what we read is a catalog that others write.
_DEEPEST = 32


async def read_kinds(connection: asyncpg.Connection) -> dict[int, Kind]:
    """The kind of each type of a column here that is not just compared by its text, by the type's oid."""
    return kinds_of(await connection.fetch(_query()))


@functools.cache
def _query() -> str:
    return resources.files(__package__).joinpath("types.sql").read_text(encoding="utf-8")


def kinds_of(types: Iterable[Mapping[str, Any]]) -> dict[int, Kind]:
    """The same, from the rows of the query. Pure."""
    every = {row["oid"]: row for row in types}
    kinds = {oid: _kind(oid, every, 0) for oid in every}
    return {oid: kind for oid, kind in kinds.items() if kind != "text"}


def _kind(oid: int, every: Mapping[int, Mapping[str, Any]], depth: int) -> Kind:
    if oid in _BUILT_IN:
        return _BUILT_IN[oid]
    row = every.get(oid)
    if row is None or depth > _DEEPEST:
        return "text"
    if row["base"]:
        return _kind(row["base"], every, depth + 1)
    if row["element"]:
        element = _kind(row["element"], every, depth + 1)
        return "text" if element == "text" else ArrayOf(element, row["delimiter"])
    if row["bound"]:
        bound = _kind(row["bound"], every, depth + 1)
        if bound == "text":
            return "text"
        return MultirangeOf(bound) if row["shape"] == "m" else RangeOf(bound)
    fields = tuple(_kind(field, every, depth + 1) for field in row["fields"])
    # What prints by one rule differs if it prints differently, unless something in it has spellings.
    return "text" if all(field == "text" for field in fields) else RecordOf(fields)


def kind_named(type_name: str) -> Kind:
    """The kind of a type that is only known as format_type prints it, with pg_catalog alone in the path.

    Domains and composite types of a schema are told by their text.
    """
    bare, arrays = _MODIFIER.sub("", type_name), 0
    while bare.endswith("[]"):
        bare, arrays = bare.removesuffix("[]"), arrays + 1
    kind = _NAMED.get(bare, "text")
    return kind if not arrays or kind == "text" else ArrayOf(kind)
